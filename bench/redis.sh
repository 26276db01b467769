#!/bin/sh
# SPDX-License-Identifier: MIT
#
# redis-server: the pause of BGSAVE's fork with 2 GiB of data
#
# An unmodified redis-server, whose allocator is jemalloc, by itself, with
# jemalloc's huge pages (thp:always), and under the shim with mmap=1M. The first
# save comes after loading; at each later one clients have been overwriting
# values since the save before began. Bars: ten times faster at the first, at
# most 1.1 times the pause of the plain one later on.
. "$(dirname "$0")/common.sh"
need "$shim"
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
trap '[ -z "$server" ] || kill -9 $server 2>/dev/null; rm -rf "$tmp"' EXIT
cli() {
	redis-cli -s "$tmp/socket" "$@"
}
info() { # SECTION FIELD
	cli info "$1" | tr -d '\r' | sed -n "s/^$2://p"
}
script="return redis.call('SET', 'key:' .. tonumber(ARGV[1]), ARGV[2])"
value=$(printf '%0990d' 0)

# Overwrites random values from four connections; prints seconds.
overwrite() {
	redis-benchmark -s "$tmp/socket" -q --csv -n $writes -r $keys -P 16 \
		-c 4 eval "$script" 0 __rand_int__ "$value" |
		tail -n 1 | awk -F'","' -v n=$writes '{ print n / $2 }'
}

one() { # SIDE VARIABLE=VALUE...
	side=$1
	shift
	env "$@" redis-server --port 0 --unixsocket "$tmp/socket" --save '' \
		--dir "$tmp" --rdbcompression no --enable-debug-command yes \
		--loglevel warning >"$tmp/log" 2>&1 &
	server=$!
	until cli ping >/dev/null 2>&1; do
		kill -0 $server 2>/dev/null || fail "no redis-server ($side)"
		sleep 0.1
	done
	cli debug populate $keys key $bytes >/dev/null
	save=1
	while [ $save -le $saves ]; do
		cli bgsave >/dev/null
		while [ "$(info persistence rdb_bgsave_in_progress)" != 1 ] &&
			[ "$(info persistence rdb_saves)" != $save ]; do
			sleep 0.05
		done
		which=later
		[ $save -gt 1 ] || which=first
		info stats latest_fork_usec >>"$tmp/$side.$which"
		overwrite >>"$tmp/$side.overwrite"
		while [ "$(info persistence rdb_bgsave_in_progress)" = 1 ]; do
			sleep 0.1
		done
		[ "$(info persistence rdb_last_bgsave_status)" = ok ] ||
			fail "a save failed ($side)"
		save=$((save + 1))
	done
	cli debug digest >>"$tmp/digests.$side"
	info memory used_memory_rss >>"$tmp/$side.rss"
	cli shutdown nosave >/dev/null 2>&1
	wait $server
	server=
	rm -f "$tmp"/*.rdb
}

"$bin/plain_measure" -w 6G
turn=0
while [ $turn -lt "$turns" ]; do
	one plain NOTHING=
	one shim LD_PRELOAD="$shim" COWSHED_OPTIONS=mmap=1M
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
