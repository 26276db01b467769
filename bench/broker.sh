#!/bin/sh
# SPDX-License-Identifier: MIT
#
# broker.sh: 64 clients register, fetch and drop storages for five seconds (bench/broker.c)
. "$(dirname "$0")/common.sh"
need "$bin/broker" "$build/bin/cowshed"

"$build/bin/cowshed" broker --socket "$tmp/socket" -v >"$tmp/log" &
pid=$!
cleanup_also='kill $pid; wait $pid'
tries=0
until [ -s "$tmp/log" ] || [ $tries = 500 ]; do
	sleep 0.01
	tries=$((tries + 1))
done
timeout 60 "$bin/broker" "$tmp/socket" 64 5 $pid >"$tmp/out" || rm -f "$tmp/out"
[ ! -e "$tmp/out" ] || {
	echo "  broker: $(cat "$tmp/out")"
	field operations <"$tmp/out" >"$tmp/operations"
}
report broker 64-clients operations/s "$tmp/operations" - - 0
