#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The broker by hand: publish, ls, get and rm; brokers that start, end and are
# killed; places where a broker can't listen. Programs under the shim use it, too.
. "$(dirname "$0")/lib.sh"

if [ ! -x "$cowshed" ]; then
	skip 'broker it is not built'
	finish
fi
export XDG_RUNTIME_DIR=$work/run
mkdir "$XDG_RUNTIME_DIR"
socket=$XDG_RUNTIME_DIR/cowshed/broker

# ends STATUS NAME COMMAND...: exit status; after an error a sentence
ends() {
	local wanted=$1 name=$2 got
	shift 2
	timeout -k 5 "$limit" "$@" >"$work/out" 2>"$work/err" </dev/null
	got=$?
	if [ "$got" -eq "$wanted" ] && { [ "$got" -eq 0 ] ||
		grep -q '^cowshed: .*\.$' "$work/err"; }; then
		pass "$name"
	else
		echo "exit status $got, not $wanted" >>"$work/err"
		fail "$name" "$work/out" "$work/err"
	fi
}

# Not if there was no broker: its number is empty then.
is_gone() { [ -n "$1" ] && ! kill -0 "$1" 2>/dev/null; }

# The broker that was started on demand: the process that has its lock. Call it before
# the broker is idle and ends.
keeper() {
	find /proc/[0-9]*/fd -lname "$socket.lock" 2>/dev/null | head -n 1 | cut -d / -f 3
}

# A broker that still has the lock in the end was left behind by a test that failed.
end_keeper() {
	local pid
	pid=$(keeper)
	[ -z "$pid" ] || kill "$pid"
}
trap 'end_keeper; rm -rf "$work"' EXIT

# ended NAME PID: the process ends before the limit
ended() {
	if [ -z "$2" ]; then
		fail "$1: there was no broker"
	elif until_true is_gone "$2"; then
		pass "$1"
	else
		fail "$1"
	fi
}

head -c 3000000 /dev/urandom >"$work/file"
: >"$work/empty"
for what in broker ls publish get rm; do
	ends 0 "help $what" "$cowshed" help "$what"
	says "help $what: a page" '^Usage: cowshed' "$work/out"
done

# There is no broker; publishing starts one.
ends 2 'ls without a broker' "$cowshed" ls
ends 0 'publish starts one' "$cowshed" publish "$work/file" big
pid=$(keeper)
ends 0 'publish from elsewhere' "$cowshed" publish --mode 0644 "$work/empty" none
ends 2 'publish: the name is taken' "$cowshed" publish "$work/empty" big
ends 2 'publish: no name' "$cowshed" publish "$work/empty" a/b
ends 2 'publish: no file' "$cowshed" publish "$work/nothing" x
ends 2 'publish: no permissions' "$cowshed" publish --mode 0777 "$work/file" x
ends 0 'ls' "$cowshed" ls
says 'ls: a name, its size and permissions' '^0600 .* 3000000 sealed big$' \
	"$work/out"
says 'ls: an empty one' '^0644 .* 0 sealed none$' "$work/out"
ends 0 'get to a file' "$cowshed" get big "$work/back"
if cmp "$work/file" "$work/back"; then pass 'get: the bytes'; else
	fail 'get: the bytes'; fi
: >"$work/back.part" # of one that was killed
ends 0 'get after a killed get' "$cowshed" get big "$work/back"
if [ "$(stat -c %a "$work/back")" = "$(stat -c %a "$work/empty")" ] &&
	[ "$(echo "$work"/back*)" = "$work/back $work/back.part" ]; then
	pass 'get: permissions as ever, and nothing left'
else
	fail 'get: permissions as ever, and nothing left'
fi
chmod 0510 "$work/back"
ends 0 'get to a file that is there' "$cowshed" get big "$work/back"
if [ "$(stat -c %a "$work/back")" = 510 ]; then pass 'get: its permissions stay'; else
	fail 'get: its permissions stay'; fi
ends 0 'get to standard output' "$cowshed" get none
ends 2 'get: no such name' "$cowshed" get other
ends 2 'get: nowhere to write' "$cowshed" get big /no/such/folder/file
"$cowshed" publish - piped < <(cat "$work/file" "$work/file") &&
	"$cowshed" get piped | cmp - <(cat "$work/file" "$work/file") &&
	pass 'publish: a pipe' || fail 'publish: a pipe'
