#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Programs under cowshed, glibc, jemalloc, mimalloc and tcmalloc, and under glibc and
# jemalloc with huge pages
#
#      bench/programs.sh [large|small...]
#
# large: the programs of bench/large.py, sort and xz. Each runs under every allocator in
# turns, under glibc and jemalloc also with huge pages (hugetlb=1, thp:always). Measured
# are wall time, processor time (no bar) and the peak of a fresh memory cgroup. Bars: 1.3 times faster than glibc
# in the geometric mean; not slower than the best rival in that mean; no program below
# 0.97 of glibc's speed; peaks at most 1.05 times glibc's.
# small: programs with small objects, in pairs of runs with and without the shim. The
# order within the pairs changes. Bars: within 2 %, with 95 % confidence; peaks at most
# 1.05 times glibc's. (bench/instructions.sh counts the instructions of these programs.)
#
# LARGE_ONLY and SMALL_ONLY name some programs. LARGE_SCALE is the scale of
# bench/large.py. RIVALS names some of the other allocators, or none ('').
. "$(dirname "$0")/common.sh"
. "$here/programs_inputs.sh"
need "$bin/plain_measure" "$shim"

large='temporaries arithmetic copies sorts transforms joins groups images'
large="$large audio training inference sort xz"
rounds=${BENCH_ROUNDS:-4} pairs=${BENCH_PAIRS:-20}
scale=${LARGE_SCALE:-1} text=160 rows=60000
if quick; then
	rounds=${BENCH_ROUNDS:-2} pairs=${BENCH_PAIRS:-4}
	scale=${LARGE_SCALE:-0.25} text=40 rows=20000
fi
mkdir "$tmp/in" || exit 1
programs_prepare "$tmp/in" $text 0 $rows
export OPENBLAS_NUM_THREADS=2 OMP_NUM_THREADS=2 PYTHONHASHSEED=0

# preload SIDE: the library that goes into LD_PRELOAD
preload() {
	case $1 in
	cowshed) echo "$shim" ;;
	jemalloc | jemalloc-thp) library jemalloc ;;
	mimalloc) library mimalloc ;;
	tcmalloc) library tcmalloc_minimal ;;
	esac
}

# settings SIDE: a variable for the environment
settings() {
	case $1 in
	glibc-huge) echo GLIBC_TUNABLES=$huge_pages ;;
	jemalloc-thp) echo MALLOC_CONF=thp:always ;;
	esac
}

sides='glibc cowshed'
for side in ${RIVALS-glibc-huge jemalloc jemalloc-thp mimalloc tcmalloc}; do
	if [ "$side" = glibc-huge ]; then
		sides="$sides $side"
	elif [ -n "$(preload $side)" ]; then
		sides="$sides $side"
	else
		echo "  programs: without $side, which is not installed"
	fi
done

# runs COMMAND: does it run here without any library preloaded? Keeps its output.
runs() {
	(cd "$tmp/in" && sh -c "$1" >"$tmp/expected") 2>/dev/null
}

# once NAME SIDE COMMAND: appends to $tmp/NAME.SIDE.{wall_ms,peak_kib,peak_by}
once() {
	"$bin/plain_measure" -w 1G >/dev/null # each side finds the same memory
	# shellcheck disable=SC2046
	env $(settings "$2") "$bin/plain_measure" -o "$tmp/result" \
		-p "$(preload "$2")" -d "$tmp/in" -- sh -c "$3" \
		>"$tmp/out" 2>"$tmp/err" ||
		fail "$1 failed under $2: $(tail -n 1 "$tmp/err")"
	cmp -s "$tmp/out" "$tmp/expected" ||
		fail "$1 has another output under $2"
	for figure in wall_ms cpu_ms peak_kib peak_by; do
		field $figure <"$tmp/result" >>"$tmp/$1.$2.$figure"
	done
}

# mean FILE-SUFFIX SIDE NAME...: the geometric mean of SIDE's figures to glibc's
mean() {
	mean_of=$1 mean_side=$2
	shift 2
	for name in "$@"; do
		echo "$(median "$tmp/$name.$mean_side.$mean_of")" \
			"$(median "$tmp/$name.glibc.$mean_of")"
	done | awk '{ s += log($1 / $2) } END { print exp(s / NR) }'
}

