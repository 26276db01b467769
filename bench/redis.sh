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
# BENCH_SIDES="plain shim" leaves the other side out.
. "$(dirname "$0")/common.sh"
need "$bin/plain_measure" "$bin/plain_redis" "$lib/../bin/cowshed" "$shim"
for program in redis-server redis-cli; do
	have $program || {
		echo "  redis: skipped (no $program)"
		exit 0
	}
done

turns_of 3 1
keys=1800000 bytes=1000 saves=10 pause=5
quick && keys=200000 saves=3 pause=1
options=mmap=1M
server=
# The server's child may be writing a file.
cleanup_also='[ -z "$server" ] ||
	kill -9 $server $(cat /proc/$server/task/$server/children) 2>/dev/null'
cli() {
	redis-cli -s "$tmp/socket" "$@"
}

once() { # SIDE
	of_side "$1"
	[ "$1" != jemalloc-thp ] || preload= # redis has its own jemalloc
	rm -f "$tmp/measured" "$tmp/stat"
	env "$setting" "$bin/plain_measure" -a -o "$tmp/measured" -p "$preload" -- \
		redis-server --port 0 --unixsocket "$tmp/socket" --save '' \
		--dir "$tmp" --rdbcompression no --enable-debug-command yes \
		--loglevel warning >"$tmp/log" 2>&1 &
	measure=$!
	until cli ping >/dev/null 2>&1; do
		kill -0 $measure 2>/dev/null || fail "redis-server did not start ($1)"
		sleep 0.1
	done
	server=$(cli info server | tr -d '\r' | sed -n 's/^process_id://p')
	cli debug populate $keys key $bytes >/dev/null || fail "no data were loaded ($1)"
	"$bin/plain_redis" -s "$tmp/socket" -k $keys -b $bytes -n $saves -g $pause >"$tmp/out" ||
		fail "the clients failed ($1)"
	[ -z "$preload" ] || "$lib/../bin/cowshed" stat --json "$server" >"$tmp/stat" ||
		fail "the server has no counters ($1)"
	cli shutdown nosave >/dev/null 2>&1
	wait $measure || fail "redis-server ended with $? ($1)"
	server=
	take "$1"
}

take() { # SIDE: keeps the figures of a server
	[ ! -s "$tmp/stat" ] || sed -n 's/.*"heal_wait_ns_max": *\([0-9]*\).*/\1/p' \
		"$tmp/stat" | awk '{ print $1 / 1000 }' | note "$1" wait
	field fork_us <"$tmp/out" >"$tmp/forks"
	head -n 1 "$tmp/forks" | note "$1" first
	sed 1d "$tmp/forks" | note "$1" later
	sed 1d "$tmp/forks" >>"$tmp/of/$1.each"
	cat "$tmp/measured" >>"$tmp/out"
	keep "$1"
	rm -f "$tmp"/*.rdb
}

warm 6G
sides=${BENCH_SIDES:-plain shim jemalloc-thp}
in_turns "$sides" once
row later us later - ours 1000
row later/each us each - worst 1000
# A library without this counter has no such figure.
[ ! -s "$tmp/of/shim.wait" ] || row wait-for-a-slice us wait - worst 1000
[ "$sides" != shim ] || sides=- # bench/pairs.sh leaves out the rivals
for side in $sides; do
	[ $side != shim ] || continue
	# The figure, its name in the report, its unit, and the bar against the plain server, then
	# the one against huge pages.
	while read -r figure name unit on bar on_thp bar_thp; do
		case $side in
		-) row "$name" "$unit" $figure - - 0 ;;
		plain) row "$name/plain" "$unit" $figure plain $on "$bar" ;;
		*) row "$name/thp" "$unit" $figure $side $on_thp "$bar_thp" ;;
		esac
	done <<'END'
first first us speedup 10 faster 0
later later us speedup 30 speedup 10
before_us request-before us faster 0 faster 0
saving_us request-while-saving us speedup 0.98 faster 0
after_us request-after us speedup 0.98 faster 0
between_us 99.9%-between us ratio 1 - 0
between_worst_us worst-between us - 0 - 0
during_us 99.9%-while-saving us - 0 - 0
during_worst_us worst-while-saving us - 0 - 0
save_ms save ms faster 0 faster 0
peak_mib peak MiB ratio 1.05 - 0
END
done
