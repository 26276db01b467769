#!/bin/sh
# SPDX-License-Identifier: MIT
#
# redis-server: ten saves of 2 GiB while clients read and overwrite
#
# An unmodified redis-server, whose allocator is jemalloc, runs by itself (plain), under
# the shim with mmap=1M, and with jemalloc's huge pages (thp:always). redis switches
# jemalloc's background thread on itself. bench/plain_redis is the clients and orders the
# saves; its head says what it measures. A save begins five seconds after the last one
# ended. Real servers save once a minute or less, so their memory has longer to recover.
# The clients check what they read, and at the end every byte of the data.
#
# Bars: the first fork is ten times shorter than the plain server's. Later ones take at
# most 1 ms: the median of a server, and each. Their median is 30 times shorter than that
# of the plain server, and ten times than with huge pages. Requests are at least 0.98
# times as fast as the plain server's, beside a save and after it. Between the saves the
# 99.9th percentile of one slow client is not above the plain server's. The peak of the
# cgroup, without the files that the server saved, is at most 1.05 times the plain one.
# No thread waits for more than 1 ms for a slice of healing, if the library counts that.
# REDIS_SIDES="plain shim" leaves the other side out.
. "$(dirname "$0")/common.sh"
need "$bin/plain_measure" "$bin/plain_redis" "$lib/../bin/cowshed" "$shim"
for program in redis-server redis-cli; do
	have $program || {
		echo "  redis: skipped (no $program)"
		exit 0
	}
done

turns=${BENCH_ROUNDS:-3}
keys=1800000 bytes=1000 saves=10 pause=5
if quick; then
	turns=${BENCH_ROUNDS:-1}
	keys=200000 saves=3 pause=1
fi
server=
# The server's child may be writing a file.
cleanup_also='[ -z "$server" ] ||
	kill -9 $server $(cat /proc/$server/task/$server/children) 2>/dev/null'
cli() {
	redis-cli -s "$tmp/socket" "$@"
}

one() { # SIDE SHIM VARIABLE=VALUE
	side=$1
	rm -f "$tmp/result" "$tmp/stat"
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
	cli debug populate $keys key $bytes >/dev/null || fail "no data were loaded ($side)"
	"$bin/plain_redis" -s "$tmp/socket" -k $keys -b $bytes -n $saves -g $pause >"$tmp/lines" ||
		fail "the clients failed ($side)"
	[ -z "$2" ] || "$lib/../bin/cowshed" stat --json "$server" >"$tmp/stat" ||
		fail "the server has no counters ($side)"
	cli shutdown nosave >/dev/null 2>&1
	wait $measure || fail "redis-server ended with $? ($side)"
	server=
	take
}

take() { # appends the figures of a server to the files of its side
	[ ! -s "$tmp/stat" ] || sed -n 's/.*"heal_wait_ns_max": *\([0-9]*\).*/\1/p' \
		"$tmp/stat" | awk '{ print $1 / 1000 }' >>"$tmp/$side.wait"
	field fork_us <"$tmp/lines" | head -n 1 >>"$tmp/$side.first"
	field fork_us <"$tmp/lines" | tail -n +2 >"$tmp/later"
	median "$tmp/later" >>"$tmp/$side.later"
	cat "$tmp/later" >>"$tmp/$side.each"
	for key in before_us save_ms saving_us after_us between_us between_worst_us during_us \
		during_worst_us; do
		field $key <"$tmp/lines" >"$tmp/values"
		median "$tmp/values" >>"$tmp/$side.$key"
	done
	field peak_kib <"$tmp/result" | awk '{ print $1 / 1024 }' >>"$tmp/$side.peak"
	field peak_by <"$tmp/result" >>"$tmp/by"
	rm -f "$tmp"/*.rdb
}

"$bin/plain_measure" -w 6G
sides=${REDIS_SIDES:-${BENCH_SIDES:-plain shim thp}}
turn=0
while [ $turn -lt "$turns" ]; do
	for side in $sides; do
		case $side in
		plain) one plain '' NOTHING= ;;
		shim) one shim "$shim" "COWSHED_OPTIONS=mmap=1M${BENCH_OPTIONS:+,$BENCH_OPTIONS}" ;;
		thp) one thp '' MALLOC_CONF=thp:always ;;
		*) fail "there is no such side: $side" ;;
		esac
	done
	turn=$((turn + 1))
done
. "$here/redis_report.sh"
