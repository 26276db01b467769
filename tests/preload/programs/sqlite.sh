#!/bin/bash
# SPDX-License-Identifier: MIT
#
# sqlite3's shell on a database of some 100 MB: in memory, in a file, in a file
# that is mapped, with a log that processes share, and dumped.
. "$(dirname "$0")/lib.sh"

cat >"$work/make.sql" <<'EOF'
PRAGMA cache_size = -200000;
CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT, town INT, note BLOB);
CREATE TABLE town (id INTEGER PRIMARY KEY, name TEXT);
WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 1000)
	INSERT INTO town SELECT n, hex(n * 7919) || 'ville' FROM c;
BEGIN;
WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 300000)
	INSERT INTO person SELECT n, hex(n * 104729 % 1000003), n * 31 % 1000,
	CASE WHEN n % 5000 = 0 THEN zeroblob(100000 + n)
		ELSE hex(n) || printf('%.*c', n % 150, 'x') END FROM c;
COMMIT;
CREATE INDEX by_name ON person (name);
CREATE INDEX by_town ON person (town, name);
ANALYZE;
EOF
cat >"$work/ask.sql" <<'EOF'
SELECT count(*), sum(length(note)), max(name) FROM person;
SELECT t.name, count(*), min(p.name) FROM person p JOIN town t ON t.id = p.town
	GROUP BY t.name ORDER BY 2 DESC, 1 LIMIT 30;
SELECT id, substr(note, 1, 20) FROM person ORDER BY note, id LIMIT 20;
SELECT id, rank() OVER (PARTITION BY town ORDER BY name) AS r FROM person
	ORDER BY r DESC, id LIMIT 20;
SELECT length(group_concat(name)) FROM person;
BEGIN;
UPDATE person SET note = note || name WHERE id % 7 = 0;
SELECT sum(length(note)) FROM person;
ROLLBACK;
DELETE FROM person WHERE id % 3 = 0;
SELECT sum(length(note)), count(DISTINCT name) FROM person;
VACUUM;
PRAGMA integrity_check;
PRAGMA page_count;
EOF
cat "$work/make.sql" "$work/ask.sql" >"$work/all.sql"

ask() { compare_if sqlite3 "sqlite3 $1" bash -c "$2" sqlite "$work"; }
ask 'in memory' 'sqlite3 :memory: ".read $1/all.sql"'
ask 'in a file' 'rm -f "$1/db"; sqlite3 "$1/db" ".read $1/all.sql" && cksum <"$1/db"'
ask 'in a mapped file' 'rm -f "$1/db"
	sqlite3 "$1/db" "PRAGMA mmap_size = 1000000000" ".read $1/all.sql"'
ask 'with a shared log' 'rm -f "$1/db"*; sqlite3 "$1/db" "PRAGMA journal_mode = WAL" \
	".read $1/make.sql"
	for i in 1 2; do sqlite3 -cmd ".timeout 60000" "$1/db" "SELECT sum(length(note))
		FROM person WHERE id % 2 = $((i % 2))" >"$1/part$i" & done
	sqlite3 -cmd ".timeout 60000" "$1/db" "UPDATE town SET name = name || 1" &
	wait; cat "$1/part1" "$1/part2"; sqlite3 "$1/db" "PRAGMA integrity_check" \
		"SELECT max(name) FROM town"'
ask 'dumped' 'rm -f "$1/db"; sqlite3 "$1/db" ".read $1/make.sql"
	sqlite3 "$1/db" .dump | tee >(cksum >&2) | sqlite3 :memory: ".read /dev/stdin" \
		"SELECT count(*), sum(length(note)) FROM person"'
finish
