#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The same benchmarks for two builds, in turns
#
#      BASE=CHECKOUT bench/pairs.sh NAME...
#
# It tells whether a change made something slower, where the noise of the machine is as large
# as the difference. NAME is a benchmark of bench/run.sh: fork, cycle, prefork, template,
# redis and others. Both sides run this checkout's scripts and programs; the libraries are
# this build's (ours) or those of BASE, which has build/plain/lib (the rival). A turn runs
# each benchmark once per side, and the order of the sides changes from turn to turn.
# Rivals like glibc are left out, where a script can do that.
#
# A line for each row: both medians, ours / BASE whatever the row's own ratio is, and its
# 95 % interval (bench/interval.awk). Rows that one side alone has are named at the end.
#
# With BASE_BUILD=FOLDER instead of BASE, that is another build of this checkout, as
# build/plain-without-AHEAD. Each side then runs its own programs, so all benchmarks of C
# programs can be compared.
#
# PAIRS is the number of turns (10), at least 6 for 95 %. PAIRS_ROUNDS is how often a script
# repeats a row within a turn (1). PAIRS_OPTIONS has options for our shim alone, as
# border=fork. PAIRS_ONLY is a pattern of rows, as 'fork tenth/*'. The settings of the
# scripts go on to hold: BENCH_QUICK, FORK_ONLY, CYCLE_ONLY, PREFORK_SECONDS. Programs that
# are linked with the archive (tensors) and Python's are no subject of it.
. "$(dirname "$0")/common.sh"
[ $# -gt 0 ] || fail 'usage: BASE=CHECKOUT bench/pairs.sh NAME...'
[ -n "${BASE:-}${BASE_BUILD:-}" ] || fail 'BASE names no checkout'
base_lib=${BASE_BUILD:-${BASE:-}/build/plain}/lib
need "$base_lib/libcowshed-preload.so" "$shim"
case $base_lib in /*) ;; *) base_lib=$(pwd)/$base_lib ;; esac
turns=${PAIRS:-10}

# one SIDE NAME: runs a benchmark; appends `TURN SIDE BENCH CASE UNIT FIGURE` to $tmp/all.
# The script may fail, since the rivals are left out; its lines say what was measured.
one() {
	side_lib=$base_lib side_build=${BASE_BUILD:-$build} options=
	[ "$1" = base ] || side_lib=$lib side_build=$build options=${PAIRS_OPTIONS:-}
	: >"$tmp/lines"
	BUILD=$side_build BENCH_LIB=$side_lib BENCH_OPTIONS=$options BENCH_SIDES=shim BENCH_OUT=$tmp/lines \
		BENCH_ROUNDS=${PAIRS_ROUNDS:-1} sh "$here/run.sh" "$2" >"$tmp/log" 2>&1
	grep -q ' ours=[-0-9.]*[0-9]' "$tmp/lines" || {
		tail -n 20 "$tmp/log" >&2
		fail "no figure of $2 ($1)"
	}
	awk -v turn="$turn" -v side="$1" '/^bench=/ {
		for (i = 1; i <= NF; i++) {
			k = index($i, "=")
			v[substr($i, 1, k - 1)] = substr($i, k + 1)
		}
		if (v["ours"] ~ /[0-9]/)
			print turn, side, v["bench"], v["case"], v["unit"], v["ours"]
	}' "$tmp/lines" >>"$tmp/all"
}

# rows: `BENCH CASE UNIT` of each row, in the order of their first lines
rows() {
	awk '{ row = $3 " " $4 " " $5 } !seen[row]++ { print row }' "$tmp/all"
}

# pair BENCH CASE UNIT: the turns that both sides measured, in $tmp/ours and $tmp/base
pair() {
	awk -v row="$1 $2 $3" -v ours="$tmp/ours" -v base="$tmp/base" '
	$3 " " $4 " " $5 != row { next }
	{ if ($2 == "base") b[$1] = $6; else a[$1] = $6; last = $1 }
	END {
		printf "" >ours
		printf "" >base
		for (i = 0; i <= last; i++)
			if (i in a && i in b) {
				print a[i] >ours
				print b[i] >base
			}
	}' "$tmp/all"
}

warm 4G
: >"$tmp/all"
turn=0
while [ $turn -lt "$turns" ]; do
	order='base shim'
	[ $((turn % 2)) = 0 ] || order='shim base'
	for name in "$@"; do
		for side in $order; do
			one "$side" "$name"
		done
	done
	turn=$((turn + 1))
done
rows >"$tmp/rows"
missing=
while read -r bench what unit; do
	# shellcheck disable=SC2254
	case "$bench $what" in ${PAIRS_ONLY:-*}) ;; *) continue ;; esac
	case $what in huge/* | */huge/*) continue ;; esac # ours, against another rival
	pair "$bench" "$what" "$unit"
	[ -s "$tmp/ours" ] || {
		missing="$missing $bench/$what"
		continue
	}
	report_pairs "$bench" "$what" "$unit" "$tmp/ours" "$tmp/base" - 0
done <"$tmp/rows"
[ -z "$missing" ] || fail "no turn has both sides of:$missing"
