#!/bin/bash
# SPDX-License-Identifier: MIT
#
# stress-ng: the stressors of its classes memory, vm, scheduler and interrupt, and those that fork;
# each looks at its own results (--verify). What is compared is how it ends: 0, 2 failed, 3 or 4
# not here.
. tests/outside/lib.sh
command -v stress-ng >/dev/null || skip 'there is no stress-ng'
absent="3 4"
seconds=5
[ -z "$quick" ] || { seconds=1 && settings=threshold=65536,mmap=65536; }
of() { stress-ng --class "$1?" 2>/dev/null | sed -n 's/^class .*stressors: //p'; }
all=$({ of memory; of vm; of scheduler; of interrupt; echo fork vfork clone exec daemon zombie; } |
	tr ' ' '\n' | sort -u)
# These fill the machine, or end others, as they are meant to.
for name in bad-altstack brk oom-pipe resources rmap stack swap sysbadaddr cyclic; do
	all=$(grep -vx "$name" <<<"$all")
done
limit=$((seconds * 10 + 20))
cd "$work" || exit 1
for name in $all; do
	compare "$name" stress-ng "--$name" 1 --verify -t "$seconds" --vm-bytes 64m \
		--temp-path "$work/tmp"
done
finish
