# SPDX-License-Identifier: MIT
#
# lib.sh: functions of the scripts beside it; sourced, never run.
#
# Each script runs programs with and without the shim and compares what they
# print and how they end. One "ok NAME", "not ok NAME" or "skip NAME reason" is
# printed a comparison; `finish` at the end gives the exit status.
#
# The thresholds are a page (nearly everything goes to the engine), 64 KiB, and
# the default. With QUICK=1 it is the first alone. THRESHOLDS=... in the environment tries others.
set -u
export LC_ALL=C
# From Python 3.12 on, fork() warns of any second thread, so of the helper (real.sh).
export PYTHONWARNINGS='ignore:This process:DeprecationWarning'
BUILD=${BUILD:-build/plain}
root=$(pwd)
case $BUILD in /*) ;; *) BUILD=$root/$BUILD ;; esac
shim=$BUILD/lib/libcowshed-preload.so
programs=$BUILD/tests/programs
cowshed=$BUILD/bin/cowshed
if [ -n "${QUICK:-}" ]; then thresholds=4096; else thresholds='4096 65536 default'; fi
thresholds=${THRESHOLDS-$thresholds}
limit=${COMMAND_LIMIT:-300} # seconds after which a command is taken to hang
failures=0 passes=0

if [ ! -e "$shim" ]; then
	echo "skip $(basename "$0" .sh) there is no shim in $BUILD/lib"
	exit 77
fi
case $shim in *[\ :]*)
	echo "skip $(basename "$0" .sh) the loader splits LD_PRELOAD at spaces and colons"
	exit 77
	;;
esac
unset LD_PRELOAD COWSHED_OPTIONS
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work

pass() {
	passes=$((passes + 1))
	echo "ok $1"
}

# fail NAME [FILE...]: shows the end of each file
fail() {
	local name=$1 file
	shift
	failures=$((failures + 1))
	echo "not ok $name"
	for file in "$@"; do
		[ ! -s "$file" ] || { echo "  $(basename "$file"):" &&
			tail -n 20 "$file" | cut -c1-200 | sed 's/^/    /'; }
	done
}

# says NAME PATTERN FILE
says() { if grep -q -- "$2" "$3"; then pass "$1"; else fail "$1" "$3"; fi; }

skip() { echo "skip $*"; }

# own_mounts: prints the prefix for a command that mounts for itself alone, for root and others
own_mounts() { if unshare -m true 2>/dev/null; then echo unshare -m; else echo unshare -Urm; fi; }

finish() {
	[ "$failures" -eq 0 ] || exit 1
	[ "$passes" -gt 0 ] || exit 77
	exit 0
}

# Preloaded without the shim; preloaded with it; the file for its report.
alone='' preload=$shim report=

# plainly COMMAND...: without the shim, at most $limit seconds
plainly() { timeout -k 5 "$limit" ${alone:+env LD_PRELOAD="$alone"} "$@"; }

# under THRESHOLD COMMAND...: with the shim and the options in $also
under() {
	local options=${also:-}
	[ "$1" = default ] || options=${options:+$options,}threshold=$1
	[ -z "$report" ] || options=${options:+$options,}report=$report
	shift
	timeout -k 5 "$limit" env LD_PRELOAD="$preload" \
		${options:+COWSHED_OPTIONS="$options"} "$@"
}

# served FILE: the largest bytes_served of the processes in the report
served() {
	sed -n 's/.* bytes_served=\([0-9]*\).*/\1/p' "$1" 2>/dev/null |
		sort -n | tail -n 1 | grep . || echo 0
}

# same NAME: did the last run print and end like the plain one?
# Uses $work/{plain,shim}.{out,err} and $plain, $got.
same() {
	local same=1
	diff -a "$work/plain.out" "$work/shim.out" >"$work/out.diff" || same=
	diff -a "$work/plain.err" "$work/shim.err" >"$work/err.diff" || same=
	if [ "$got" -ne "$plain" ]; then
		same=
		echo "exit status $got, not $plain" >>"$work/err.diff"
	fi
	if [ -n "$same" ]; then
		pass "$1"
	else
		fail "$1" "$work/out.diff" "$work/err.diff" "$work/shim.log"
	fi
}

# stories NAME: the function `story HOW...` tells one, in which it runs a server
# by HOW. Its output is compared; $work/story is an empty folder. The engine
# must have served something at the lowest threshold.
stories() {
	local threshold
	story_of plain plainly && plain=0 || plain=$?
	if [ "$plain" -ne 0 ]; then
		fail "$1 without the shim" "$work/plain.out" \
			"$work"/story/*log
		return
	fi
	for threshold in $thresholds; do
		report=$work/report
		rm -f "$report"
		story_of shim under "$threshold" && got=0 || got=$?
		report=
		[ "$got" -eq 0 ] || tail -n 20 "$work"/story/*log \
			>>"$work/shim.err" 2>&1
		same "$1 at $threshold"
		[ "$threshold" = 4096 ] || continue
		if [ "$(served "$work/report")" -gt 0 ]; then
			pass "$1: the engine serves"
		else
			fail "$1: the engine serves" "$work/report"
		fi
	done
}

story_of() {
	local who=$1
	shift
	rm -rf "$work/story"
	mkdir "$work/story"
	story "$@" >"$work/$who.out" 2>"$work/$who.err" </dev/null
}

# until_true COMMAND...: tries ten times a second, at most $limit seconds
until_true() {
	local i
	for ((i = 0; i < limit * 10; i++)); do
		"$@" >/dev/null 2>&1 && return 0
		read -rt 0.1 <> <(:) || :
	done
	echo "never so: $*"
	return 1
}

# sift plain|shim: keeps the part of an output that is compared; here all of it
sift() { :; }

# compare NAME COMMAND...: output, messages and exit status are the same at
# each threshold. The command prints "skip" lines, and ends with 77 if it skips all.
compare() {
	local name=$1 threshold
	shift
	plainly "$@" >"$work/plain.out" 2>"$work/plain.err" </dev/null
	plain=$?
	grep -a '^skip ' "$work/plain.out" | sort -u
	[ "$plain" -ne 77 ] || return 0
	if ! sift plain || { [ -n "${must_succeed:-}" ] && [ "$plain" -ne 0 ]; }; then
		fail "$name without the shim" "$work/plain.out" \
			"$work/plain.err" "$work/plain.log"
		return
	fi
	for threshold in $thresholds; do
		under "$threshold" "$@" >"$work/shim.out" 2>"$work/shim.err" \
			</dev/null
		got=$?
		sift shim
		same "$name at $threshold"
	done
}

# The same for one of tests/programs, which must also end well.
program() {
	if [ -x "$programs/$1" ]; then
		must_succeed=1 compare "$*" "$programs/$@"
	else
		fail "$* (not built)"
	fi
}

# compare_if PROGRAM NAME COMMAND...: where the system has PROGRAM
compare_if() {
	local needed=$1 name=$2
	shift 2
	if command -v "$needed" >/dev/null; then
		compare "$name" "$@"
	else
		skip "$name no $needed here"
	fi
}
