# SPDX-License-Identifier: MIT
#
# Functions that the benchmark scripts share (sourced, not run)
#
# This file finds the programs that `make` built, makes a temporary folder that is
# removed at the end, and prints each measurement in the two lines of bench/common.h.
# Scripts run their sides in turns, and keep the figures that programs print as name=value
# (in_turns, run_as, keep, row). A line has the name of the script as its `bench`.
# BUILD names another build folder, BENCH_QUICK=1 asks for small sizes, BENCH_ROUNDS
# for another number of turns. BENCH_LIB names a folder with the libraries of another build,
# BENCH_OPTIONS has options for the shim, and BENCH_SIDES=shim leaves out the rivals
# (bench/pairs.sh sets all of these). If a script can't measure a figure, the line of that
# figure has met=failed, and the script exits with a status other than 0.

set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
build=${BUILD:-$root/build/plain}
case $build in /*) ;; *) build=$(pwd)/$build ;; esac
bin=$build/bench
lib=${BENCH_LIB:-$build/lib}
shim=$lib/libcowshed-preload.so
bench=$(basename "$0" .sh)
unset LD_PRELOAD GLIBC_TUNABLES COWSHED_OPTIONS
[ -z "${BENCH_LIB:-}" ] || export LD_LIBRARY_PATH="$lib"
[ -z "${BENCH_OPTIONS:-}" ] || export COWSHED_OPTIONS="$BENCH_OPTIONS"
export LC_ALL=C
# With this tunable glibc (from 2.35 on) advises huge pages for all that it maps. The
# option -H of the programs advises each block as well.
huge_pages=glibc.malloc.hugetlb=1
heap=    # more of it, for the side `huge`
options= # for the shim
limit=   # seconds for a program that measure_as runs

tmp=$(mktemp -d "${TMPDIR:-/tmp}/cowshed-bench.XXXXXX") || exit 1
# A subshell may have printed a line that failed, so a file keeps that. A script may
# put commands into $cleanup_also, which run at its end.
cleanup_also=
cleanup() {
	cleanup_status=$?
	eval "$cleanup_also"
	[ ! -e "$tmp/failed" ] || [ $cleanup_status != 0 ] || cleanup_status=1
	rm -rf "$tmp"
	exit $cleanup_status
}
trap cleanup EXIT
trap 'exit 130' HUP INT TERM

quick() {
	[ "${BENCH_QUICK:-0}" != 0 ]
}

# turns_of FULL QUICK: sets $turns
turns_of() {
	turns=$1
	! quick || turns=$2
	turns=${BENCH_ROUNDS:-$turns}
}

fail() {
	echo "${0##*/}: $*" >&2
	exit 1
}

# wanted SIDE: whether BENCH_SIDES, if there is one, names the side
wanted() {
	case " ${BENCH_SIDES:-$1} " in *" $1 "*) ;; *) return 1 ;; esac
}

have() {
	command -v "$1" >/dev/null 2>&1
}

# library NAME: the path of the newest library of this name; nothing if there is none
library() {
	find /usr/lib /usr/local/lib -name "lib$1.so.*" 2>/dev/null | sort -V |
		tail -n 1
}

# python_with MODULES: the first Python that can import the modules (with commas
# between); the Pythons of `make bench` come first. Nothing if there is none.
python_with() {
	for python_try in "$root/build/venv/bin/python" \
		"$root/build/venv-plots/bin/python" python3 python /usr/bin/python3; do
		"$python_try" -c "import $1" 2>/dev/null && echo "$python_try" && return
	done
}

# need FILE...: ends the script if make has not built one of the files
need() {
	for need_file in "$@"; do
		[ -e "$need_file" ] ||
			fail "$need_file is missing: run make first"
	done
}

# field NAME: the values of NAME=value in the lines of standard input
field() {
	tr ' ' '\n' | sed -n "s/^$1=//p"
}

# median FILE: of one number a line; `-` is standard input
median() {
	sort -g "$1" | awk '{ v[NR] = $1 } END {
		if (!NR) exit
		m = int((NR + 1) / 2)
		print NR % 2 ? v[m] : (v[m] + v[m + 1]) / 2 }'
}

# ---- Sides ------------------------------------------------------------------------

# A side is a way to run a program. `shim` is ours; `memfd` has only memfds, too. The rivals
# are glibc by itself (any other name, as plain or glibc), glibc with huge pages (`huge` also
# advises each block by -H), and other allocators.

# of_side SIDE: sets $preload, $setting (a variable for the environment) and $advised
of_side() {
	preload='' setting=NOTHING= advised=
	case $1 in
	shim)
		preload=$shim
		[ -z "$options" ] ||
			setting=COWSHED_OPTIONS=$options${BENCH_OPTIONS:+,$BENCH_OPTIONS} ;;
	memfd) preload=$shim setting=COWSHED_OPTIONS=backing=memfd ;;
	huge) setting=GLIBC_TUNABLES=$huge_pages$heap advised=-H ;;
	glibc-huge) setting=GLIBC_TUNABLES=$huge_pages ;;
	jemalloc | mimalloc) preload=$(library "$1") ;;
	jemalloc-thp) preload=$(library jemalloc) setting=MALLOC_CONF=thp:always ;;
	tcmalloc) preload=$(library tcmalloc_minimal) ;;
	esac
}