large_suite() {
	done_names=
	for name in ${LARGE_ONLY:-$large}; do
		command=$(large_command "$name")
		if ! runs "$command"; then
			echo "  programs, $name: it can't run here"
			report programs "large/$name" ms "$tmp/none" - speedup 0.97
			continue
		fi
		done_names="$done_names $name"
		turn=0 order=$sides
		while [ $turn -lt "$rounds" ]; do
			for side in $order; do
				once "$name" "$side" "$command"
			done
			order="${order#* } ${order%% *}"
			turn=$((turn + 1))
		done
		report programs "large/$name" ms "$tmp/$name.cowshed.wall_ms" \
			"$tmp/$name.glibc.wall_ms" speedup 0.97
		report programs "large/$name/cpu" ms "$tmp/$name.cowshed.cpu_ms" \
			"$tmp/$name.glibc.cpu_ms" - 0
		report programs "large/$name/peak" KiB \
			"$tmp/$name.cowshed.peak_kib" \
			"$tmp/$name.glibc.peak_kib" ratio 1.05 \
			"$(peak_by "$tmp/$name".*.peak_by)"
		for side in $sides; do
			case $side in glibc | cowshed) continue ;; esac
			report programs "large/$name/$side" ms \
				"$tmp/$name.cowshed.wall_ms" \
				"$tmp/$name.$side.wall_ms" faster 0
			report programs "large/$name/$side/peak" KiB \
				"$tmp/$name.cowshed.peak_kib" \
				"$tmp/$name.$side.peak_kib" - 0 \
				"$(peak_by "$tmp/$name".*.peak_by)"
		done
	done
	[ -n "$done_names" ] || fail 'no program could be run'
	# shellcheck disable=SC2086
	for side in $sides; do
		mean wall_ms "$side" $done_names >"$tmp/mean.$side"
		[ $side = glibc ] || report programs "large/mean/$side" \
			of-glibc "$tmp/mean.$side" - - 0
		[ $side = glibc ] || [ $side = cowshed ] ||
			cat "$tmp/mean.$side" >>"$tmp/mean.rivals"
	done
	report programs large/mean of-glibc "$tmp/mean.cowshed" \
		"$tmp/mean.glibc" speedup 1.3
	if [ -e "$tmp/mean.rivals" ]; then
		sort -g "$tmp/mean.rivals" | head -n 1 >"$tmp/mean.best"
		report programs large/mean/best-rival of-glibc \
			"$tmp/mean.cowshed" "$tmp/mean.best" ratio 1
	fi
	# shellcheck disable=SC2086
	mean peak_kib cowshed $done_names >"$tmp/mean.peak"
	report programs large/mean/peak of-glibc "$tmp/mean.peak" - ours 1.05 \
		"$(peak_by "$tmp"/*.peak_by)"
}

# pairs_bound WITH WITHOUT: the mean ratio of the pairs, and the upper end of its 95 %
# interval
pairs_bound() {
	paste "$1" "$2" | awk '{ d = log($1 / $2); s += d; q += d * d } END {
		m = s / NR
		v = NR > 1 ? (q - NR * m * m) / (NR - 1) : 0
		printf "%.4f %.4f\n", exp(m), exp(m + 2.1 * sqrt(v / NR))
	}'
}

small_suite() {
	for name in ${SMALL_ONLY:-$programs_small}; do
		why=$(program_missing "$name")
		command=$(program_command "$name" "$tmp/in")
		if [ -n "$why" ] || ! runs "$command"; then
			echo "  programs, $name: ${why:-it fails without the shim}"
			report programs "small/$name/95%" of-glibc "$tmp/none" - \
				ours 1.02
			continue
		fi
		turn=0
		while [ $turn -lt "$pairs" ]; do
			order='glibc cowshed'
			[ $((turn % 2)) = 0 ] || order='cowshed glibc'
			for side in $order; do
				once "small-$name" "$side" "$command"
			done
			turn=$((turn + 1))
		done
		# shellcheck disable=SC2046
		set -- $(pairs_bound "$tmp/small-$name.cowshed.wall_ms" \
			"$tmp/small-$name.glibc.wall_ms")
		echo "$1" >"$tmp/pairs.mean"
		echo "$2" >"$tmp/pairs.bound"
		report programs "small/$name" of-glibc "$tmp/pairs.mean" - - 0
		report programs "small/$name/95%" of-glibc \
			"$tmp/pairs.bound" - ours 1.02
		report programs "small/$name/peak" KiB \
			"$tmp/small-$name.cowshed.peak_kib" \
			"$tmp/small-$name.glibc.peak_kib" ratio 1.05
	done
}

"$bin/plain_measure" -w 4G
[ $# -gt 0 ] || set -- large small
for suite in "$@"; do
	case $suite in
	large | small) "${suite}_suite" ;;
	*) fail "there is no suite $suite" ;;
	esac
done
