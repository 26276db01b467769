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
turns=${BENCH_ROUNDS:-5} total=1G scale=${LARGE_SCALE:-1} text=160
quick && turns=${BENCH_ROUNDS:-3} total=256M scale=0.25 text=40
mkdir "$tmp/in" || exit 1
programs_prepare "$tmp/in" $text 0 20000
export OPENBLAS_NUM_THREADS=2 OMP_NUM_THREADS=2 PYTHONHASHSEED=0

preload() {
	[ "$1" != cowshed ] || echo "$shim"
}

# once CASE SIDE COMMAND: appends to $tmp/CASE.SIDE.{wall_ms,cpu_ms}; what it prints: $tmp/out
once() {
	"$bin/plain_measure" -w 1500M >/dev/null # each side finds the same memory
	"$bin/plain_measure" -o "$tmp/result" -p "$(preload "$2")" -d "$tmp/in" -- \
		sh -c "$3" >"$tmp/out" 2>"$tmp/err" ||
		fail "$1 failed under $2: $(tail -n 1 "$tmp/err")"
	for figure in wall_ms cpu_ms; do
		field $figure <"$tmp/result" >>"$tmp/$1.$2.$figure"
	done
}

# figure NAME CASE UNIT KIND ON BAR
figure() {
	report thp "$setting/$1" "$3" "$tmp/$2.cowshed.$4" "$tmp/$2.glibc.$4" "$5" "$6"
}

# both CASE COMMAND: cowshed and glibc in turns, of which every second one is turned around
both() {
	turn=0
	while [ $turn -lt "$turns" ]; do
		order='glibc cowshed'
		[ $((turn % 2)) = 0 ] || order='cowshed glibc'
		for side in $order; do
			once "$1" "$side" "$2"
			field pause_us <"$tmp/out" | head -n 1 >>"$tmp/$1.$side.first"
			field pause_us <"$tmp/out" | tail -n 1 >>"$tmp/$1.$side.last"
			grep -av '^cycle=1 ' "$tmp/out" | field wall_us >"$tmp/cycles"
			median "$tmp/cycles" >>"$tmp/$1.$side.cycle"
		done
		turn=$((turn + 1))
	done
}

# redis-server's allocator is jemalloc, and the shim serves its mappings.
redis() {
	BENCH_ROUNDS=1 REDIS_SIDES='plain shim' sh "$here/redis.sh" >"$tmp/redis" ||
		fail "redis.sh failed under $setting"
	sed "s|^bench=redis case=|bench=thp case=$setting/redis/|; s|^  redis, |  thp, $setting/redis/|" \
		"$tmp/redis"
}

measure() {
	rm -f "$tmp"/*.cowshed.* "$tmp"/*.glibc.*
	both fill "'$bin/plain_fork' -t $total -b 64M -n 0"
	figure fill fill ms wall_ms ratio 1
	figure fill/cpu fill ms cpu_ms ratio 1.1
	both fork "'$bin/plain_fork' -t $total -b 64M"
	figure fork/first fork us first speedup 10
	figure fork/tenth fork us last speedup 10
	both empty "'$bin/plain_fork' -t 1M -b 64K"
	figure fork/empty empty us last - -
	both cycle "'$bin/plain_cycle' -S $total -b 64M -n 5 -w 10"
	figure cycle/10% cycle us cycle ratio 1
	figure cycle/10%/cpu cycle ms cpu_ms ratio 1.1
	for name in ${THP_ONLY-temporaries arithmetic copies sorts transforms joins groups images \
		audio training inference sort xz redis}; do
		[ "$name" != redis ] || { redis && continue; }
		command=$(large_command "$name")
		(cd "$tmp/in" && sh -c "$command" >/dev/null 2>&1) || {
			echo "  thp, $name: it can't run here"
			continue
		}
		both "$name" "$command"
		figure "$name" "$name" ms wall_ms ratio 1
		figure "$name/cpu" "$name" ms cpu_ms ratio 1.1
	done
}

[ $# -gt 0 ] || set -- always madvise never
for setting; do
	case $setting in always | madvise | never) ;; *) fail "there is no setting $setting" ;; esac
	echo "$setting" >$enabled || fail "$setting can't be set"
	measure
done
