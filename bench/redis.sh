#!/bin/sh
# SPDX-License-Identifier: MIT
#
# redis-server: saves with 2 GiB of data, while clients read and overwrite them
#
# An unmodified redis-server, whose allocator is jemalloc, runs by itself (plain), under
# the shim with mmap=1M, and with jemalloc's huge pages (thp:always). REDIS_SIDES names
# other sides: thp-background is thp:always with jemalloc's background thread.
# bench/plain_redis is the clients and orders ten saves; its head says what it measures.
# A save begins five seconds after the last one ended. Real servers save once a minute or
# less often, so they have more time between saves than this one. At the end the clients
# compare every byte of the data.
#
# Bars: the first fork is ten times shorter than the plain server's, each later one 30
# times; 10 times shorter than with huge pages. Later forks take at most 1 ms: the median
# of a server, and the worst of all. A request of the load takes at most 1 / 0.98 of its
# time at the plain server, during saves and after them. The same for the 99.9th
# percentile of one slow client between saves, where 1.05 leaves room for the spread of
# the rounds. The peak is that of the cgroup without the files that the server saved.
. "$(dirname "$0")/common.sh"
need "$bin/plain_measure" "$bin/plain_redis" "$shim"
for program in redis-server redis-cli; do
	have $program || {
		echo "  redis: skipped (no $program)"
		exit 0
	}
done

turns=${BENCH_ROUNDS:-3}
keys=1800000 saves=10 pause=5
if quick; then
	turns=${BENCH_ROUNDS:-1}
	keys=200000 saves=3 pause=1
fi
server=
cleanup_also='[ -z "$server" ] || kill -9 $server 2>/dev/null'
cli() {
	redis-cli -s "$tmp/socket" "$@"
}

one() { # SIDE SHIM VARIABLE=VALUE
	side=$1
	rm -f "$tmp/result"
	env "$3" "$bin/plain_measure" -a -o "$tmp/result" -p "$2" -- \
		redis-server --port 0 --unixsocket "$tmp/socket" --save '' \
		--dir "$tmp" --rdbcompression no --enable-debug-command yes \
		--loglevel warning >"$tmp/log" 2>&1 &
	measure=$!
	until cli ping >/dev/null 2>&1; do
		kill -0 $measure 2>/dev/null || fail "redis-server did not start ($side)"
		sleep 0.1
	done
	server=$(cli info server | tr -d '\r' | sed -n 's/^process_id://p')
	cli debug populate $keys key 1000 >/dev/null || fail "no data were loaded ($side)"
	"$bin/plain_redis" -s "$tmp/socket" -k $keys -n $saves -g $pause >"$tmp/lines" ||
		fail "the clients failed ($side)"
	[ -z "$2" ] || "$bin/../bin/cowshed" stat --json "$server" |
		sed -n 's/.*"heal_wait_ns_max": *\([0-9]*\).*/\1/p' |
		awk '{ print $1 / 1000 }' >>"$tmp/$side.wait"
	cli shutdown nosave >/dev/null 2>&1
	wait $measure || fail "redis-server ended with $? ($side)"
	server=
	take
}

take() { # appends the figures of a server to the files of its side
	field fork_us <"$tmp/lines" | head -n 1 >>"$tmp/$side.first"
	field fork_us <"$tmp/lines" | tail -n +2 >"$tmp/later"
	median "$tmp/later" >>"$tmp/$side.later"
	cat "$tmp/later" >>"$tmp/$side.all"
	for key in save_ms saving_us after_us between_us between_worst_us during_us; do
		field $key <"$tmp/lines" >"$tmp/values"
		median "$tmp/values" >>"$tmp/$side.$key"
	done
	field peak_kib <"$tmp/result" | awk '{ print $1 / 1024 }' >>"$tmp/$side.peak"
	field peak_by <"$tmp/result" >>"$tmp/by"
	rm -f "$tmp"/*.rdb
}

"$bin/plain_measure" -w 6G
sides=${REDIS_SIDES:-plain shim thp}
turn=0
while [ $turn -lt "$turns" ]; do
	for side in $sides; do
		case $side in
		plain) one plain '' NOTHING= ;;
		shim) one shim "$shim" COWSHED_OPTIONS=mmap=1M ;;
		thp) one thp '' MALLOC_CONF=thp:always ;;
		thp-background)
			one $side '' MALLOC_CONF=thp:always,background_thread:true ;;
		*) fail "there is no such side: $side" ;;
		esac
	done
	turn=$((turn + 1))
done
. "$here/redis_report.sh"
