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

turns_of 3 1
seconds=${PREFORK_SECONDS:-4} bytes=${PREFORK_BYTES:-2147483648}
quick && seconds=${PREFORK_SECONDS:-1} bytes=${PREFORK_BYTES:-268435456}
export PREFORK_BYTES="$bytes" FORKS_TO="$tmp/forks"
options=mmap=1M job='' user=
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

# start PROGRAM...: runs a program on $side under plain_measure in the background
start() {
	of_side "$side"
	rm -f "$tmp/measured" "$tmp/socket"
	: >"$tmp/forks"
	chmod 666 "$tmp/forks"
	env "$setting" "$bin/plain_measure" -a -o "$tmp/measured" \
		-p "$noter${preload:+:$preload}" -- "$@" >"$tmp/log" 2>&1 &
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

# finish: keeps the figures that all parts have, after the program has ended
finish() {
	note "$side" fork <"$tmp/forks"
	sort -g "$tmp/forks" | awk '{ v[NR] = $1 } END {
		if (NR) print v[int((NR - 1) * 0.99) + 1] }' | note "$side" fork-99%
	wc -l <"$tmp/forks" | note "$side" forks
	cp "$tmp/measured" "$tmp/out"
	keep "$side"
}

# line FIGURE UNIT ON BAR: under the name of the figure
line() {
	row "$part/$1" "$2" "$1" plain "$3" "$4"
}

# lines_of_all: the figures that all parts have
lines_of_all() {
	line fork us ratio 1
	line fork-99% us - 0
	line forks forks - 0
	row "$part/peak" MiB peak_mib plain - 0
}

. "$here/prefork_parts.sh"

[ $# -gt 0 ] || set -- gunicorn uwsgi uwsgi_woken postgres pool
warm 3G
for part in "$@"; do
	case $part in gunicorn | uwsgi | uwsgi_woken | postgres | pool) ;; *) fail "there is no part $part" ;; esac
	lacks=$("${part}_lacks")
	[ -z "$lacks" ] || {
		echo "  prefork: $part skipped ($lacks)"
		continue
	}
	in_turns 'plain shim' "${part}_run"
	"${part}_lines"
done
