#!/bin/bash
# SPDX-License-Identifier: MIT
#
# sets.sh SET: what a virtual machine of scripts/check-kernels.sh runs. It runs in the tree, which
# is read-only there, as root. Tests that take long are left out, unless FULL is set: under
# emulation all takes ten to twenty times as long.
set -u
BUILD=${BUILD:-build/plain}
export BUILD QUICK=1 JOBS=2 BUDGET=100000 LIMIT=400 CK_TIMEOUT_MULTIPLIER=40 COMMAND_LIMIT=200
uname -srm
getconf PAGESIZE

folders='core core/base core/policy core/memory core/cow core/storage core/program core/fork memfd quiet share share/broker'

# programs SECONDS FOLDER...: its test programs that took at most so long where tests/seconds.txt
# was written, or that it does not know; all with FULL. It says which are left out.
programs() {
	local most=$1 program name folder seconds
	shift
	for folder; do
		for program in "$BUILD/tests/$folder"/*; do
			name=${program#"$BUILD/tests/"}
			case $program in *.d | *.o | *.so*) continue ;; esac
			[ -f "$program" ] && [ -x "$program" ] || continue
			seconds=$(sed -n "s|^$name ||p" tests/seconds.txt)
			if [ -z "${FULL:-}" ] && awk "BEGIN { exit !(${seconds:-0} > $most) }"; then
				echo "left out $name $seconds" >&2
			else
				echo "$program"
			fi
		done
	done
}

check() { [ $# -eq 0 ] || scripts/check.sh "$@" || status=1; }

# What programs meet under other conditions: forks, clones, sharing, the shim
few() { check "$BUILD"/examples/{hello,fork} "$BUILD"/tests/share/{test_more,test_share} tests/kernels/programs.sh; }

# More than the machine's memory. Or the set would say nothing of swap.
swapped() {
	if ! LD_PRELOAD=$PWD/$BUILD/lib/libcowshed-preload.so "$BUILD/tests/programs/swapped" 700; then
		echo 'not ok swapped'
	elif ! grep -q '^pswpout [1-9]' /proc/vmstat; then
		echo 'not ok swapped: nothing was swapped out'
	else
		echo '1 passed, 0 failed, 0 skipped' && return
	fi
	echo '0 passed, 1 failed, 0 skipped' && status=1
}

status=0
case $1 in
quick) check $(programs 0.3 $folders) "$BUILD"/tests/core/fork/test_fork "$BUILD"/tests/core/cow/test_layers \
	"$BUILD"/tests/core/storage/test_storage "$BUILD"/examples/{hello,fork} tests/kernels/programs.sh ;;
core) check $(programs 5 core core/base core/policy core/storage core/program memfd quiet) ;;
memory) check $(programs 5 core/memory) ;;
cow) check $(programs 5 core/cow) ;;
fork) check $(programs 10 core/fork) ;;
sharing) check $(programs 5 share share/broker hostile) ;;
shim) check "$BUILD"/examples/{hello,fork} tests/kernels/programs.sh tests/preload/{usage,loading,doctor,command,family}.sh ;;
measures) bash tests/kernels/measures.sh || status=1 ;;
small) few ;;
swap) mkswap /dev/vda >/dev/null && swapon /dev/vda && few && swapped ;;
overcommit) echo 2 >/proc/sys/vm/overcommit_memory && few ;;
border) BORDER_FEW=1 check "$BUILD"/tests/core/fork/*_border tests/preload/border.sh ;; # arm64 has no fault_*
yama) echo 1 >/proc/sys/kernel/yama/ptrace_scope && check tests/preload/yama.sh ;;
containers) check tests/preload/containers.sh ;;
demo) check tests/preload/demo.sh ;;
*) echo "sets.sh: no set $1" && exit 1 ;;
esac
case $1 in
quick | shim) "$BUILD/bin/cowshed" doctor ;;
esac
exit $status
