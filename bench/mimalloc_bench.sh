#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The programs of mimalloc-bench with and without the shim
#
#      MIMALLOC_BENCH=FOLDER bench/mimalloc_bench.sh [NAME...]
#
# FOLDER is a checkout of https://github.com/daanx/mimalloc-bench. Its sources are compiled
# into build/mimalloc-bench, with the flags of its CMakeLists.txt. sh6bench and sh8bench
# are only built if their sources, which others distribute, were put there. redis, gs, z3,
# rbstress and rocksdb (db_bench) need what Debian's packages install. Not among them: lean,
# lua and linux, which are compilers and compilations, and SPEC.
#
# Both sides run in turns, each after a program that wrote 1 GiB. Where a program runs for a
# given time, the figure is the time of an operation. Bars: at most 1.05 of glibc's time,
# peak of a memory cgroup at most 1.1 of glibc's. A program that can't be built or run here
# has no line; a sentence says why.
. "$(dirname "$0")/common.sh"
need "$bin/plain_measure" "$shim"

source=${MIMALLOC_BENCH:-}
[ -n "$source" ] || fail 'MIMALLOC_BENCH names no checkout of mimalloc-bench'
case $source in /*) ;; *) source=$(pwd)/$source ;; esac
[ -e "$source/bench/mstress/mstress.c" ] || fail "$source is no checkout of mimalloc-bench"
made=$(dirname "$build")/mimalloc-bench
mkdir -p "$made" || exit 1

turns_of 5 2
seconds=2
quick && seconds=1
threads=2
all='cfrac espresso barnes gs z3 redis rocksdb rbstress larson larson-sized mstress rptest'
all="$all alloc-test1 alloc-testN sh6bench sh8bench xmalloc-test cache-scratch1 cache-scratchN"
all="$all cache-thrash1 cache-thrashN glibc-simple glibc-thread malloc-large"
all="$all mleak10 mleak100"

quiet='-O3 -DNDEBUG -w -Wno-implicit-function-declaration -Wno-implicit-int -Wno-int-conversion'
c="${CC:-gcc} $quiet" cxx="${CXX:-g++} -std=gnu++17 -O3 -DNDEBUG -w"

# compile NAME COMMAND: unless it is there. Its messages go to NAME.log.
compile() {
	[ -x "$made/$1" ] || (cd "$source/bench" && eval "$2 -o '$made/$1.part'" &&
		mv "$made/$1.part" "$made/$1") >"$made/$1.log" 2>&1
}

# build_program NAME: builds what a program of the list needs
build_program() {
	case $1 in
	cfrac) compile cfrac "$c -std=gnu89 -DNOMEMOPT=1 \$(ls cfrac/*.c |
		grep -v -e getopt -e pfactor) -lm" ;;
	espresso) compile espresso "$c -std=gnu89 espresso/*.c -lm" ;;
	barnes) compile barnes "$c -std=gnu89 barnes/*.c -lm" ;;
	larson) compile larson "$cxx -DCPP=1 larson/larson.cpp -pthread" ;;
	larson-sized) compile larson-sized \
		"$cxx -DCPP=1 -DSIZED=1 -fsized-deallocation larson/larson.cpp -pthread" ;;
	alloc-test*) compile alloc-test "$cxx -DBENCH=4 alloc-test/*.cpp -pthread" ;;
	sh[68]bench) compile "$1" "$c -DBENCH=1 -DSYS_MULTI_THREAD=1 shbench/$1-new.c -pthread" ;;
	cache-*) compile "${1%[1N]}" "$cxx ${1%[1N]}/${1%[1N]}.cpp -pthread" ;;
	malloc-large) compile "$1" "$cxx $1/$1.cpp -pthread" ;;
	mleak*) compile mleak "$c mleak/mleak.c -pthread" ;;
	xmalloc-test | mstress) compile "$1" "$c $1/$1.c -pthread" ;;
	rptest) compile rptest "$c -Irptest rptest/*.c -pthread -lm" ;;
	glibc-*) compile "$1" "$c glibc-bench/bench-malloc-${1#glibc-}.c -pthread" ;;
	gs) have gs && large_pdf ;;
	redis) have redis-server && have redis-benchmark ;;
	rocksdb) have db_bench ;;
	rbstress) have ruby ;;
	*) have "$1" ;;
	esac
}

# A document for gs: pages with text and curves. The checkout has none.
large_pdf() {
	[ -e "$made/large.pdf" ] && return
	awk 'BEGIN {
		print "%!\n/Helvetica findfont 9 scalefont setfont"
		for (page = 0; page < 400; page++) {
			for (line = 0; line < 60; line++)
				printf "40 %d moveto (%d: line %d of page %d) show\n", \
				    40 + 12 * line, line * page, line, page
			for (curve = 0; curve < 100; curve++)
				printf "%d %d moveto %d %d %d %d %d %d curveto stroke\n", \
				    curve, page, 3 * curve, 5 * curve, 500 - curve, \
				    page, 500, 7 * curve
			print "showpage"
		}
	}' >"$tmp/large.ps"
	gs -q -dBATCH -dNOPAUSE -sDEVICE=pdfwrite -o "$made/large.pdf" "$tmp/large.ps"
}

# command_of NAME: what runs, in $made
command_of() {
	case $1 in
	cfrac) echo './cfrac 17545186520507317056371138836327483792789528' ;;
	espresso) echo "./espresso '$source/bench/espresso/largest.espresso'" ;;
	barnes) echo "./barnes <'$source/bench/barnes/input'" ;;
	gs) echo 'gs -dBATCH -dNODISPLAY -dNOPAUSE large.pdf' ;;
	z3) echo "z3 -smt2 '$source/bench/z3/test1.smt2'" ;;
	rbstress) echo "ruby '$source/bench/rbstress/stress_mem.rb' $threads" ;;
	rocksdb) echo "db_bench --benchmarks=fillrandom --num=500000 --db='$tmp/db'" ;;
	redis) echo "exec redis-server --port 0 --unixsocket '$tmp/socket' --save '' --dir '$tmp'" ;;
	larson*) echo "./$1 $seconds 8 1000 5000 100 4141 $threads" ;;
	mstress) echo "./mstress $threads 50 100" ;;
	rptest) echo "./rptest $threads 0 1 2 500 1000 100 8 16000" ;;
	alloc-test1) echo './alloc-test 1' ;;
	alloc-testN) echo "./alloc-test $threads" ;;
	sh[68]bench) echo "./$1 $((2 * threads))" ;;
	xmalloc-test) echo "./xmalloc-test -w $threads -t $seconds -s 64" ;;
	cache-*1) echo "./${1%1} 1 1000 1 2000000 $threads" ;;
	cache-*N) echo "./${1%N} $threads 1000 1 2000000 $threads" ;;
	glibc-thread) echo "./glibc-thread $threads" ;;
	mleak10) echo './mleak 5' ;;
	mleak100) echo './mleak 50' ;;
	*) echo "./$1" ;;
	esac
}

# The figure of a program, from its output ($tmp/out) and the line of plain_measure
figure_of() {
	if [ "$(unit_of "$1")" = ms ]; then
		field wall_ms <"$tmp/line"
		return
	fi
	case $1 in
	larson*) sed -n 's/.*Throughput = *\([0-9.]*\) .*/\1/p' "$tmp/out" ;;
	rptest) sed -n 's/.*\.\.\.\([0-9]*\) memory ops.*/\1/p' "$tmp/out" ;;
	xmalloc-test) sed -n 's/.*free\/sec: \([0-9.]*\) M/\1e6/p' "$tmp/out" ;;
	glibc-thread) sed -n 's/\([0-9]*\) iterations/\1/p' "$tmp/out" |
		awk '{ print $1 / 2 }' ;;
	redis) tr '\r' '\n' <"$tmp/out" |
		sed -n 's/.*: \([0-9.]*\) requests per second.*/\1/p' | tail -n 1 ;;
	esac | awk '$1 > 0 { print 1e9 / $1 }'
}

