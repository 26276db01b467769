#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The stress programs of other allocators, on malloc() as it is: mimalloc's, compiled for that; and
# jemalloc's tests of its integration, which call jemalloc, with the shim before it.
. tests/outside/lib.sh
command -v cc >/dev/null || skip 'there is no compiler'
limit=300
if tree=$(scripts/source.sh bookworm mimalloc); then
	cc -O2 -DNDEBUG -DUSE_STD_MALLOC -I"$tree/include" -o "$work/stress" \
		"$tree/test/test-stress.c" -lpthread 2>"$work/build.log" ||
		echo "skip outside/allocators: mimalloc's stress: $(head -n 1 "$work/build.log")"
	for threads in 1 4 16; do
		[ ! -x "$work/stress" ] || compare "mimalloc: test-stress, $threads threads" \
			"$work/stress" "$threads" 50 "$([ -n "$quick" ] && echo 10 || echo 50)"
	done
fi
if ! command -v autoconf >/dev/null; then
	echo 'skip outside/allocators: jemalloc: there is no autoconf'
elif tree=$(scripts/source.sh bookworm jemalloc); then
	[ -f "$tree/built" ] || (cd "$tree" && { [ -x configure ] || autoconf; } &&
		./configure --disable-cxx --with-jemalloc-prefix= --enable-debug && make -j2 build_lib_shared \
		tests_integration && touch built) >"$work/build.log" 2>&1 ||
		echo "skip outside/allocators: jemalloc: $(tail -n 1 "$work/build.log")"
	export LD_LIBRARY_PATH=$tree/lib
	for program in "$tree"/test/integration/*[!.]; do
		[ ! -x "$program" ] || [ -d "$program" ] || [[ $program == *.* ]] ||
			compare "jemalloc: $(basename "$program")" "$program"
	done
fi
finish
