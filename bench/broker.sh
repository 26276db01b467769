#!/bin/bash
# SPDX-License-Identifier: MIT
#
# broker.sh: 64 clients that register, fetch and drop, by rings and by epoll
set -u
BUILD=${BUILD:-build/plain}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

for how in '' --epoll; do
	rm -f "$work/log"
	"$BUILD/bin/cowshed" broker --socket "$work/b" -v $how >"$work/log" &
	pid=$!
	for ((i = 0; i < 500; i++)); do
		[ ! -s "$work/log" ] || break
		read -rt 0.01 <> <(:) || :
	done
	printf '%-9s ' "$(sed -n 's/.* by //p' "$work/log")"
	timeout 60 "$BUILD/bench/broker" "$work/b" 64 "${SECONDS_EACH:-5}" "$pid"
	kill "$pid"
	wait "$pid"
done
