#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Under the shim a relative that gave up privileges reads and writes nothing that plain Linux
# would deny. tests/programs/border.c says what a row is. Each row is tried without the shim,
# too, where it must hold. The states and most of the attacks are tried with LONG=1 alone: they take ten minutes.
. "$(dirname "$0")/lib.sh"

border=$programs/border

# One attack writes to every descriptor that it has. Those of make and others are not for it.
for n in /proc/self/fd/*; do
	n=${n##*/}
	[ "$n" -le 2 ] || [ "$n" -ge 255 ] || eval "exec $n>&-"
done

# row DIRECTION BIRTH WAY STATE ATTACK
row() {
	local name="border $*${also:+ ($also)}${BORDER_MMAP:+ mmap}" got
	plainly "$border" "$@" >"$work/out" 2>&1 </dev/null
	got=$?
	if [ "$got" -eq 77 ]; then
		skip "$name: $(sed -n 's/^skip //p' "$work/out" | head -n 1)"
		return
	elif [ "$got" -ne 0 ]; then
		fail "$name without the shim" "$work/out"
		return
	fi
	under default "$border" "$@" >"$work/out" 2>&1 </dev/null
	got=$?
	if [ "$got" -eq 0 ]; then pass "$name"; else fail "$name" "$work/out"; fi
}

# rows DIRECTIONS BIRTHS WAYS STATES ATTACKS: all of them with each other
rows() {
	local d b w s a
	for d in $1; do for b in $2; do for w in $3; do for s in $4; do for a in $5; do
		row "$d" "$b" "$w" "$s" "$a"
	done; done; done; done; done
}

list() { plainly "$border" | sed -n "s/^$1: //p"; }

if [ ! -x "$border" ]; then
	fail "border (not built)"
	finish
fi

# The table of security.md, by the words of those that saw it.
row child fork ids clean write
row child fork ids clean map-write
row child fork ids-strict clean blind
row child fork strict clean blind
row child fork strict-number clean blind
row child fork ids warm read
row child fork ids warm write
row child fork ids thawed read
row child fork ids one words-0
row rivals fork ids clean write
row parent fork ids clean write
row child fork ids clean punch
row child fork ids freed read
row child fork ids freed grow

# What a process may keep of pages and files besides mappings and descriptors.
rows child fork ids thawed "pipe sent"
rows child fork ids thawed-late sent-late
if [ "$(id -u)" -eq 0 ]; then # security.md says what the same user may do
	rows child fork "ids landlock" thawed handle-read
	rows child fork "ids landlock" clean handle-write
fi
rows traced fork "ids landlock" clean "held write"

ways=$(list ways | tr ' ' '\n' | grep -vE '^(unseen|none|groups|resgid|.*strict.*)$')
rows child fork "$ways" clean "held files-write"
born=$(list births | tr ' ' '\n' | grep -E '^(new-|thread)' | grep -v unseen)
rows child "$(list births | tr ' ' '\n' | grep -vE '^(new-|thread)')" ids clean "held write"
rows child "$born" none clean "held write"

# Turns that such a call may take. A handler forks in the middle of it now and then.
turns=$programs/border_turns
for case in $(plainly "$turns") handler handler handler handler; do
	plainly "$turns" "$case" >"$work/out" 2>&1 </dev/null
	got=$?
	also=
	[ "$case" != late ] || also=border=copies # which can't be made there
	[ "$got" -ne 0 ] || { under default "$turns" "$case" >"$work/out" 2>&1 </dev/null; got=$?; }
	case $got in
	0) pass "border turn $case" ;;
	77) skip "border turn $case: not here" ;;
	*) fail "border turn $case" "$work/out" ;;
	esac
done
also=

[ -z "${BORDER_FEW:-}" ] || finish # in a virtual machine, where all takes long

# The process that drops can't write a record afterwards.
"$cowshed" run --report="$work/report" -- "$border" child fork ids clean nothing >"$work/out" 2>&1
[ "$(id -u)" -ne 0 ] || says "border the report counts strangers" '^  strangers   1 process gave up' "$work/report"

# An unmodified prefork server: a master with a table, a worker that became nobody.
master() {
	"$python" - <<'END'
import os
table = bytearray(4 << 20)
table[4096:4110] = b'admin=alice   '
pid = os.fork()
if pid == 0:
    if os.getuid() == 0:
        os.setgroups([]), os.setgid(65534), os.setuid(65534)
    for fd in range(3, 4096):
        try:
            if not os.readlink(f'/proc/self/fd/{fd}').startswith('/memfd:cowshed'):
                continue
            at = 0
            while True:
                at = os.lseek(fd, at, os.SEEK_DATA)
                end = os.lseek(fd, at, os.SEEK_HOLE)
                found = os.pread(fd, end - at, at).find(b'admin=alice')
                if found >= 0:
                    os.pwrite(fd, b'admin=mallory', at + found)
                at = end
        except OSError:
            pass
    os._exit(0)
os.waitpid(pid, 0)
print(bytes(table[4096:4110]))
END
}

if [ "$(id -u)" -ne 0 ]; then
	skip "border CPython it needs root"
elif python=$(python3 -c 'import sys; print(sys.executable)' 2>/dev/null); then
	export python
	export -f master
	plainly bash -c master >"$work/out" 2>&1
	says "border CPython's master without the shim" "admin=alice   " "$work/out"
	under default bash -c master >"$work/out" 2>&1
	says "border CPython's master keeps its table" "admin=alice   " "$work/out"
else
	skip "border CPython no python3 here"
fi

# Calls that no library sees: each child is a stranger from its first instruction.
if ! grep -q '`border' docs/options.md; then
	skip "border border=fork: there is no such option"
else
	also=border=fork rows "child sibling" fork "unseen ids" "clean freed" "held write read grow"
	also=border=fork row parent fork unseen clean write
	also=border=fork rows child thread-unseen none clean "held write"
	also=border=copies rows child fork ids "clean freed dense" "held write read grow"
fi

if [ -n "${QUICK:-}" ]; then
	for way in ids ids-strict landlock new-user files kills generations threads probes; do
		program border_works "$way"
	done
else
	program border_works
fi

states=$(list states)
[ -n "${LONG:-}" ] || finish

rows child fork "$ways" freed "read grow"
rows child fork ids "$states" "read write held grow words-0 words-1 pipe-late pipe-exec"
rows child fork ids "thawed-late warm freed" "map open seal own pipe pipe-unmap pipe-fd watch"
rows child fork "landlock chroot" "$states" "files-read files-write files-punch"
rows "$(list directions)" fork "ids landlock" "clean dense" "write held words-0 grow"
BORDER_MMAP=1 also=mmap=1M rows child fork ids \
	"clean one thawed warm freed dontfork-new wipeonfork-new" "write read grow words-0"
finish
