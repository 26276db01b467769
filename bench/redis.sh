#!/bin/sh
# SPDX-License-Identifier: MIT
#
# redis-server: the pause of BGSAVE's fork with 2 GiB of data
#
# An unmodified redis-server, whose allocator is jemalloc, runs by itself, with
# jemalloc's huge pages (thp:always), and under the shim with mmap=1M. The first save
# comes after loading. As soon as a save has begun, clients overwrite values; the next
# save follows when both are done. A generator, whose state is in the server, gives the
# clients their keys. So all sides execute the same commands, and must have the same
# digest in the end. Bars: the first pause is ten times shorter than that of the plain
# server. The later pauses, of each server the median, are at most 1.1 times as long. The
# peak is that of the cgroup without the files that the server saved, or RSS.
. "$(dirname "$0")/common.sh"
need "$bin/plain_measure" "$shim"
for program in redis-server redis-cli redis-benchmark; do
	have $program || {
		echo "  redis: skipped (no $program)"
		exit 0
	}
done

turns=${BENCH_ROUNDS:-3}
keys=1800000 bytes=1000 writes=200000
if quick; then
	turns=${BENCH_ROUNDS:-1}
	keys=200000 writes=20000
fi
saves=5
server=
cleanup_also='[ -z "$server" ] || kill -9 $server 2>/dev/null'
cli() {
	redis-cli -s "$tmp/socket" "$@"
}
info() { # SECTION FIELD
	cli info "$1" | tr -d '\r' | sed -n "s/^$2://p"
}
# The generator is 48271 x mod 2^31 - 1. It is never 0, and exact in Lua's numbers.
script="local x = (redis.call('GET', 'turn') or 1) * 48271 % 2147483647
redis.call('SET', 'turn', string.format('%d', x))
return redis.call('SET', 'key:' .. x % $keys, ARGV[1])"
value=$(printf '%0990d' 0)

# Overwrites random values from four connections; appends the seconds to FILE.
overwrite() {
	redis-benchmark -s "$tmp/socket" -q --csv -n $writes -P 16 -c 4 \
		eval "$script" 0 "$value" >"$tmp/csv" || fail "redis-benchmark failed"
	tail -n 1 "$tmp/csv" | awk -F'","' -v n=$writes '$2 > 0 { print n / $2; ok = 1 }
		END { exit !ok }' >>"$1" || fail "redis-benchmark printed no figure"
}

one() { # SIDE VARIABLE=VALUE...
	side=$1
	shift
	rm -f "$tmp/result" "$tmp/later" "$tmp/seconds"
	env "$@" "$bin/plain_measure" -a -o "$tmp/result" -p "$preload" -- \
		redis-server --port 0 --unixsocket "$tmp/socket" --save '' \
		--dir "$tmp" --rdbcompression no --enable-debug-command yes \
		--loglevel warning >"$tmp/log" 2>&1 &
	measure=$!
	until cli ping >/dev/null 2>&1; do
		kill -0 $measure 2>/dev/null || fail "redis-server did not start ($side)"
		sleep 0.1
	done
	server=$(info server process_id)
	cli debug populate $keys key $bytes >/dev/null || fail "no data were loaded ($side)"
	save=1
	while [ $save -le $saves ]; do
		cli bgsave >/dev/null || fail "BGSAVE failed ($side)"
		while [ "$(info persistence rdb_bgsave_in_progress)" != 1 ] &&
			[ "$(info persistence rdb_saves)" != $save ]; do
			kill -0 $measure 2>/dev/null || fail "redis died ($side)"
			sleep 0.05
		done
		which=$tmp/later
		[ $save -gt 1 ] || which=$tmp/$side.first
		info stats latest_fork_usec >>"$which"
		overwrite "$tmp/seconds"
		while [ "$(info persistence rdb_bgsave_in_progress)" = 1 ]; do
			sleep 0.1
		done
		[ "$(info persistence rdb_last_bgsave_status)" = ok ] ||
			fail "a save failed ($side)"
		save=$((save + 1))
	done
	median "$tmp/later" >>"$tmp/$side.later"
	median "$tmp/seconds" >>"$tmp/$side.overwrite"
	cli debug digest >>"$tmp/digests"
	cli shutdown nosave >/dev/null 2>&1
	wait $measure || fail "redis-server ended with $? ($side)"
	server=
	field peak_kib <"$tmp/result" | awk '{ print $1 / 1024 }' >>"$tmp/$side.peak"
	field peak_by <"$tmp/result" >>"$tmp/by"
	rm -f "$tmp"/*.rdb
	[ "$(grep -c . "$tmp/digests")" != 0 ] &&
		[ "$(sort -u "$tmp/digests" | wc -l)" = 1 ] ||
		fail "the data differ ($side)"
}

"$bin/plain_measure" -w 6G
turn=0
while [ $turn -lt "$turns" ]; do
	preload=
	one plain NOTHING=
	preload=$shim
	one shim COWSHED_OPTIONS=mmap=1M
	preload=
	one thp MALLOC_CONF=thp:always
	turn=$((turn + 1))
done
report redis first us "$tmp/shim.first" "$tmp/plain.first" speedup 10
report redis later us "$tmp/shim.later" "$tmp/plain.later" ratio 1.1
report redis overwriting s "$tmp/shim.overwrite" "$tmp/plain.overwrite" \
	faster 0
report redis first/thp us "$tmp/shim.first" "$tmp/thp.first" faster 0
report redis later/thp us "$tmp/shim.later" "$tmp/thp.later" faster 0
report redis overwriting/thp s "$tmp/shim.overwrite" "$tmp/thp.overwrite" \
	faster 0
by=$(peak_by "$tmp/by")
report redis peak MiB "$tmp/shim.peak" "$tmp/plain.peak" - 0 "$by"
report redis peak/thp MiB "$tmp/shim.peak" "$tmp/thp.peak" - 0 "$by"
