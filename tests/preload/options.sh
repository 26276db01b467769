#!/bin/bash
# SPDX-License-Identifier: MIT
#
# LD_PRELOAD and COWSHED_OPTIONS: the shim serves, is found in any folder, obeys its
# options, and ignores those that it does not understand; what looks at the process names these.
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

# The record names all that were not understood; the other options hold.
unknown() { # OPTIONS WANTED
	rm -f "$work/report"
	with "$1${1:+,}report=$work/report" "$test_program" >/dev/null 2>&1
	if [ "$(sed -n "s/.* unknown=/ unknown=/p" "$work/report" | sort -u)" = "${2:+ unknown=$2}" ]; then
		pass "the record names ${2:-nothing}: $1"
	else
		fail "the record names ${2:-nothing}: $1" "$work/report"
	fi
}
unknown '' ''
unknown threshold=64K,backing=anon ''
unknown nonsense=1,straw=2 nonsense=1,straw=2
unknown 'threshold=64K, decay=3600001 ,nonsense=1,,' decay=3600001,nonsense=1
unknown window=1 window=1
unknown threshold=banana threshold=banana
unknown mmap=1X mmap=1X
unknown 'x y,=3' 'x?y,=3'
unknown quiet=signal ''
unknown quiet=blocked ''
unknown quiet=loud quiet=loud
unknown "x=$(head -c 600 /dev/zero | tr '\0' y)" "x=$(head -c 198 /dev/zero | tr '\0' y)"
rm -f "$work/report"
with "$(printf 'key%d=1,' {1..80})report=$work/report" "$test_program" >/dev/null 2>&1
says 'the record says that there are more' ' unknown=key1=1,key2=1,.*,key[0-9]*=1,\.\.\.$' "$work/report"

# Blanks around commas and equals signs do not count, and no length is too long.
reports 'heal=3, threshold = 1000G' 'blanks before and behind an option' "$test_program"
served_as -eq 0 "$work/report" 'an option behind a blank holds'
says 'the record has the options that hold' ' version=[0-9.]* .*options=heal=3,threshold=1000G,report=' "$work/report"
reports "$(printf 'decay=%d,' {1..4}{0..9}{1..9})threshold=1000G" 'a long list' "$test_program"
served_as -eq 0 "$work/report" 'the end of a long list holds'

# What looks at the process names them, too.
cat >"$work/asks" <<END
head -c 20000000 /dev/zero | COWSHED_OPTIONS='heal=2, foo=bar,mmap=1X' LD_PRELOAD=$shim \
	perl -e '\$x = <STDIN>; delete \$ENV{LD_PRELOAD};
		system("$cowshed stat \$\$; $cowshed stat --json \$\$; $cowshed top -b -n 1; $cowshed doctor")'
END
bash "$work/asks" 2>&1 | tr -s '\n ' ' ' >"$work/said"
says 'stat: options that hold' 'options heal=2 ignored' "$work/said"
says 'stat: version and commit' ' version 0[.0-9]*, commit [0-9a-fu]' "$work/said"
says 'stat: which were ignored, and why' \
	"ignored 'foo=bar' was ignored: there is no option 'foo'; 'mmap=1X' was ignored: this option takes a num" "$work/said"
says 'stat --json: options' '"options": "heal=2", "refused": "foo=bar,mmap=1X"' "$work/said"
says 'top: what was ignored' "cowshed top .* 'foo=bar' was ignored: there is no option 'foo'" "$work/said"
says 'doctor: the environment' "note options: heal=2, foo=bar,mmap=1X: there is no option 'foo'" "$work/said"
says 'doctor: processes' "note a process: perl (pid [0-9]*): 'foo=bar' was ignored" "$work/said"
# One that was served nothing, perhaps because of a mistake.
COWSHED_OPTIONS='threshold=1000G, mmap=1X' LD_PRELOAD=$shim perl -e 'delete $ENV{LD_PRELOAD};
	system("$ARGV[0] stat $$ 2>&1; $ARGV[0] top -b -n 1; $ARGV[0] doctor; echo $$ >&2")' \
	"$cowshed" 2>"$work/pid" | tr -s '\n ' ' ' >"$work/said"
says 'stat: a process that was served nothing' 'has the shim, but asked for nothing as large as the threshold' "$work/said"
says 'stat: what it ignored' "'mmap=1X' was ignored: this option takes a number of bytes" "$work/said"
unserved="$(cat "$work/pid") perl asked for nothing as large as the threshold 'mmap=1X' was ignored"
says 'top: a process that was served nothing' "cowshed top .* $unserved" "$work/said"
says 'doctor: a process that was served nothing' \
	"note a process: perl (pid $(cat "$work/pid")): 'mmap=1X' was ignored" "$work/said"

timeout "$limit" "$cowshed" run --report -o ' helper=no,heal = 2 ' -o decay=9 -- "$test_program" >/dev/null 2>"$work/err"
says 'run --report: options that hold' '^  options     helper=no, heal=2, decay=9$' "$work/err"
says 'run --report: version and commit' '^  version     0[.0-9]*, commit [0-9a-fu]' "$work/err"
if grep -q '^  ignored' "$work/err"; then fail 'run --report: nothing was ignored' "$work/err"; else
	pass 'run --report: nothing was ignored'; fi

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
