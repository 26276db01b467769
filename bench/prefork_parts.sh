# SPDX-License-Identifier: MIT
#
# The programs of prefork.sh (sourced by it): gunicorn, uwsgi, postgres, multiprocessing.Pool
#
# For each part P: P_lacks prints what is missing, P_run runs it once on $side, P_lines
# reports its figures.

# ---- gunicorn and uwsgi with a large state -------------------------------------

gunicorn_lacks() {
	have gunicorn || echo 'no gunicorn'
}

uwsgi_lacks() {
	have uwsgi || { echo 'no uwsgi'; return; }
	uwsgi --plugin python3 --version 2>&1 | grep -q 'UNABLE to load' &&
		! uwsgi --plugins-list 2>&1 | grep -q python && echo 'no plugin python3 of uwsgi'
}

# --worker-tmp-dir: the heartbeat file of a worker must not be on a disk.
gunicorn_run() {
	start gunicorn --preload --workers 8 --max-requests 100 \
		--bind "unix:$tmp/socket" --worker-tmp-dir /dev/shm --log-level warning \
		--chdir "$here" prefork_app:application
	web_run
	stop || broken "ended with $?"
	finish
}

# By default uwsgi replaces no worker that is younger than a minute, and waits before it
# replaces one that lived for less than two seconds. A uwsgi that is told to end while it
# replaces workers may wait for ever for a new one, so it is killed.
uwsgi_run() {
	start uwsgi --plugin python3 --master --processes 8 --max-requests 100 \
		--min-worker-lifetime 0 --forkbomb-delay 0 --need-app --disable-logging \
		--http-socket "$tmp/socket" --chdir "$here" --module prefork_app
	web_run
	stop KILL
	[ $? = 137 ] || broken 'ended before its clients'
	finish
}

# The master of uwsgi looks for ended workers once a second. Slow forks keep it from sleeping, and
# so a plain uwsgi with a large state replaces more workers than one with a small state. Here a
# signal wakes it, on both sides.
uwsgi_woken_lacks() { uwsgi_lacks; }

uwsgi_woken_run() {
	export PREFORK_CHILD_WAKES=1
	uwsgi_run
	unset PREFORK_CHILD_WAKES
}

web_run() {
	until_up "$bin/plain_http" -s "$tmp/socket" -c 1 -t 0.01 -w 0
	"$bin/plain_http" -s "$tmp/socket" -t "$seconds" >"$tmp/lines" ||
		broken 'was left by its clients'
	field request_us <"$tmp/lines" | note "$side" request
	field p99_us <"$tmp/lines" | note "$side" request-99%
}

web_lines() {
	line request us speedup 0.98
	line request-99% us ratio 1
	lines_of_all
}
gunicorn_lines() { web_lines; }
uwsgi_lines() { web_lines; }
uwsgi_woken_lines() { web_lines; }

# ---- postgres: it does not run as root, but as a user who must be able to read the build ----

postgres_bin=$(find /usr/lib/postgresql /usr/pgsql* /usr/local/pgsql -name pgbench \
	-path '*/bin/*' 2>/dev/null | sort -V | tail -n 1)
postgres_bin=${postgres_bin%/pgbench}
[ -n "$postgres_bin" ] || ! have pgbench || postgres_bin=$(dirname "$(command -v pgbench)")
[ "$(id -u)" != 0 ] || user='setpriv --reuid=postgres --regid=postgres --clear-groups'

postgres_lacks() {
	[ -x "$postgres_bin/initdb" ] || { echo 'no postgres'; return; }
	[ -x "$postgres_bin/pgbench" ] || { echo 'no pgbench'; return; }
	[ -z "$user" ] || id postgres >/dev/null 2>&1 || { echo 'root, and no user postgres'; return; }
	$user test -r "$shim" || echo 'the user postgres may not read the build'
}

# pg PROGRAM...: as the user of the database
pg() {
	program=$1
	shift
	$user "$postgres_bin/$program" -h "$tmp/pg" "$@"
}

postgres_start() {
	start $user "$postgres_bin/postgres" -D "$tmp/pg/data" -k "$tmp/pg" \
		-c listen_addresses= -c shared_buffers=1GB -c fsync=off -c autovacuum=off
	until_up pg psql -c 'select 1' postgres
}

# The data are made once, in the first turn, by a server that has only the timer of forks.
postgres_make() {
	mkdir "$tmp/pg"
	[ -z "$user" ] || chown postgres "$tmp/pg"
	$user "$postgres_bin/initdb" -D "$tmp/pg/data" -A trust >"$tmp/log" 2>&1 ||
		fail "initdb failed: $(tail -n 3 "$tmp/log")"
	made_for=$side side=plain
	postgres_start
	pg pgbench -i -q -s 20 postgres >"$tmp/lines" 2>&1 ||
		broken 'took no data'
	stop || broken "ended with $?"
	side=$made_for
}

# bench_pg FIGURE OPTION...: the time of all clients together for one transaction
bench_pg() {
	figure=$1
	shift
	pg pgbench -n -C -c 8 -j 2 -T "$seconds" "$@" postgres >"$tmp/lines" 2>&1 ||
		broken 'was left by pgbench'
	sed -n 's/^tps = \([0-9.]*\).*/\1/p' "$tmp/lines" |
		awk '$1 > 0 { print 1e6 / $1 }' | note "$side" "$figure"
	sed -n 's/^average connection time = \([0-9.]*\).*/\1/p' "$tmp/lines" |
		awk '{ print $1 * 1000 }' | note "$side" connect
}

postgres_run() {
	[ -d "$tmp/pg" ] || postgres_make
	postgres_start
	bench_pg select -S
	bench_pg tpcb
	stop || broken "ended with $?"
	finish
}

postgres_lines() {
	line select us speedup 0.98
	line tpcb us speedup 0.98
	line connect us - 0
	lines_of_all
}

# ---- multiprocessing.Pool -------------------------------------------------------

pool_lacks() {
	[ -n "$(python_with numpy)" ] || echo 'no NumPy'
}

# The path of the program itself: a wrapper of pyenv is a shell script, and forks.
pool_run() {
	pool_python=$("$(python_with numpy)" -c 'import sys; print(sys.executable)')
	start "$pool_python" "$here/prefork_pool.py" "$bytes" "$seconds"
	wait "$job" || { job=; broken "ended with $?"; }
	job=
	field task_us <"$tmp/log" | note "$side" task
	finish
}

pool_lines() {
	line task us speedup 0.98
	lines_of_all
}
