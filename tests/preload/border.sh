#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Under the shim a relative that gave up privileges reads and writes nothing that plain Linux
# would deny. tests/programs/border.c says what a row is. Each row is tried without the shim,
# too, where it must hold. With QUICK=1 these are the ways, the births, and a tenth of the rest.
. "$(dirname "$0")/lib.sh"

border=$programs/border

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

ways=$(list ways | sed 's/ none$//')
rows child fork "$ways" clean "held files-write"
born=$(list births | tr ' ' '\n' | grep -E '^(new-|thread)')
rows child "$(list births | tr ' ' '\n' | grep -vE '^(new-|thread)')" ids clean "held write"
rows child "$born" none clean "held write"

states=$(list states) attacks=$(list attacks | sed 's/blind //')
[ -z "${QUICK:-}" ] || finish

rows child fork "$ways" freed "read grow"
rows child fork "ids landlock" "$states" "$attacks"
rows "$(list directions)" fork "ids landlock filter" "clean dense" "write held words-0 grow"
BORDER_MMAP=1 also=mmap=1M rows child fork ids "$states" "write read grow held words-0"
finish
