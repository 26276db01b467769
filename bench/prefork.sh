#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Servers that fork their workers: gunicorn, uwsgi, postgres, a Python Pool
#
#      bench/prefork.sh [gunicorn] [uwsgi] [uwsgi_woken] [postgres] [pool]
#
# Unmodified programs run by themselves (plain) and under the shim with mmap=1M, in turns:
#
#   gunicorn  a Python application with 2 GiB of state, loaded before the fork (--preload);
#             8 workers, each replaced after 100 requests; 8 clients (prefork_app.py)
#   uwsgi     the same application and clients. Its master looks for ended workers once a
#             second, if nothing wakes it
#   uwsgi_woken  the same, and the end of a worker wakes the master
#   postgres  shared_buffers of 1 GiB, pgbench with a new connection for each transaction,
#             so one fork each: pgbench -C -S, then -C alone (TPC-B)
#   pool      multiprocessing.Pool with maxtasksperchild=1 over a NumPy array of 2 GiB
#
# bench/preload_forks.c, preloaded on both sides, times each fork() in the parent.
# Bars: nothing is slower than the plain program. The requests, transactions and tasks
# must be at least 0.98 times as fast, as those of redis.sh. The 99th percentile of a
# client's wait and the median fork must not be above the plain program's. The number of
# forks and the peak of the cgroup have no bar; the peak is without pages of files.
# A program that is not installed is skipped. A run takes five minutes. PREFORK_SECONDS
# is how long each program works (4), PREFORK_BYTES the size of the state and the array.
. "$(dirname "$0")/common.sh"
noter=$bin/preload_forks.so
need "$bin/plain_measure" "$bin/plain_http" "$noter" "$shim"

turns=${BENCH_ROUNDS:-3} seconds=${PREFORK_SECONDS:-4} bytes=${PREFORK_BYTES:-2147483648}
if quick; then
	turns=${BENCH_ROUNDS:-1} seconds=${PREFORK_SECONDS:-1} bytes=${PREFORK_BYTES:-268435456}
fi
export PREFORK_BYTES="$bytes" FORKS_TO="$tmp/forks"
job='' user=
chmod 755 "$tmp"

children() {
	cat "/proc/$1/task/$1/children" 2>/dev/null | tr ' ' '\n'
}

# stop [SIGNAL]: ends the program of plain_measure, and waits for it.
stop() {
	server=$(children "$job")
	workers=$(children "$server")
	kill -"${1:-INT}" $server 2>/dev/null
	[ "${1:-INT}" = INT ] || kill -"$1" $workers 2>/dev/null
	wait "$job"
	stopped=$?
	job=
	return $stopped
}
cleanup_also='[ -z "$job" ] || stop KILL'

# start PART SIDE PROGRAM...: runs a program under plain_measure in the background
start() {
	part=$1 side=$2 preload=$noter
	[ "$side" = plain ] || preload=$noter:$shim
	shift 2
	rm -f "$tmp/result" "$tmp/socket"
	: >"$tmp/forks"
	chmod 666 "$tmp/forks"
	COWSHED_OPTIONS=mmap=1M${BENCH_OPTIONS:+,$BENCH_OPTIONS} "$bin/plain_measure" -a -o "$tmp/result" -p "$preload" -- \
		"$@" >"$tmp/log" 2>&1 &
	job=$!
}

# until_up COMMAND...: waits until the command succeeds
until_up() {
	until "$@" >/dev/null 2>&1; do
		kill -0 "$job" 2>/dev/null || broken 'did not start'
		sleep 0.1
	done
}

broken() {
	tail -n 20 "$tmp/log" >&2
	fail "$part $* ($side)"
}

# note NAME VALUE: appends a figure of the running part and side
note() {
	[ -z "$2" ] || echo "$2" >>"$tmp/$part.$side.$1"
}

# finish: appends the figures that all parts have, after the program has ended
finish() {
	note fork "$(median "$tmp/forks")"
	note fork-99% "$(sort -g "$tmp/forks" | awk '{ v[NR] = $1 } END {
		if (NR) print v[int((NR - 1) * 0.99) + 1] }')"
	note forks "$(wc -l <"$tmp/forks")"
	note peak "$(field peak_kib <"$tmp/result" | awk '{ print $1 / 1024 }')"
	field peak_by <"$tmp/result" >>"$tmp/$part.by"
}

# line FIGURE UNIT ON BAR [BY]
line() {
	report prefork "$part/$1" "$2" "$tmp/$part.shim.$1" "$tmp/$part.plain.$1" \
		"$3" "$4" "${5:-}"
}

# lines_of_all: the figures that all parts have
lines_of_all() {
	line fork us ratio 1
	line fork-99% us - 0
	line forks forks - 0
	line peak MiB - 0 "$(peak_by "$tmp/$part.by")"
}

. "$here/prefork_web.sh"
. "$here/prefork_parts.sh"

[ $# -gt 0 ] || set -- gunicorn uwsgi uwsgi_woken postgres pool
"$bin/plain_measure" -w 3G
for name in "$@"; do
	case $name in gunicorn | uwsgi | uwsgi_woken | postgres | pool) ;; *) fail "there is no part $name" ;; esac
	lacks=$("${name}_lacks")
	[ -z "$lacks" ] || {
		echo "  prefork: $name skipped ($lacks)"
		continue
	}
	turn=0
	while [ $turn -lt "$turns" ]; do
		for on_side in plain shim; do
			wanted $on_side || continue
			"${name}_run" $on_side
		done
		turn=$((turn + 1))
	done
	"${name}_lines"
done
