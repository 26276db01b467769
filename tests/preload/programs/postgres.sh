#!/bin/bash
# SPDX-License-Identifier: MIT
#
# PostgreSQL: initdb, a server that forks a process for each connection and for
# parallel work, pgbench, large sorts and joins, a crash and its recovery.
. "$(dirname "$0")/../lib.sh"
limit=300
PATH=$PATH:$(echo /usr/lib/postgresql/*/bin | tr ' ' :)

for program in initdb postgres pgbench psql; do
	command -v $program >/dev/null ||
		{ skip "postgres no $program here" && finish; }
done

# The server refuses to be root's; its user must reach the shim and the data.
user=
if [ "$(id -u)" -eq 0 ]; then
	id postgres >/dev/null 2>&1 || { skip 'postgres no such user' && finish; }
	user='runuser -u postgres --'
	cp -L "$BUILD"/lib/*.so* "$work"
	preload=$work/libcowshed-preload.so
	chmod -R a+rX "$work"
	chmod a+rwx "$work"
fi

query() { $user psql -h "$data" -U postgres -XAtq -c "$1" postgres; }
answers() { query 'SELECT 1'; }

server() {
	"$@" $user postgres -D "$data" -k "$data" -c listen_addresses= \
		-c fsync=off -c shared_buffers=96MB -c huge_pages=try \
		-c work_mem=48MB -c maintenance_work_mem=64MB \
		-c max_parallel_workers_per_gather=2 -c jit=off \
		-c min_parallel_table_scan_size=0 -c parallel_setup_cost=0 \
		>>"$work/story/log" 2>&1 &
	pid=$!
	until_true answers
}

large='SELECT count(*), sum(length(s)), md5(string_agg(s, $$,$$ ORDER BY s)) FROM
	(SELECT repeat(md5(aid::text), 3) AS s FROM pgbench_accounts
	WHERE aid < 60000) t'
joined='SELECT count(*), sum(a.abalance), max(b.aid) FROM pgbench_accounts a
	JOIN pgbench_accounts b ON a.aid = b.aid + 1 AND a.filler = b.filler'
sorted='SELECT md5(array_agg(aid)::text) FROM (SELECT aid FROM pgbench_accounts
	ORDER BY md5(aid::text)) t'
sums='SELECT (SELECT sum(abalance) FROM pgbench_accounts),
	(SELECT sum(tbalance) FROM pgbench_tellers),
	(SELECT sum(bbalance) FROM pgbench_branches),
	(SELECT count(*) || $$ $$ || sum(delta) FROM pgbench_history)'

story() {
	local data=$work/story/data pid
	[ -z "$user" ] || chmod a+rwx "$work/story"
	"$@" $user initdb -D "$data" -A trust -U postgres --no-sync \
		>"$work/story/initdb.log" 2>&1 || return 1
	server "$@" || return 1
	"$@" $user pgbench -h "$data" -U postgres -i -s 2 -q postgres \
		2>&1 | grep -c done
	"$@" $user pgbench -h "$data" -U postgres -c 6 -j 2 -t 150 \
		--random-seed=7 postgres 2>&1 | grep processed
	query "$sums"
	query "$large"
	query "$joined"
	query "$sorted"
	query 'CREATE INDEX i ON pgbench_accounts (md5(aid::text))'
	query 'VACUUM ANALYZE'
	# Immediately: as after a crash, the log has to be replayed.
	$user pg_ctl -D "$data" -m immediate stop >/dev/null
	wait "$pid"
	echo "exit status $?"
	server "$@" || return 1
	query "$sums"
	query "$large"
	$user pg_ctl -D "$data" -m fast stop >/dev/null
	wait "$pid"
	echo "exit status $?"
	grep -cE 'PANIC|terminated by signal' "$work/story/log"
	return 0
}

stories postgres
finish
