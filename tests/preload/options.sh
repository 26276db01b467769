#!/bin/bash
# SPDX-License-Identifier: MIT
#
# LD_PRELOAD and COWSHED_OPTIONS: the shim serves, is found in any folder, obeys its
# options, and ignores those that it does not understand.
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

# The report names the first unknown key; the other options hold.
unknown() { # OPTIONS WANTED
	rm -f "$work/report"
	with "$1${1:+,}report=$work/report" "$test_program" >/dev/null 2>&1
	if [ "$(sed -n "s/.* unknown=/ unknown=/p" "$work/report" | sort -u)" = "${2:+ unknown=$2}" ]; then
		pass "the report names ${2:-nothing}: $1"
	else
		fail "the report names ${2:-nothing}: $1" "$work/report"
	fi
}
unknown '' ''
unknown threshold=64K,backing=anon ''
unknown nonsense=1,straw=2 nonsense
unknown threshold=64K,decay=3600001,nonsense=1 decay
unknown window=1 window
unknown threshold=banana threshold
unknown quiet=signal ''
unknown quiet=calls ''
unknown quiet=loud quiet
for option in nonsense=1 threshold=banana backing=straw helper=true; do
	timeout "$limit" "$cowshed" run --report -o "$option" -o nonsense=2 -- "$test_program" >/dev/null 2>"$work/err"
	says "run --report names the option that was ignored: $option" \
		"^  option      '${option%=*}' was ignored: there is no such option" "$work/err"
done
timeout "$limit" "$cowshed" run --report -o helper=no -- "$test_program" >/dev/null 2>"$work/err"
if grep -q 'was ignored' "$work/err"; then fail 'run --report names no option, else' "$work/err"; else
	pass 'run --report names no option, else'; fi

# Too long by one character, and just not too long.
head="threshold=4096,report=$work/long,x="
for length in 1023 1024; do
	rm -f "$work/long"
	with "$head$(head -c $((length - ${#head})) /dev/zero | tr '\0' y)" \
		"$test_program" >/dev/null 2>&1
	if [ "$length" -eq 1023 ] && [ -e "$work/long" ]; then
		pass 'options of 1023 characters are read'
	elif [ "$length" -eq 1024 ] && [ ! -e "$work/long" ]; then
		pass 'options of 1024 characters are ignored as a whole'
	else
		fail "options of $length characters"
	fi
done

# No file of ours is left. Other tests may run at the same time, so these folders are
# mounted for us alone while we look.
mkdir "$work/own"
TMPDIR=$work/own with threshold=4096 "$programs/forks" >/dev/null 2>&1
if [ -z "$(find "$work/own" -mindepth 1)" ]; then
	pass 'no names are left behind in TMPDIR'
else
	fail 'no names are left behind in TMPDIR'
fi
$(own_mounts) bash -c 'mount -t tmpfs none /mnt && mkdir /mnt/build &&
	mount --bind "$1" /mnt/build || exit
	for place in /tmp /var/tmp /dev/shm; do
		mount -t tmpfs none $place || exit
	done
	echo places
	unset TMPDIR
	for run in "env LD_PRELOAD=/mnt/build/lib/${2##*/}" "/mnt/build/bin/cowshed run --report"; do
		COWSHED_OPTIONS=threshold=4096 $run /mnt/build/tests/programs/forks
	done >/dev/null 2>&1
	find /tmp /var/tmp /dev/shm -mindepth 1' bash "$BUILD" "$shim" >"$work/left" 2>/dev/null
if [ "$(head -n 1 "$work/left")" != places ]; then
	skip 'no names are left behind: no places of our own here'
elif [ "$(cat "$work/left")" = places ]; then
	pass 'no names are left behind'
else
	fail 'no names are left behind' "$work/left"
fi
finish