# installed SIDE...: those of these allocators that are
installed() {
	for installed_side in "$@"; do
		of_side "$installed_side"
		case $installed_side in *malloc*) [ -n "$preload" ] || continue ;; esac
		echo "$installed_side"
	done
}

# warm SIZE: touches and frees as much memory, so that each side finds the same
warm() {
	"$bin/plain_measure" -w "$1" >/dev/null
}

# run_as SIDE COMMAND...: what it prints goes to $tmp/out
run_as() {
	ran_as=$1
	of_side "$1"
	shift
	# shellcheck disable=SC2086
	env "$setting" ${preload:+LD_PRELOAD="$preload"} "$@" $advised >"$tmp/out" ||
		fail "failed ($ran_as): $*"
}

# measure_as SIDE COMMAND...: the same under plain_measure, whose line follows
measure_as() {
	ran_as=$1
	of_side "$1"
	shift
	# shellcheck disable=SC2086
	env "$setting" ${limit:+timeout $limit} "$bin/plain_measure" -o "$tmp/measured" \
		-p "$preload" -- "$@" $advised \
		>"$tmp/out" || fail "failed ($ran_as): $*"
	cat "$tmp/measured" >>"$tmp/out"
}

# The figures of the sides are in $tmp/of/SIDE.FIGURE, one number a run.

# note SIDE FIGURE: adds the median of the numbers of standard input
note() {
	cat >"$tmp/values"
	[ ! -s "$tmp/values" ] || median "$tmp/values" >>"$tmp/of/$1.$2"
}

# keep SIDE: adds the median of each figure in $tmp/out
keep() {
	for figure in $(tr ' ' '\n' <"$tmp/out" | sed -n 's/^\([a-z0-9_]*\)=[-0-9].*/\1/p' | sort -u); do
		field "$figure" <"$tmp/out" | note "$1" "$figure"
	done
	field peak_by <"$tmp/out" >>"$tmp/of/by"
}

# in_turns SIDES FUNCTION ARGS...: runs FUNCTION SIDE ARGS... for each side, $turns times. Each
# turn begins with another side. Figures of before are forgotten.
in_turns() {
	order=$1 of_each=$2 turn=0
	shift 2
	rm -rf "$tmp/of"
	mkdir "$tmp/of"
	while [ $turn -lt "$turns" ]; do
		for side in $order; do
			! wanted "$side" || "$of_each" "$side" "$@"
		done
		case $order in *' '*) order="${order#* } ${order%% *}" ;; esac
		turn=$((turn + 1))
	done
}

# measured SIDE SIZE COMMAND...: a turn of most scripts: after a program that touched SIZE, the
# command under plain_measure; its figures and those that it prints are kept
measured() {
	measured_side=$1
	warm "$2"
	shift 2
	measure_as "$measured_side" "$@"
	keep "$measured_side"
}

# printed SIDE COMMAND...: the same without plain_measure
printed() {
	run_as "$@"
	keep "$1"
}

# peak_by FILE...: how the peaks were measured, of files with one peak_by of
# plain_measure a line: cgroup only if all peaks were measured so.
peak_by() {
	cat "$@" 2>/dev/null | awk 'BEGIN { by = "cgroup" }
		!NF { next } { n++ } $1 != "cgroup" { by = $1 }
		END { print n ? by : "nothing" }'
}

