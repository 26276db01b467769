#!/bin/bash
# SPDX-License-Identifier: MIT
#
# redis-server: it forks to save while clients write. What BGSAVE and
# BGREWRITEAOF wrote must be the data of the moment of their fork, or lead to
# the data of the end: DEBUG DIGEST says so. Debian's is linked with jemalloc,
# which is then the next allocator.
. "$(dirname "$0")/../lib.sh"
limit=300

for program in redis-server redis-cli redis-benchmark; do
	command -v $program >/dev/null || { skip "redis no $program here" && finish; }
done

# Strings of all sizes, large ones, and structures; the argument shifts them.
commands() {
	awk -v seed="$1" 'function send(a, b, c, d,   n) {
		n = 3 + (d != "")
		printf "*%d\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", n,
			length(a), a, length(b), b, length(c), c
		if (n == 4) printf "$%d\r\n%s\r\n", length(d), d
	}
	BEGIN {
		x = "0123456789abcdef"
		while (length(x) < 6000000) x = x x
		for (i = seed; i < seed + 4000; i++) {
			send("SET", "key:" i % 5000, i ":" substr(x, 1, i % 900))
			send("HSET", "hash:" i % 50, "f" i, i * 7)
			send("RPUSH", "list:" i % 20, "item" i)
			send("ZADD", "set:" i % 10, i % 977, "m" i)
		}
		for (i = seed; i < seed + 40; i++) {
			send("SET", "large:" i, substr(x, 1, 100000 + i * 97))
			send("APPEND", "grown:" i % 7, substr(x, 1, 70000 + i))
		}
		for (i = 0; i < 3; i++)
			send("SETRANGE", "huge:" i, seed, substr(x, 1, 5000000))
	}'
}

cli() { redis-cli -s "$work/story/sock" "$@"; }
field() { cli INFO persistence | tr -d '\r' | sed -n "s/^$1://p"; }
field_is() { [ "$(field "$1")" = "$2" ]; }

# server FOLDER HOW...
server() {
	local folder=$1
	shift
	mkdir -p "$folder"
	"$@" redis-server --port 0 --unixsocket "$work/story/sock" --save '' \
		--dir "$folder" --enable-debug-command yes --appendfsync no \
		--rdb-key-save-delay 20 --activerehashing yes \
		--appendonly "$append" >>"$work/story/log" 2>&1 &
	pid=$!
	until_true cli PING && until_true field_is loading 0
}

leave() {
	cli SHUTDOWN NOSAVE
	wait "$pid" || echo "exit status $?"
}

story() {
	local data=$work/story/data append=yes pid digest benchmark
	server "$data" "$@" || return 1
	commands 0 | cli --pipe | tail -n 1
	cli CONFIG SET appendonly no

	# Saved while it is written to, by many clients and by one.
	digest=$(cli DEBUG DIGEST)
	echo "before the fork: $digest"
	cli BGSAVE
	redis-benchmark -s "$work/story/sock" --dbnum 1 -q -n 8000 -r 500 \
		-d 5000 -t set,lpush,hset >/dev/null 2>&1 &
	benchmark=$!
	commands 1000 | cli --pipe | tail -n 1
	wait $benchmark
	cli -n 1 FLUSHDB
	until_true field_is rdb_bgsave_in_progress 0
	field rdb_last_bgsave_status
	mkdir "$work/story/saved" && cp "$data/dump.rdb" "$work/story/saved"

	# A log that is begun by a fork and goes on with what is written.
	cli CONFIG SET appendonly yes
	commands 2000 | cli --pipe | tail -n 1
	until_true field_is aof_rewrite_in_progress 0
	until_true field_is aof_rewrite_scheduled 0
	cli BGREWRITEAOF
	commands 3000 | cli --pipe | tail -n 1
	until_true field_is aof_rewrite_in_progress 0
	field aof_last_bgrewrite_status
	cli DBSIZE
	echo "at the end: $(cli DEBUG DIGEST)"
	leave

	server "$data" "$@" || return 1
	echo "from the log: $(cli DEBUG DIGEST)"
	leave
	append=no
	server "$work/story/saved" "$@" || return 1
	echo "from the snapshot: $(cli DEBUG DIGEST)"
	[ "$(cli DEBUG DIGEST)" = "$digest" ] || echo 'that is another one'
	leave
}

stories redis
finish
