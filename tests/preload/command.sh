#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The command: `cowshed run` ends as the program does and reports when asked;
# stat and top see a running program from outside; doctor looks at the machine.
. "$(dirname "$0")/lib.sh"

if [ ! -x "$cowshed" ]; then
	skip 'command it is not built'
	finish
fi

# ends STATUS NAME COMMAND...: exit status, as bash sees it
ends() {
	local wanted=$1 name=$2 got
	shift 2
	timeout -k 5 "$limit" "$@" >"$work/out" 2>"$work/err" </dev/null
	got=$?
	if [ "$got" -eq "$wanted" ]; then
		pass "$name"
	else
		echo "exit status $got, not $wanted" >>"$work/err"
		fail "$name" "$work/out" "$work/err"
	fi
}

# says NAME PATTERN FILE
says() {
	if grep -q -- "$2" "$3"; then pass "$1"; else fail "$1" "$3"; fi
}

for how in '' --report; do
	ends 0 "run $how: success" "$cowshed" run $how -- true
	ends 7 "run $how: exit 7" "$cowshed" run $how -- sh -c 'exit 7'
	ends 127 "run $how: not found" "$cowshed" run $how -- /no/such/program
	ends 126 "run $how: cannot be run" "$cowshed" run $how -- /etc/passwd
	bash -c '"$@"; exit $?' bash "$cowshed" run $how -- sh -c \
		'kill -TERM $$' >/dev/null 2>&1
	if [ $? -eq 143 ]; then
		pass "run $how: dies of the program's signal"
	else
		fail "run $how: dies of the program's signal"
	fi
done
ends 0 'run without --' "$cowshed" run sh -c 'test "$1" = --report' sh --report
ends 2 'run without a program' "$cowshed" run
ends 2 'run with a bad option' "$cowshed" run --no-such-option -- true
ends 2 'run with a bad size' "$cowshed" run --threshold many -- true
ends 2 'a command that is none' "$cowshed" nonsense
ends 0 'version' "$cowshed" version
says 'version: which' '0\.1\.0' "$work/out"
ends 0 'help' "$cowshed" help
ends 0 'help of run' "$cowshed" help run
says 'help of run: says how' 'threshold' "$work/out"

# The program's own streams are untouched.
echo 'from stdin' | "$cowshed" run --report="$work/report" -- \
	sh -c 'cat; echo to stderr >&2' >"$work/out" 2>"$work/err"
echo 'from stdin' >"$work/expected"
if cmp -s "$work/out" "$work/expected" &&
	[ "$(cat "$work/err")" = 'to stderr' ]; then
	pass 'run: streams'
else
	fail 'run: streams' "$work/out" "$work/err"
fi

"$cowshed" run --threshold 64K --report -- "$programs/zero" >"$work/out" \
	2>"$work/err"
says 'run --report: on stderr' '[0-9]' "$work/err"
"$cowshed" run --report="$work/report" -- "$programs/zero" >"$work/out" \
	2>"$work/err"
says 'run --report=FILE' '[0-9]' "$work/report"
if [ ! -s "$work/err" ]; then
	pass 'run --report=FILE: nothing on stderr'
else
	fail 'run --report=FILE: nothing on stderr' "$work/err"
fi

LD_PRELOAD=libc.so.6 COWSHED_OPTIONS=threshold=4096 "$cowshed" run \
	--threshold 64K -o backing=anon -- \
	sh -c 'echo "$LD_PRELOAD $COWSHED_OPTIONS"' >"$work/out" 2>"$work/err"
says 'run: keeps LD_PRELOAD' 'libcowshed-preload.so:libc.so.6 ' "$work/out"
says 'run: keeps options' \
	' threshold=4096,threshold=65536,backing=anon$' "$work/out"

# ---- From outside ----
# Ready when it says so, alive until its stdin ends.
mkfifo "$work/ready" "$work/go"
perl=$(command -v perl)
if [ -n "$perl" ]; then
	"$cowshed" run -- perl -e '$x = "a" x 20e6; $| = 1;
		open F, ">", $ARGV[0]; print F "ready\n"; close F;
		open G, "<", $ARGV[1]; <G>; print length $x' \
		"$work/ready" "$work/go" >"$work/perl.out" 2>"$work/perl.err" &
	pid=$!
	read -r _ <"$work/ready"
	ends 0 'stat' "$cowshed" stat "$pid"
	ends 0 'stat --json' "$cowshed" stat --json "$pid"
	says 'stat --json: live bytes' '"bytes_live": *[1-9][0-9]\{7\}' \
		"$work/out"
	ends 0 'top -b -n 1' "$cowshed" top -b -n 1
	says 'top: shows it' "$pid" "$work/out"
	echo >"$work/go"
	wait "$pid"
	if [ "$(cat "$work/perl.out")" = 20000000 ]; then
		pass 'stat and top disturb nothing'
	else
		fail 'stat and top disturb nothing' "$work/perl.err"
	fi
	ends 2 'stat of a process that is gone' "$cowshed" stat "$pid"
else
	skip 'stat and top: no perl here'
fi
ends 2 'stat of this shell' "$cowshed" stat $$
ends 2 'stat of nothing' "$cowshed" stat

"$cowshed" doctor >"$work/out" 2>"$work/err"
case $? in
0 | 1) says 'doctor' 'memfd' "$work/out" ;;
*) fail 'doctor' "$work/out" "$work/err" ;;
esac
if [ -e "$work/cowshed-"* ] 2>/dev/null; then
	fail 'run --report leaves nothing in TMPDIR'
else
	pass 'run --report leaves nothing in TMPDIR'
fi
finish