ends 0 'get under the shim' env LD_PRELOAD="$shim" COWSHED_OPTIONS=threshold=4096 \
	"$cowshed" get big "$work/shimmed"
ends 0 'rm' "$cowshed" rm big none piped
ends 2 'rm: again' "$cowshed" rm big
if [ "$(stat -c %a "${socket%/*}")/$(stat -c %a "$socket")" = 700/700 ]; then
	pass 'the folder and the socket are ours alone'
else
	fail 'the folder and the socket are ours alone'
fi

# A broker is killed. The socket that it left disturbs no other.
[ -z "$pid" ] || kill -KILL "$pid"
ended 'a broker is killed' "$pid"
ends 0 'publish after a killed broker' "$cowshed" publish "$work/file" big
pid=$(keeper)
ends 2 'a second broker' "$cowshed" broker
[ -z "$pid" ] || kill "$pid"
ended 'ends when told to' "$pid"
if [ -e "$socket" ]; then fail 'it takes its socket away'; else
	pass 'it takes its socket away'; fi
ends 0 'on demand' "$cowshed" broker --on-demand --idle 3
pid=$(keeper)
ended 'ends when idle' "$pid"

# Places.
long=$(printf '%0120d' 0)
ends 2 'a long path' "$cowshed" broker --socket "/tmp/$long"
says 'a long path: why' 'bytes long' "$work/err"
ends 2 'a long runtime folder' env XDG_RUNTIME_DIR="/tmp/$long" "$cowshed" ls
ends 2 'no folder' "$cowshed" broker --socket /no/such/folder/broker
ends 2 'not a path' "$cowshed" broker --socket broker
ends 2 'a bad option' "$cowshed" broker --no-such-option
ends 2 'a bad count' "$cowshed" broker --max none
echo mine >"$work/taken"
ends 2 'a file is there' "$cowshed" broker --on-demand --idle 1 --socket "$work/taken"
says 'a file is there: why' 'not a socket' "$work/err"
if [ "$(cat "$work/taken")" = mine ]; then pass 'a file is there: it stays'; else
	fail 'a file is there: it stays'; fi
if command -v python3 >/dev/null; then
	python3 -c 'import socket, sys, time
s = socket.socket(socket.AF_UNIX)
s.bind(sys.argv[1])
s.listen()
open(sys.argv[1] + ".ready", "w")
time.sleep(100)' "$work/stream" &
	stream=$!
	until_true test -e "$work/stream.ready"
	ends 2 "another program's socket" "$cowshed" broker --on-demand --idle 1 \
		--socket "$work/stream"
	says "another program's socket: why" 'another program' "$work/err"
	if python3 -c 'import socket, sys
socket.socket(socket.AF_UNIX).connect(sys.argv[1])' "$work/stream"; then
		pass "another program's socket: it stays"
	else
		fail "another program's socket: it stays"
	fi
	kill "$stream"
	wait "$stream" 2>/dev/null
	ends 0 'the socket of a dead program' "$cowshed" broker --on-demand \
		--idle 1 --socket "$work/stream"
else
	skip "another program's socket no python3 here"
fi
# Without stdio descriptors 0 to 2 are free. They must not become the lock and the listener.
ends 0 'started without stdio' bash -c '"$@" <&- >&- 2>&-' bash \
	"$cowshed" broker --on-demand --idle 1 --socket "$work/bare"
ends 0 'started without stdio: ls' timeout 10 "$cowshed" ls --socket "$work/bare"
ends 0 'an abstract name' "$cowshed" broker --on-demand --idle 1 \
	--abstract "cowshed-$$"
ends 0 'ls at an abstract name' "$cowshed" ls --abstract "cowshed-$$"
ends 2 'ls at another' "$cowshed" ls --abstract "cowshed-none-$$"
ends 0 'publish, two at once' bash -c "
	'$cowshed' publish '$work/file' one & a=\$!
	'$cowshed' publish '$work/file' two & wait \$a && wait \$! &&
	'$cowshed' rm one two"
finish
