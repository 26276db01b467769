#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Wrong uses of the command: it says what is wrong, does nothing, and ends with 2.
. "$(dirname "$0")/lib.sh"

if [ ! -x "$cowshed" ]; then
	skip 'usage the command is not built'
	finish
fi

# wrong SAYS ARGUMENT...
wrong() {
	local said=$1 got
	shift
	timeout -k 5 "$limit" "$cowshed" "$@" >"$work/out" 2>"$work/err" </dev/null
	got=$?
	if [ "$got" -eq 2 ] && [ ! -s "$work/out" ] && grep -qF -- "$said" "$work/err"; then
		pass "cowshed $*"
	else
		echo "exit status $got; awaited: $said" >>"$work/err"
		fail "cowshed $*" "$work/out" "$work/err"
	fi
}
wrong 'Usage: cowshed COMMAND'
wrong "takes one command: leave out 'stat'" help run stat
wrong "There is no command 'nothing'" nothing
wrong "There is no command 'nothing'" help nothing
wrong "takes no arguments: leave out '1'" version 1
for command in run stat top doctor broker ls publish get rm; do
	wrong "There is no option '--bad', or it takes no value; see 'cowshed help $command'" $command --bad
	if "$cowshed" $command -h >"$work/out" 2>&1 && "$cowshed" help $command |
		diff - "$work/out" >"$work/err" && [ -s "$work/out" ]; then
		pass "cowshed $command -h"
	else
		fail "cowshed $command -h" "$work/err"
	fi
done

wrong 'There is no program to run' run
wrong "Option '-o' needs a value" run -o
wrong "Option '--threshold' needs a value" run --threshold
wrong "There is no option '--json=1', or it takes no value" stat --json=1
wrong "There is no option '-x', or it takes no value" top --batch -xb
wrong "'x' in the options of the command line: an option is KEY=VALUE" run -o x -- true
wrong "there is no option 'a'" run -o a=1,b=2 true
wrong "there is no option 'foo'" run -o foo=bar true
wrong "there is no option 'threshol'" profile -o threshol=1M true
wrong "'mmap=1X' in the options of the command line: this option takes a number of bytes" run -o mmap=1X true
wrong "'heal=51' in the options of the command line: this option takes a percentage" run -o 'threshold=1M , heal=51' true
wrong "'quiet=loud' in" run -o quiet=loud true
wrong "'copies=all' in" run -o copies=all true
wrong "'border=none' in" run -o border=none true
wrong "'devices=x' in" run -o devices=x true
wrong "'helper=true' in" run -o helper=true true
wrong "'decay=3600001' in" run -o decay=3600001 true
wrong "'window=1M' in" run -o window=1M true
for report in '' --report; do
	COWSHED_OPTIONS='heal=3, thresold=8M' wrong \
		"'thresold=8M' in COWSHED_OPTIONS: there is no option 'thresold'" run $report true
done
wrong "There is no backing 'straw'; write memfd" run --backing straw true
wrong 'needs a file name' run --report= true
wrong "can't be written to '$work/none/report': No such file" run --report="$work/none/report" true
wrong "can't be written to '$work/none/report': No such file" run -o report="$work/none/report" true
wrong "can't be written to '$work': Is a directory" run -o report="$work" true
wrong 'a value has at most 255 bytes' run -o report="$(head -c 256 /dev/zero | tr '\0' y)" true
wrong 'give one of the two' run --report -o report=/dev/null true
# A list may have any length.
if COWSHED_OPTIONS=heal=3$(printf ',decay=%d' {1..50}{1..9}) "$cowshed" run -o heal=0 true 2>"$work/err"; then
	pass 'run: a long list of options'
else
	fail 'run: a long list of options' "$work/err"
fi
for asks in '--help' '-h'; do
	for name in version help; do
		if "$cowshed" $name $asks >"$work/out" 2>"$work/err" && "$cowshed" help $name | diff - "$work/out"; then
			pass "$name $asks"
		else
			fail "$name $asks" "$work/out" "$work/err"
		fi
	done
done

wrong 'takes no arguments' doctor 1
wrong 'takes one process id' stat
wrong 'takes one process id, not 2' stat 1 2
wrong "'x' is not a process id" stat x
wrong "'99999999999' is not a process id; write a number from 1 to 2147483647" stat 99999999999
wrong "'x' is not a delay" top -d x
wrong "'0.01' is not a delay; write seconds from 0.1" top -d 0.01
wrong "'-1' is not a count" top -n -1
wrong "takes no arguments: leave out 'x'" top x
# There is no $ORIGIN for the loader, either.
no_proc() { $(own_mounts) sh -c 'mount -t tmpfs none /proc && exec "$@"' no-proc "$@"; }
if no_proc true 2>"$work/err"; then
	for command in 'stat 1' 'top -b -n 1'; do
		LD_LIBRARY_PATH=$BUILD/lib no_proc "$cowshed" $command >"$work/out" 2>"$work/err"
		got=$?
		says "cowshed $command without /proc" '^cowshed: /proc is not mounted; ' "$work/err"
		[ $got -eq 2 ] || fail "cowshed $command without /proc: exit status $got" "$work/err"
	done
else
	skip 'stat and top without /proc: no such mounts here'
fi

wrong 'takes no arguments' broker 1
wrong "'x' is not a number of seconds" broker --idle x
wrong 'takes no arguments' ls 1
wrong 'takes a file and a name' publish "$0"
wrong 'takes a name, or a name and a file' get
wrong 'takes at least one name' rm
wrong "can't be reached: there is no broker" ls --socket "$work/none"
[ ! -e "$work/none" ] || fail 'ls started a broker'
wrong "can't listen at '$root/README.md/broker': Not a directory" broker --socket "$root/README.md/broker"
if (ulimit -n 40 && exec timeout -k 5 "$limit" "$cowshed" broker --socket "$work/broker") 2>"$work/err"; then
	fail 'a broker with few descriptors'
else
	says 'a broker with few descriptors' 'needs 64 descriptors and may have 40' "$work/err"
fi

if [ -w /dev/full ]; then
	"$cowshed" profile --output=/dev/full true 2>"$work/err"
	if grep -q 'old page' "$work/err"; then fail 'a device has no old page' "$work/err"; else
		says 'a device has no old page' 'could not be written: No space' "$work/err"; fi
	if "$cowshed" version 2>"$work/err" >/dev/full; then
		fail 'no space for the output'
	else
		says 'no space for the output' 'could not be written: No space' "$work/err"
	fi
else
	skip 'no space for the output there is no /dev/full'
fi
finish
