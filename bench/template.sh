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

turns_of 5 3
total=8G small_total=2G families='1000 10000' small_family=100
if quick; then
	total=512M small_total=256M families='100 500' small_family=50
fi

warm "$total"
for children in $families; do
	in_turns shim printed "$bin/plain_template" -n "$children" -t "$total"
	name=$total/$children-children
	row "fork/$name" us fork_us - ours 200
	row "fork-p99/$name" us p99_us - - 0
	report template "fork-last-tenth/$name" us "$tmp/of/shim.late_us" "$tmp/of/shim.early_us" - 0
	row "private/$name" KiB private_kib - ours 1024
	row "cost/$name" KiB cost_kib - - 0
	row "reap/$name" ms reap_ms - ours 1000
done

in_turns 'small shim huge' printed "$bin/plain_template" -n $small_family -t $small_total
name=$small_total/$small_family-children
for rival in small huge; do
	of=
	[ $rival = small ] || of=huge/
	row "fork/$of$name" us fork_us $rival faster 0
	row "private/$of$name" KiB private_kib $rival - 0
	row "reap/$of$name" ms reap_ms $rival faster 0
done
