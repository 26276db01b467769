# SPDX-License-Identifier: MIT
#
# postgres and multiprocessing.Pool (sourced by prefork.sh; see prefork_web.sh)
#
# postgres does not run as root. Then it runs as the user postgres, who must be able to
# read the build.

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

postgres_start() { # SIDE
	start postgres "$1" $user "$postgres_bin/postgres" -D "$tmp/pg/data" -k "$tmp/pg" \
		-c listen_addresses= -c shared_buffers=1GB -c fsync=off -c autovacuum=off
	until_up pg psql -c 'select 1' postgres
}

# The data are made once, and by a server that has only the timer of forks.
postgres_make() {
	mkdir "$tmp/pg"
	[ -z "$user" ] || chown postgres "$tmp/pg"
	$user "$postgres_bin/initdb" -D "$tmp/pg/data" -A trust >"$tmp/log" 2>&1 ||
		fail "initdb failed: $(tail -n 3 "$tmp/log")"
	postgres_start plain
	pg pgbench -i -q -s 20 postgres >"$tmp/lines" 2>&1 ||
		broken 'took no data'
	stop || broken "ended with $?"
}

# bench_pg FIGURE OPTION...: the time of all clients together for one transaction
bench_pg() {
	figure=$1
	shift
	pg pgbench -n -C -c 8 -j 2 -T "$seconds" "$@" postgres >"$tmp/lines" 2>&1 ||
		broken 'was left by pgbench'
	note "$figure" "$(sed -n 's/^tps = \([0-9.]*\).*/\1/p' "$tmp/lines" |
		awk '$1 > 0 { print 1e6 / $1 }')"
	note connect "$(sed -n 's/^average connection time = \([0-9.]*\).*/\1/p' "$tmp/lines" |
		awk '{ print $1 * 1000 }')"
}

postgres_run() { # SIDE
	[ -d "$tmp/pg" ] || postgres_make
	postgres_start "$1"
	bench_pg select -S
	bench_pg tpcb
	stop || broken "ended with $?"
	finish
}

postgres_lines() {
	part=postgres
	line select us speedup 0.98
	line tpcb us speedup 0.98
	line connect us - 0
	lines_of_all
}

# The path of the program itself: a wrapper of pyenv is a shell script, and forks.
pool_lacks() {
	[ -n "$(python_with numpy)" ] || echo 'no NumPy'
}

pool_run() { # SIDE
	pool_python=$("$(python_with numpy)" -c 'import sys; print(sys.executable)')
	start pool "$1" "$pool_python" "$here/prefork_pool.py" "$bytes" "$seconds"
	wait "$job" || { job=; broken "ended with $?"; }
	job=
	note task "$(field task_us <"$tmp/log")"
	finish
}

pool_lines() {
	part=pool
	line task us speedup 0.98
	lines_of_all
}
