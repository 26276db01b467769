#!/bin/bash
# SPDX-License-Identifier: MIT
#
# LD_PRELOAD and COWSHED_OPTIONS: the shim serves, is found anywhere, does what
# is asked, and shrugs at what it does not understand.
. "$(dirname "$0")/lib.sh"

test_program=$programs/zero

# with OPTIONS COMMAND...
with() {
	local options=$1
	shift
	timeout -k 5 "$limit" env LD_PRELOAD="$shim" \
		COWSHED_OPTIONS="$options" "$@"
}

plainly "$test_program" >"$work/plain.out" 2>"$work/plain.err"
plain=$?

# served_as -gt|-eq BYTES FILE NAME
served_as() { if [ "$(served "$3")" "$1" "$2" ]; then pass "$4"; else fail "$4" "$3"; fi; }

# reports OPTIONS NAME COMMAND...: to $work/report, and is as it is without the shim
reports() {
	local options=$1 name=$2
	shift 2
	rm -f "$work/report"
	with "${options:+$options,}report=$work/report" "$@" >"$work/shim.out" 2>"$work/shim.err"
	got=$?
	same "$name"
}

reports '' 'report=FILE changes nothing else' "$test_program"
served_as -gt 10000000 "$work/report" 'large blocks are served by the shim'
reports '' '_Exit changes nothing else' "$test_program" and-leave
served_as -gt 10000000 "$work/report" 'a program that leaves by _Exit reports'
reports threshold=1000G 'threshold=1000G' "$test_program"
served_as -eq 0 "$work/report" 'nothing is served below the threshold'

with "report=$work/vforks" "$programs/vforks" >/dev/null 2>&1
served_as -gt 1200000000 "$work/vforks" "a child of vfork does not report in its parent's stead"

# Values that make no sense are ignored; stdout and the end are the same.
for options in nonsense=1 nonsense, = , ,,, threshold threshold= \
	threshold=banana threshold=-1 threshold=0 threshold=1 \
	threshold=99999999999999999999999 \
	'threshold=64K,nonsense=2,threshold=4096' backing=straw \
	"x=$(head -c 60000 /dev/zero | tr '\0' y)"; do
	with "$options" "$test_program" >"$work/shim.out" 2>"$work/shim.err"
	got=$?
	cp "$work/plain.err" "$work/kept.err"
	# It may say so, once.
	if [ "$(wc -l <"$work/shim.err")" -le 1 ]; then
		cp "$work/shim.err" "$work/plain.err"
	fi
	same "options: ${options:0:50}"
	cp "$work/kept.err" "$work/plain.err"
done

for backing in memfd anon auto; do
	for name in forks zero realloc; do
		plainly "$programs/$name" >"$work/plain.out" \
			2>"$work/plain.err"
		plain=$?
		with "backing=$backing,threshold=64K" "$programs/$name" \
			>"$work/shim.out" 2>"$work/shim.err"
		got=$?
		same "backing=$backing: $name"
	done
done

# The library is found beside the shim, wherever that is.
mkdir "$work/elsewhere" && cp -L "$BUILD"/lib/*.so* "$work/elsewhere"
plainly "$test_program" >"$work/plain.out" 2>"$work/plain.err"
plain=$?
(cd / && timeout "$limit" env \
	LD_PRELOAD="$work/elsewhere/libcowshed-preload.so" "$test_program") \
	>"$work/shim.out" 2>"$work/shim.err"
got=$?
same 'the shim in another folder'

# Nothing of ours is left in the file system.
left=$(find /dev/shm /tmp -maxdepth 1 -name '*cowshed*' 2>/dev/null |
	grep -v "^$work" || true)
before=$left
with threshold=4096 "$programs/forks" >/dev/null 2>&1
left=$(find /dev/shm /tmp -maxdepth 1 -name '*cowshed*' 2>/dev/null |
	grep -v "^$work" || true)
if [ "$left" = "$before" ]; then
	pass 'no names are left behind'
else
	fail 'no names are left behind'
fi
finish
