#!/bin/bash
# SPDX-License-Identifier: MIT
#
# broker.sh: 64 clients register, fetch and drop storages
set -u
BUILD=${BUILD:-build/plain}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

"$BUILD/bin/cowshed" broker --socket "$work/b" -v >"$work/log" &
pid=$!
for ((i = 0; i < 500; i++)); do
	[ ! -s "$work/log" ] || break
	read -rt 0.01 <> <(:) || :
done
timeout 60 "$BUILD/bench/broker" "$work/b" 64 "${SECONDS_EACH:-5}" "$pid" | tee "$work/out"
status=${PIPESTATUS[0]}
# Prints a line as bench/common.h describes it.
if [ "$status" != 0 ] || ! grep -q 'clients: ' "$work/out"; then
	failed=1
	echo "bench=broker case=64-clients unit=operations/s ours=-" \
		"rival=- ratio=- bar=- on=- met=failed n=0"
else
	sed -nE "s|^.*clients: ([0-9]+) operations.*|bench=broker case=64-clients \
unit=operations/s ours=\1 rival=- ratio=- bar=- on=- met=- n=1|p" "$work/out"
fi
kill "$pid"
wait "$pid"
[ $failed = 0 ]
