#!/bin/bash
# SPDX-License-Identifier: MIT
#
# check-kernels.sh: runs tests of the build on other kernels, each in a virtual machine, and writes
# the tables of docs/platforms.md. The kernels are Debian's packages; they stay in build/linux.
#
# A *set* is what one machine runs (tests/kernels/sets.sh). What a set said stays in
# build/linux/results/KERNEL/SET; a table has the last result of each.
#
# Environment:
#     KERNELS="5.10 6.1"   which (scripts/kernels-fetch.sh has the names); default: all
#     SETS="core fork"     which; default: quick measures, an hour for all kernels. Others: core,
#                          memory, cow, fork, sharing, shim: more programs of these; small,
#                          swap, overcommit, containers: little memory, swap, and so on;
#                          border: calls that give up privileges; yama: equal users may not
#                          trace each other
#     FULL=1               all programs of a set, not only its short ones: hours
#     T=TEXT               only tests with TEXT in their path; the tables stay as they are
#     LIMIT=1500           seconds for each machine
#     ACCEL=kvm            see scripts/kernels-boot.sh
set -u
KERNELS=${KERNELS:-5.10 6.1 6.12 newest arm64-6.12 arm64-6.12-16k}
SETS=${SETS:-quick measures}
export LIMIT=${LIMIT:-1500} CPUS=1
commit=$(git describe --always --dirty --exclude '*' 2>/dev/null) # before the tables are written
results=build/linux/results failed=0 passed=0 skipped=0 bad=0
for set in $SETS; do
	grep -qE "^([a-z]+ \| )*$set( \| [a-z]+)*\) " tests/kernels/sets.sh || {
		echo "check-kernels: tests/kernels/sets.sh has no set '$set'" >&2
		exit 1
	}
done
for kernel in $KERNELS; do
	case $kernel in arm64-*) qemu=qemu-system-aarch64 package=arm ;; *) qemu=qemu-system-x86_64 package=x86 ;; esac
	command -v $qemu >/dev/null || {
		echo "check-kernels: no $qemu; install qemu-system-$package" >&2
		exit 1
	}
done
scripts/kernels-fetch.sh $KERNELS || exit
for kernel in $KERNELS; do
	case $kernel in
	arm64-*-16k) scripts/kernels-cross.sh 16384 || exit ;;
	arm64-*) scripts/kernels-cross.sh 4096 || exit ;;
	esac
done
mkdir -p $results

one() { # KERNEL SET
	local out=$results/$1/$2 memory=3072 counts p f s swap=0 tree=.
	case $1 in arm64-*-16k) tree=build/linux/tree-16384 ;; arm64-*) tree=build/linux/tree-4096 ;; esac
	rm -rf "$out" && mkdir -p "$out"
	echo "$(date +%F) $commit" >"$out/date"
	printf 'cd /mnt/tree/%s && FULL=%s T=%q bash tests/kernels/sets.sh %s\n' \
		$tree "${FULL:-}" "${T:-}" "$2" >"$out/run.sh"
	printf '%-15s %-9s ' "$1" "$2"
	case $2 in small) memory=1024 ;; swap) memory=512 swap=2048 ;; esac
	if ! MEMORY=$memory SWAP=$swap scripts/kernels-boot.sh "$1" "$out" \
		2>"$out/error" && [ ! -s "$out/status" ]; then
		cat "$out/error"
		failed=1
		return
	fi
	counts=$(grep -aE '^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped' "$out/log" |
		awk '{ p += $1; f += $3; s += $5 } END { print p + 0, f + 0, s + 0 }')
	read -r p f s <<<"$counts"
	passed=$((passed + p)) bad=$((bad + f)) skipped=$((skipped + s))
	echo "$p passed, $f failed, $s skipped"
	grep -aE '^ *(skip|not ok|measure) |^[^ ]*:[EF]:|^---- .* failed' "$out/log" | sort -u | cut -c1-150 | sed 's/^ */    /'
	[ "$f" -eq 0 ] && [ "$(cat "$out/status")" = 0 ] || failed=1
}

for kernel in $KERNELS; do
	for set in $SETS; do
		one "$kernel" "$set"
		[ -n "${T:-}" ] || scripts/kernels-table.sh "$results/$kernel/$set" || failed=1
	done
done
echo "$passed passed, $bad failed, $skipped skipped"
exit $failed
