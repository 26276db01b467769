#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Programs under cowshed, glibc, jemalloc, mimalloc and tcmalloc, and under glibc and
# jemalloc with huge pages
#
#      bench/programs.sh [large|small|forked...]
#
# large: the programs of bench/large.py, sort and xz. Each runs under every allocator in
# turns, under glibc and jemalloc also with huge pages (hugetlb=1, thp:always). Measured
# are wall time, processor time (no bar) and the peak of a fresh memory cgroup. Bars: 1.3 times faster than glibc
# in the geometric mean; not slower than the best rival in that mean; no program below
# 0.97 of glibc's speed; peaks at most 1.05 times glibc's.
# small: programs with small objects, in pairs of runs with and without the shim. The
# order within the pairs changes. Bars: within 2 %, with 95 % confidence; peaks at most
# 1.05 times glibc's. (bench/instructions.sh counts the instructions of these programs.)
# forked: a NumPy program that forks (bench/programs_forked.py), under glibc and with huge pages.
# Bar: its peak is at most 1.1 times glibc's.
#
# Every program must print the same on all sides, to the byte. LARGE_ONLY and SMALL_ONLY name
# some programs, RIVALS some of the other allocators, or none ('').
. "$(dirname "$0")/common.sh"
unset BENCH_SIDES # bars are ratios to glibc, which bench/pairs.sh needs as well
. "$here/programs_inputs.sh"
need "$bin/plain_measure" "$shim"

large='temporaries arithmetic copies sorts transforms joins groups images'
large="$large audio training inference sort xz"
turns_of 4 2
pairs=20 scale=1 text=160 array=400 rows=60000
quick && pairs=4 scale=0.25 text=40 array=80 rows=20000
mkdir "$tmp/in" || exit 1
programs_prepare "$tmp/in" $text $array $rows
export OPENBLAS_NUM_THREADS=2 OMP_NUM_THREADS=2 PYTHONHASHSEED=0

wished=${RIVALS-glibc-huge jemalloc jemalloc-thp mimalloc tcmalloc}
# shellcheck disable=SC2086
rivals=$(installed $wished)
for side in $wished; do
	echo "$rivals" | grep -qx -e "$side" || echo "  programs: without $side, which is not installed"
done

# runs COMMAND: does it run here without any library preloaded? Keeps its output.
runs() {
	(cd "$tmp/in" && sh -c "$1" >"$tmp/expected") 2>/dev/null
}

once() { # SIDE COMMAND
	of_side "$1"
	warm 1G
	env "$setting" PROGRAMS_PAUSE="$tmp/pause" "$bin/plain_measure" -o "$tmp/out" -p "$preload" \
		-d "$tmp/in" -- sh -c "$2" >"$tmp/printed" 2>"$tmp/err" ||
		fail "$name failed under $1: $(tail -n 1 "$tmp/err")"
	cmp -s "$tmp/printed" "$tmp/expected" || fail "$name has another output under $1"
	keep "$1"
	[ ! -s "$tmp/pause" ] || note "$1" pause <"$tmp/pause"
}

# against SIDE CASE: the rows of a rival without a bar
against() {
	row "$2/$1" ms wall_ms "$1" faster 0
	row "$2/$1/peak" KiB peak_kib "$1" - 0
}

# quotient SIDE FIGURE: SIDE's median to glibc's
quotient() {
	echo "$(median "$tmp/of/$1.$2") $(median "$tmp/of/glibc.$2")" | awk '{ print $1 / $2 }'
}

# mean FILE: the geometric mean of one number a line
mean() {
	awk '{ s += log($1) } END { print exp(s / NR) }' "$1"
}

large_suite() {
	for name in ${LARGE_ONLY:-$large}; do
		command=$(large_command "$name")
		if ! runs "$command"; then
			echo "  programs, $name: it can't run here"
			report programs "large/$name" ms "$tmp/none" - speedup 0.97
			continue
		fi
		in_turns "$(echo glibc shim $rivals)" once "$command"
		row "large/$name" ms wall_ms glibc speedup 0.97
		row "large/$name/cpu" ms cpu_ms glibc - 0
		row "large/$name/peak" KiB peak_kib glibc ratio 1.05
		for side in $rivals; do
			against "$side" "large/$name"
			quotient "$side" wall_ms >>"$tmp/wall.$side"
		done
		quotient shim wall_ms >>"$tmp/wall.shim"
		quotient shim peak_kib >>"$tmp/peaks"
		cat "$tmp/of/by" >>"$tmp/by"
	done
	[ -e "$tmp/peaks" ] || fail 'no program could be run'
	mean "$tmp/wall.shim" >"$tmp/mean"
	echo 1 >"$tmp/one"
	report programs large/mean/cowshed of-glibc "$tmp/mean" - - 0
	for side in $rivals; do
		mean "$tmp/wall.$side" >"$tmp/mean.$side"
		report programs "large/mean/$side" of-glibc "$tmp/mean.$side" - - 0
	done
	report programs large/mean of-glibc "$tmp/mean" "$tmp/one" speedup 1.3
	if [ -n "$rivals" ]; then
		sort -g "$tmp"/mean.* | head -n 1 >"$tmp/best"
		report programs large/mean/best-rival of-glibc "$tmp/mean" "$tmp/best" ratio 1
	fi
	mean "$tmp/peaks" >"$tmp/peak"
	report programs large/mean/peak of-glibc "$tmp/peak" - ours 1.05 "$(peak_by "$tmp/by")"
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
	turns=$pairs
	for name in ${SMALL_ONLY:-$programs_small}; do
		why=$(program_missing "$name")
		command=$(program_command "$name")
		if [ -n "$why" ] || ! runs "$command"; then
			echo "  programs, $name: ${why:-it fails without the shim}"
			report programs "small/$name/95%" of-glibc "$tmp/none" - ours 1.02
			continue
		fi
		in_turns 'glibc shim' once "$command"
		pairs_bound "$tmp/of/shim.wall_ms" "$tmp/of/glibc.wall_ms" >"$tmp/bound"
		cut -d ' ' -f 1 "$tmp/bound" >"$tmp/mean"
		cut -d ' ' -f 2 "$tmp/bound" >"$tmp/upper"
		report programs "small/$name" of-glibc "$tmp/mean" - - 0
		report programs "small/$name/95%" of-glibc "$tmp/upper" - ours 1.02
		row "small/$name/peak" KiB peak_kib glibc ratio 1.05
	done
}

forked_suite() {
	name=numpy
	command=$(program_command numpy)
	why=$(program_missing numpy)
	if [ -n "$why" ] || ! runs "$command"; then
		echo "  programs, forked: ${why:-it fails without the shim}"
		report programs forked/numpy/peak KiB "$tmp/none" - ratio 1.1
		return
	fi
	huge=$(echo "$rivals" | grep -e -huge -e -thp)
	in_turns "$(echo glibc shim $huge)" once "$command"
	row forked/numpy ms wall_ms glibc - 0
	row forked/numpy/cpu ms cpu_ms glibc - 0
	row forked/numpy/fork-pause us pause glibc faster 0
	row forked/numpy/peak KiB peak_kib glibc ratio 1.1
	for side in $huge; do
		against "$side" forked/numpy
	done
}

warm 4G
[ $# -gt 0 ] || set -- large small forked
full=$turns
for suite in "$@"; do
	turns=$full
	case $suite in
	large | small | forked) "${suite}_suite" ;;
	*) fail "there is no suite $suite" ;;
	esac
done
