#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Under each setting of transparent_hugepage/enabled: cowshed beside glibc
#
#      bench/thp.sh [always|madvise|never...]
#
# Many distributions set "always", where glibc's memory is in huge pages without asking. This
# script sets each value, measures, and puts the machine's own value back; so it needs root.
# Measured are filling 1 GiB in blocks of 64 MiB, wall and processor time of a process that
# does only that (plain_fork -n 0); the first and the tenth fork of it; the tenth fork of a
# process with 1 MiB, which is what the kernel takes for any process; a cycle in which 10 % are
# written between forks (plain_cycle); the large programs (bench/large.py, sort, xz); and
# redis-server, once each, with the bars of redis.sh. THP_ONLY names some of the programs.
# Both sides run in turns, after a program that touches as much memory. Bars: at most
# glibc's wall time and 1.1 times its processor time under the same setting, and forks 10
# times faster. cowshed makes huge pages also under "never" (docs/limits.md).
. "$(dirname "$0")/common.sh"
. "$here/programs_inputs.sh"
need "$bin/plain_fork" "$bin/plain_cycle" "$bin/plain_measure" "$shim"
enabled=/sys/kernel/mm/transparent_hugepage/enabled
[ -w $enabled ] || fail "$enabled can't be written: run this as root, on a machine of your own"
own=$(sed 's/.*\[\(.*\)\].*/\1/' $enabled)
cleanup_also="echo $own >$enabled"
turns_of 5 3
total=1G scale=1 text=160
quick && total=256M scale=0.25 text=40
mkdir "$tmp/in" || exit 1
programs_prepare "$tmp/in" $text 0 20000
export OPENBLAS_NUM_THREADS=2 OMP_NUM_THREADS=2 PYTHONHASHSEED=0

once() { # SIDE CASE COMMAND: the figures are also pauses of forks, and a cycle from the second on
	of_side "$1"
	warm 1500M
	"$bin/plain_measure" -o "$tmp/measured" -p "$preload" -d "$tmp/in" -- \
		sh -c "$3" >"$tmp/printed" 2>"$tmp/err" ||
		fail "$2 failed under $1: $(tail -n 1 "$tmp/err")"
	cp "$tmp/measured" "$tmp/out"
	keep "$1"
	field pause_us <"$tmp/printed" | head -n 1 | note "$1" first
	field pause_us <"$tmp/printed" | tail -n 1 | note "$1" last
	grep -av '^cycle=1 ' "$tmp/printed" | field wall_us | note "$1" cycle
}

both() { # CASE COMMAND
	in_turns 'glibc shim' once "$@"
}

# figure CASE UNIT FIGURE ON BAR
figure() {
	row "$thp/$1" "$2" "$3" glibc "$4" "$5"
}

# redis-server's allocator is jemalloc, and the shim serves its mappings.
redis() {
	BENCH_ROUNDS=1 BENCH_SIDES='plain shim' sh "$here/redis.sh" >"$tmp/redis" ||
		fail "redis.sh failed under $thp"
	sed "s|^bench=redis case=|bench=thp case=$thp/redis/|; s|^  redis, |  thp, $thp/redis/|" \
		"$tmp/redis"
}

measure() {
	both fill "'$bin/plain_fork' -t $total -b 64M -n 0"
	figure fill ms wall_ms ratio 1
	figure fill/cpu ms cpu_ms ratio 1.1
	both fork "'$bin/plain_fork' -t $total -b 64M"
	figure fork/first us first speedup 10
	figure fork/tenth us last speedup 10
	both empty "'$bin/plain_fork' -t 1M -b 64K"
	figure fork/empty us last - 0
	both cycle "'$bin/plain_cycle' -S $total -b 64M -n 5 -w 10"
	figure cycle/10% us cycle ratio 1
	figure cycle/10%/cpu ms cpu_ms ratio 1.1
	for name in ${THP_ONLY-temporaries arithmetic copies sorts transforms joins groups images \
		audio training inference sort xz redis}; do
		[ "$name" != redis ] || { redis && continue; }
		command=$(large_command "$name")
		(cd "$tmp/in" && sh -c "$command" >/dev/null 2>&1) || {
			echo "  thp, $name: it can't run here"
			continue
		}
		both "$name" "$command"
		figure "$name" ms wall_ms ratio 1
		figure "$name/cpu" ms cpu_ms ratio 1.1
	done
}

[ $# -gt 0 ] || set -- always madvise never
for thp; do
	case $thp in always | madvise | never) ;; *) fail "there is no setting $thp" ;; esac
	echo "$thp" >$enabled || fail "$thp can't be set"
	measure
done
