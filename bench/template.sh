#!/bin/sh
# SPDX-License-Identifier: MIT
#
# A template process with many living children
#
# This script runs bench/plain_template under the shim: 8 GiB, and 1 000 and 10 000
# children that write 64 pages each and stay alive. Bars: the median fork() takes at most
# 200 us, a child costs at most 1 MiB, and all of them are killed and reaped within 1 s.
# What a child costs is the private memory of one of them, and without a bar also the
# memory that the machine lacks for each, page tables and the kernel's own included. The
# last tenth of the forks is compared with the first, as `rival`.
#
# Under glibc so many children of 8 GiB do not fit into the machine, since each has page
# tables of its own for all of it. So all sides run once more with 2 GiB and 100 children,
# in turns: glibc with 4 KiB pages, glibc with huge pages, and the shim.
. "$(dirname "$0")/common.sh"
need "$bin/plain_template" "$bin/plain_measure" "$shim"

turns=${BENCH_ROUNDS:-5}
total=8G small_total=2G families='1000 10000' small_family=100
if quick; then
	turns=${BENCH_ROUNDS:-3}
	total=512M small_total=256M families='100 500' small_family=50
fi

# one SIDE CHILDREN TOTAL [-H]: runs one process; appends to $tmp/SIDE.FIELD
one() {
	side=$1 children=$2 size=$3
	wanted "$side" || return 0
	shift 3
	preload='' tunables=''
	[ "$side" != shim ] || preload=$shim
	[ "$side" != huge ] || tunables=$huge_pages
	env ${preload:+LD_PRELOAD="$preload"} \
		${tunables:+GLIBC_TUNABLES="$tunables"} \
		"$bin/plain_template" -t "$size" -n "$children" "$@" >"$tmp/out" ||
		fail "failed: $side, $children children, $size"
	for what in fork_us p99_us early_us late_us private_kib cost_kib reap_ms; do
		field $what <"$tmp/out" >>"$tmp/$side.$what"
	done
}

"$bin/plain_measure" -w "$total" >/dev/null
for children in $families; do
	rm -f "$tmp"/shim.*
	turn=0
	while [ $turn -lt "$turns" ]; do
		one shim "$children" "$total"
		turn=$((turn + 1))
	done
	name=$total/$children-children
	report template "fork/$name" us "$tmp/shim.fork_us" - ours 200
	report template "fork-p99/$name" us "$tmp/shim.p99_us" - - 0
	report template "fork-last-tenth/$name" us "$tmp/shim.late_us" \
		"$tmp/shim.early_us" - 0
	report template "private/$name" KiB "$tmp/shim.private_kib" - ours 1024
	report template "cost/$name" KiB "$tmp/shim.cost_kib" - - 0
	report template "reap/$name" ms "$tmp/shim.reap_ms" - ours 1000
done

rm -f "$tmp"/shim.*
turn=0
while [ $turn -lt "$turns" ]; do
	one small $small_family $small_total
	one shim $small_family $small_total
	one huge $small_family $small_total -H
	turn=$((turn + 1))
done
name=$small_total/$small_family-children
for rival in small huge; do
	of=
	[ $rival = small ] || of=huge/
	report template "fork/$of$name" us "$tmp/shim.fork_us" \
		"$tmp/$rival.fork_us" faster 0
	report template "private/$of$name" KiB "$tmp/shim.private_kib" \
		"$tmp/$rival.private_kib" - 0
	report template "reap/$of$name" ms "$tmp/shim.reap_ms" \
		"$tmp/$rival.reap_ms" faster 0
done