# report BENCH CASE UNIT OURS RIVAL ON BAR [BY]: OURS and RIVAL are files of one
# number a line (RIVAL may be -). ON is ours, worst (each of ours), ratio, speedup, -
# (no bar) or faster (no bar, the ratio is rival / ours). If a named file is empty or
# absent, the measurement failed, be it ours or the rival's. BY says how memory was
# measured. If that is not by a cgroup, the figure is shown, but its bar has failed.
report() {
	sort -g "$4" >"$tmp/report.ours" 2>/dev/null
	if [ "$5" = - ]; then
		: >"$tmp/report.rival"
	else
		sort -g "$5" >"$tmp/report.rival" 2>/dev/null
	fi
	[ -s "$tmp/report.ours" ] && { [ "$5" = - ] || [ -s "$tmp/report.rival" ]; } ||
		: >"$tmp/failed"
	case ${8:-cgroup}$6 in
	cgroup* | *- | *faster) ;;
	*) : >"$tmp/failed" ;;
	esac
	awk -v bench="$1" -v what="$2" -v unit="$3" -v on="$6" -v bar="$7" \
		-v alone="$5" -v by="${8:-}" '
	function mid(v, n,    m) {
		m = int((n + 1) / 2)
		return n % 2 ? v[m] : (v[m] + v[m + 1]) / 2
	}
	FILENAME == ARGV[1] { a[++n] = $1; next }
	{ b[++k] = $1 }
	END {
		fast = on == "speedup" || on == "faster"
		alone_on = on == "ours" || on == "worst"
		barred = alone_on || on == "ratio" || on == "speedup"
		said = by == "" ? "" : " by=" by
		ungrouped = by != "" && by != "cgroup"
		if (!n || (!k && alone != "-") || (ungrouped && barred)) {
			printf "  %s, %s: %s\n", bench, what, \
			    !n ? "ours was not measured" : \
			    !k && alone != "-" ? "the rival was not measured" : \
			    "memory was not measured by a cgroup"
			printf "bench=%s case=%s unit=%s ours=%s rival=%s " \
			    "ratio=- bar=%s on=%s met=failed n=%d%s\n", bench, \
			    what, unit, n ? sprintf("%.6g", mid(a, n)) : "-", \
			    k ? sprintf("%.6g", mid(b, k)) : "-", barred ? \
			    (on == "speedup" ? ">=" : "<=") bar + 0 : "-", \
			    barred ? on : "-", n, said
			exit
		}
		o = mid(a, n)
		printf "bench=%s case=%s unit=%s ours=%.6g ours_min=%.6g " \
		    "ours_max=%.6g", bench, what, unit, o, a[1], a[n]
		if (k) {
			r = mid(b, k)
			under = fast ? o : r
			ratio = fast ? r : o
			ratio = under > 0 ? ratio / under : ratio ? 1e9 : 1
			printf " rival=%.6g rival_min=%.6g rival_max=%.6g " \
			    "ratio=%s", r, b[1], b[k], \
			    (under > 0 ? sprintf("%.4g", ratio) : "-")
		} else
			printf " rival=- ratio=-"
		judged = on == "ours" ? o : on == "worst" ? a[n] : ratio
		met = on == "speedup" ? judged >= bar : judged <= bar
		if (barred)
			printf " bar=%s%g on=%s met=%s", \
			    on == "speedup" ? ">=" : "<=", bar, on, \
			    met ? "yes" : "no"
		else
			printf " bar=- on=%s met=-", fast ? "speedup" : "ratio"
		printf " n=%d%s\n", n, said
		printf "  %s, %s: %.4g %s (%.4g..%.4g)", bench, what, o, \
		    unit, a[1], a[n]
		if (k)
			printf "; rival %.4g (%.4g..%.4g)", r, b[1], b[k]
		if (k && under > 0)
			printf ": %.4g x%s", ratio, fast ? " faster" : ""
		if (barred)
			printf "; bar %s %g%s: %s", \
			    on == "speedup" ? "at least" : "at most", bar, \
			    alone_on ? " " unit : " x", \
			    met ? "met" : "NOT MET"
		printf "\n"
	}' "$tmp/report.ours" "$tmp/report.rival"
}

# report_pairs BENCH CASE UNIT OURS RIVAL ON BAR [BY]: as report(). Lines of the same number
# in OURS and RIVAL are of the same turn. The measurement also gets the 95 % interval of
# the ratio (bench/interval.awk), if both files have equally many lines.
report_pairs() {
	pairs_fast=0 pairs_interval=
	case $6 in speedup | faster) pairs_fast=1 ;; esac
	[ "$(wc -l <"$4")" != "$(wc -l <"$5")" ] || pairs_interval=$(paste -d ' ' "$4" "$5" |
		awk -v fast=$pairs_fast -f "$here/interval.awk")
	report "$@" | awk -v add="$pairs_interval" '
	add == "" { print; next }
	/^bench=/ { print $0, add; next }
	{
		split(add, v, /[ =]/)
		printf "%s; %g %% interval %g..%g\n", $0, v[6] < 95 ? v[6] : 95, v[2], v[4]
	}'
}

# better A B [most]: the file with the smaller median (most: the greater median); an
# empty file only if both are empty.
better() {
	[ -s "$1" ] || { echo "$2"; return; }
	[ -s "$2" ] || { echo "$1"; return; }
	awk -v a="$(median "$1")" -v b="$(median "$2")" -v fa="$1" \
		-v fb="$2" -v most="${3:-}" 'BEGIN {
		print (most ? a + 0 >= b + 0 : a + 0 <= b + 0) ? fa : fb }'
}

# row CASE UNIT FIGURE RIVAL ON BAR: the shim's figure against that of a rival's side, of the
# better one of several, of a file, or of nothing (-)
row() {
	row_by= against=-
	case $2 in KiB | MiB) [ ! -s "$tmp/of/by" ] || row_by=$(peak_by "$tmp/of/by") ;; esac
	for row_rival in $4; do
		case $row_rival in -) continue ;; /*) ;; *) row_rival=$tmp/of/$row_rival.$3 ;; esac
		[ "$against" = - ] && against=$row_rival || against=$(better "$against" "$row_rival")
	done
	report "$bench" "$1" "$2" "$tmp/of/shim.$3" "$against" "$5" "$6" "$row_by"
}
