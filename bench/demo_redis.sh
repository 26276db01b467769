# SPDX-License-Identifier: MIT
#
# redis-server that saves while clients overwrite (sourced by demo.sh)
#
# redis_missing prints why this can't run, or nothing. redis_part SIDE MIB appends the
# figures of one server to $tmp/redis.SIDE.*. Its allocator is jemalloc, which maps memory
# itself, so the shim gets mmap=1M. The file that it saves is in $tmp.

saves=4

# Debian's package redis-server starts a server of the system when it is installed. The
# package redis-tools has the same program under the name redis-check-rdb.
redis_missing() {
	for redis_program in redis-cli redis-benchmark; do
		have $redis_program || { echo "no $redis_program (Debian: redis-tools)"; return; }
	done
	have redis-server || have redis-check-rdb &&
		ln -sf "$(command -v redis-server || command -v redis-check-rdb)" "$tmp/redis-server"
	"$tmp/redis-server" --version 2>/dev/null | grep -q '^Redis server' ||
		echo 'no redis-server (Debian: redis-tools or redis-server)'
}

cli() {
	redis-cli -s "$tmp/socket" "$@"
}

info() { # SECTION FIELD
	cli info "$1" | tr -d '\r' | sed -n "s/^$2://p"
}

# Values of 1000 bytes under the names that redis-benchmark -r writes to.
redis_load() { # FIRST LAST
	cli eval "for i = $1, $2 do
		redis.call('SET', string.format('key:%012d', i), ARGV[1]) end" \
		0 "$redis_value" >/dev/null
}

redis_part() { # SIDE MIB
	redis_keys=$(($2 * 1000)) # values of 1000 bytes
	redis_value=$(printf '%01000d' 0)
	redis_shim=
	[ "$1" = plain ] || redis_shim=$shim
	start "$redis_shim" COWSHED_OPTIONS=mmap=1M "$tmp/redis-server" --port 0 --unixsocket "$tmp/socket" \
		--save '' --dir "$tmp" --rdbcompression no --loglevel warning
	until cli ping >/dev/null 2>&1; do
		kill -0 "$job" 2>/dev/null || return 1
		sleep 0.05
	done
	at=0
	while [ $at -lt $redis_keys ]; do
		to=$((at + 50000 < redis_keys ? at + 50000 : redis_keys))
		redis_load $at $((to - 1)) || return 1
		at=$to
	done
	save=1
	while [ $save -le $saves ]; do
		redis_save "$1" || return 1
		save=$((save + 1))
	done
	cli shutdown nosave >/dev/null 2>&1
	finish redis "$1" || return 1
	rm -f "$tmp"/*.rdb
}

redis_save() { # SIDE
	cli bgsave >/dev/null || return 1
	redis-benchmark -s "$tmp/socket" --csv -t set -d 1000 -r "$redis_keys" \
		-n $((redis_keys / 4)) -P 16 -c 4 >"$tmp/csv" || return 1
	while [ "$(info persistence rdb_bgsave_in_progress)" = 1 ]; do
		sleep 0.05
	done
	[ "$(info persistence rdb_last_bgsave_status | head -n 1)" = ok ] || return 1
	[ $save = 1 ] && which=first || which=later
	info stats latest_fork_usec >>"$tmp/redis.$1.$which"
	# "SET","requests a second", and from version 7 on more, with the longest wait at the end
	tail -n 1 "$tmp/csv" | tr -d '"' | awk -F, '{ print $2 }' >>"$tmp/redis.$1.rate"
	tail -n 1 "$tmp/csv" | tr -d '"' | awk -F, 'NF > 2 { print $NF }' >>"$tmp/redis.$1.wait"
	# Servers save once a minute or less. Here the clients go on for about a second.
	redis-benchmark -s "$tmp/socket" --csv -t set -d 1000 -r "$redis_keys" \
		-n $((redis_keys / 4)) -P 16 -c 4 >/dev/null
}