unit_of() {
	case $1 in
	larson* | rptest | xmalloc-test | glibc-thread | redis) echo ns ;;
	*) echo ms ;;
	esac
}

redis_clients() {
	while ! redis-cli -s "$tmp/socket" ping >/dev/null 2>&1; do
		kill -0 $! 2>/dev/null || return
	done
	redis-benchmark -s "$tmp/socket" -r 1000000 -n 200000 -q -P 16 \
		lpush a 1 2 3 4 5 lrange a 1 5 >"$tmp/out"
	redis-cli -s "$tmp/socket" shutdown nosave
}

# run SIDE NAME: leaves $tmp/out and $tmp/line
run() {
	own=
	rm -rf "$tmp/db"
	[ "$2" != rocksdb ] || own=-a # without the pages of its files
	of_side "$1"
	"$bin/plain_measure" $own -o "$tmp/line" -p "$preload" -d "$made" -- \
		sh -c "$(command_of "$2")" >"$tmp/log" 2>&1 &
	[ "$2" != redis ] || redis_clients
	wait $! || return
	[ "$2" = redis ] || mv "$tmp/log" "$tmp/out"
}

once() { # SIDE NAME
	warm 1G
	run "$@" || fail "$2 failed ($1): $(tail -n 1 "$tmp/log" "$tmp/out" 2>/dev/null)"
	figure_of "$2" | note "$1" time
	cp "$tmp/line" "$tmp/out"
	keep "$1"
}

[ $# -gt 0 ] || set -- $all
for name in "$@"; do
	if ! build_program "$name"; then
		echo "  mimalloc_bench, $name: skipped: it can't be built here or is not installed"
	elif ! run glibc "$name"; then # once to read its files
		echo "  mimalloc_bench, $name: skipped: it fails without the shim"
	else
		in_turns 'glibc shim' once "$name"
		row "$name" "$(unit_of "$name")" time glibc ratio 1.05
		row "$name/peak" MiB peak_mib glibc ratio 1.1
	fi
done
