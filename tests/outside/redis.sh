#!/bin/bash
# SPDX-License-Identifier: MIT
#
# redis' own tests on the redis-server that is installed. The tests are those of its source package.
. tests/outside/lib.sh
for tool in redis-server redis-cli redis-benchmark tclsh; do
	command -v $tool >/dev/null || skip "there is no $tool"
done
tree=$(sources bookworm redis) || exit 77
for tool in server cli benchmark check-rdb check-aof; do
	ln -sf "$(command -v redis-$tool)" "$tree/src/redis-$tool"
done
files='integration/rdb integration/aof unit/type/string unit/type/list unit/type/hash unit/expire
	unit/bitops'
[ -n "$quick" ] || files+=' integration/aof-multi-part integration/dismiss-mem
	integration/replication integration/replication-2 integration/replication-3
	integration/replication-4 integration/replication-buffer integration/replication-psync
	unit/memefficiency
	unit/aofrw unit/maxmemory unit/lazyfree integration/psync2 integration/block-repl
	integration/convert-ziplist-hash-on-load unit/dump unit/auth unit/protocol unit/keyspace
	unit/scan unit/info unit/type/incr unit/type/list-2 unit/type/list-3 unit/type/set
	unit/type/zset unit/type/stream unit/sort unit/multi unit/quit unit/introspection unit/limits
	unit/obuf-limits unit/geo unit/hyperloglog unit/scripting unit/tracking'
settings+=' mmap=1M'
[ -z "$quick" ] || settings=threshold=65536,mmap=65536
limit=600
# psync2 sets replicas up at random, as often as there is time.
sift() { sed 's/\x1b\[[0-9;]*m//g' "$1" | sed -nE 's/^\[(ok|err)\]: ([^(]*).*/\1 \2/p' |
	grep -vE '^ok PSYNC2: (Set|--- CYCLE)' | sort; }
cd "$tree" || exit 1
for file in $files; do
	compare "$file" ./runtest --clients 1 --single "$file"
done
finish
