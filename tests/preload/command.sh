#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The command: `cowshed run` ends as the program does and reports when asked;
# stat and top see a running program from outside.
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

ends 0 'run --copies' "$cowshed" run --copies auto -- \
	sh -c 'case $LD_PRELOAD in *preload.so:*copies.so) ;; *) false ;; esac'
ends 0 'run -o copies=lazy' "$cowshed" run -o copies=lazy -- \
	sh -c 'case $LD_PRELOAD in *copies.so) ;; *) false ;; esac'
ends 0 'run --copies off' "$cowshed" run --copies off -- \
	sh -c 'case $LD_PRELOAD in *copies.so) false ;; esac'
# copies WANTED ENVIRONMENT OPTION...: the last value counts; -o comes after the environment
copies() {
	local wanted=$1 in_environment=$2
	shift 2
	ends 0 "run $* under COWSHED_OPTIONS=$in_environment: copies $wanted" \
		env COWSHED_OPTIONS="$in_environment" "$cowshed" run "$@" -- \
		sh -c "case \$LD_PRELOAD in *copies.so) echo yes ;; *) echo no ;; esac |
			grep -qx $wanted"
}
copies yes copies=lazy
copies yes threshold=4M,copies=auto,decay=500 -o threshold=2M
copies yes copies=off --copies auto
copies yes 'copies = lazy , heal=3'
copies no copies=lazy --copies off
copies no copies=lazy,copies=off
copies no report=/dev/null,copies=off
ends 2 'run --copies never' "$cowshed" run --copies never -- true

: >"$work/no-program"
for how in '' --report; do
	ends 0 "run $how: success" "$cowshed" run $how -- true
	ends 7 "run $how: exit 7" "$cowshed" run $how -- sh -c 'exit 7'
	ends 127 "run $how: not found" "$cowshed" run $how -- /no/such/program
	ends 126 "run $how: cannot be run" "$cowshed" run $how -- "$work/no-program"
	bash -c '"$@"; exit $?' bash "$cowshed" run $how -- sh -c \
		'kill -TERM $$' >/dev/null 2>&1
	if [ $? -eq 143 ]; then
		pass "run $how: dies of the program's signal"
	else
		fail "run $how: dies of the program's signal"
	fi
done

# A wrapper asks for nothing large; its child does.
"$cowshed" run --report="$work/report" -- sh -c 'head -c 20000000 /dev/zero | perl -e "\$x = <STDIN>"; :'
tr -s '\n ' ' ' <"$work/report" >"$work/lines"
says 'run --report: a wrapper and its child' \
	'note the program itself asked for nothing as large as the threshold; what processes .* more, together: [1-9]' "$work/lines"

# Signals are sent to `cowshed run --report` alone, and the program gets each once. The trap of
# the last one ends it. Each is a job of its own, so that no signal is ignored from the start.
mkfifo "$work/heard"
exec 7<>"$work/heard"
is_gone() { ! kill -0 "$1" 2>/dev/null; }
# started COMMAND...: runs it by cowshed, which is $pid; the command prints its own number first
started() {
	set -m
	"$cowshed" run --report="$work/report" -- "$@" >&7 2>"$work/err" </dev/null &
	pid=$!
	set +m
	read -rt 60 program_pid <&7 || program_pid=
}
started bash -c 'for s in INT TERM HUP; do trap "echo $s" $s; done
	trap "echo QUIT; kill \$!; exit 9" QUIT
	sleep 1000 >&2 & echo $$; while :; do wait; done'
for signal in INT TERM HUP QUIT; do
	kill -s "$signal" "$pid"
	read -rt 60 got <&7 || got=nothing
	if [ "$got" = "$signal" ]; then pass "run --report: forwards SIG$signal"; else
		echo "$got" >"$work/got"
		fail "run --report: forwards SIG$signal" "$work/got" "$work/err"
		kill -s "$signal" "${program_pid:-$pid}" && read -rt 60 got <&7
	fi
done
wait "$pid"
if [ $? -eq 9 ]; then pass 'run --report: ends as the program did after signals'; else
	fail 'run --report: ends as the program did after signals'; fi
if read -rt 0.1 got <&7; then fail 'run --report: forwards each once'; else
	pass 'run --report: forwards each once'; fi
# All signals, those of libc and the real-time ones with their values among them.
for how in --report="$work/report" profile; do
	set -m
	if [ "$how" = profile ]; then how="profile --output $work/page"; else how="run $how"; fi
	"$cowshed" $how -- "$programs/all_signals" >&7 2>"$work/err" </dev/null &
	pid=$!
	set +m
	read -rt 60 program_pid <&7 || program_pid=
	timeout "$limit" "$programs/all_signals" send "$pid" <&7 2>"$work/sent"
	got=$?
	if [ $got -ne 0 ]; then kill -TERM "${program_pid:-$pid}"; else kill -TERM "$pid"; fi
	wait "$pid" 2>/dev/null
	if [ $? -eq 3 ] && [ $got -eq 0 ]; then pass "${how%% *}: forwards every signal"; else
		fail "${how%% *}: forwards every signal" "$work/sent" "$work/err"
	fi
done
# A stop of the terminal's kind stops both, as the shell awaits, and SIGCONT continues both.
is_stopped() { [[ $(cat "/proc/$1/stat") == *') T '* ]]; }
both_stopped() { is_stopped "$pid" && is_stopped "$program_pid"; }
both_run() { ! is_stopped "$pid" && ! is_stopped "$program_pid"; }
for signal in TSTP TTIN TTOU; do
	started sh -c 'echo $$; exec sleep 1000'
	stop() { kill -s "$signal" "$pid"; both_stopped; }
	if limit=20 until_true stop && kill -CONT "$pid" && limit=20 until_true both_run; then
		pass "run --report: SIG$signal and SIGCONT"
	else
		fail "run --report: SIG$signal and SIGCONT" "$work/err"
		kill -KILL "${program_pid:-$pid}"
	fi
	kill -CONT "$pid"; kill -TERM "$pid"
	wait "$pid" 2>/dev/null
done
# The end by a signal is the program's, whatever signal it is.
for number in 1 9 10 13 14 24 32 33 34 64; do
	"$programs/all_signals" die $number >/dev/null 2>&1
	plain=$?
	timeout "$limit" "$cowshed" run --report="$work/report" -- "$programs/all_signals" die $number >/dev/null 2>&1
	got=$?
	if [ $got -eq $plain ] && [ $got -eq $((128 + number)) ]; then pass "run --report: dies as the program of $number"
	else fail "run --report: dies as the program of $number ($got, not $plain)"; fi
done 2>/dev/null # bash says which signal
# More than once: bash ignores SIGQUIT until it has become sleep.
killed() { kill -s "$signal" "$pid"; is_gone "$pid"; }
for signal in INT TERM HUP QUIT; do
	started bash -c 'ulimit -c 0; echo $$; exec sleep 1000'
	limit=20 until_true killed || kill -KILL "${program_pid:-$pid}"
	wait "$pid" 2>/dev/null
	got=$?
	if [ $got -eq $((128 + $(kill -l "$signal"))) ]; then
		pass "run --report: dies of a forwarded SIG$signal"
	else
		fail "run --report: dies of a forwarded SIG$signal" "$work/err"
	fi
done
exec 7>&-

# no_record NAME PATTERN COMMAND...
no_record() {
	local name=$1 pattern=$2
	shift 2
	bash -c '"$@"; exit $?' bash timeout "$limit" "$cowshed" run \
		--report="$work/report" -- "$@" >/dev/null 2>&1
	tr -s '\n ' ' ' <"$work/report" >"$work/lines"
	says "no record: $name" "no record $pattern" "$work/lines"
}
no_record 'killed' "a process that SIGKILL ends can't" sh -c 'kill -KILL $$'
no_record 'a signal' 'a signal ended the process before' sh -c 'kill -TERM $$'
no_record 'not loaded' 'the program did not load the shim (it is' env -u LD_PRELOAD true
no_record 'no descriptor' 'the program .* or had no free descriptor: ulimit -n)' sh -c 'ulimit -n 3'
"$cowshed" run --report="$work/report" -- true 2>/dev/null
if grep -q 'no record' "$work/report"; then fail 'a record, else' "$work/report"; else
	pass 'a record, else'; fi
"$cowshed" run --backing anon --report="$work/report" -- "$programs/zero" >"$work/out" 2>&1
tr -s '\n ' ' ' <"$work/report" >"$work/lines"
says 'fallbacks are explained' \
	' backing blocks were given anonymous memory by policy to change: cowshed run --backing memfd' \
	"$work/lines"
# The engine's descriptors lie from 64 on then, or higher.
(ulimit -n 64 && "$cowshed" run --report="$work/report" -- "$programs/zero" >"$work/out" 2>&1)
tr -s '\n ' ' ' <"$work/report" >"$work/lines"
if grep -q ' pagemap ' "$work/lines"; then
	says 'few descriptors are named as a cause' \
		' pagemap cowshed could not read .* to change: ulimit -n 1024, if it is 64 or less; else mount' "$work/lines"
else
	skip 'few descriptors are named as a cause: no page map was wanted'
fi

# Pages that the kernel copied are counted at a fork, if at all.
counted() { # FORKS: rewrites 20 MB beside a child, then forks so often
	"$cowshed" run --report="$work/report" -o threshold=1M -- perl -e '$x = "a" x 20e6;
		pipe R, W; if (!fork) { close W; <R>; exit }
		$x =~ tr/a/b/;
		for (1 .. shift) { exit if !fork; wait }
		close W; wait' "$1" >"$work/out" 2>"$work/err"
}
if command -v perl >/dev/null; then
	counted 0
	if grep -q 'pages when written' "$work/report"; then
		fail 'pages that no fork counted are not 0' "$work/report"
	else
		pass 'pages that no fork counted are not 0'
	fi
	counted 1
	if grep -q 'extents, [1-9].* MiB' "$work/report"; then
		says 'pages that a fork counted' '^ *[1-9][0-9 ]* pages when written, as a fork last counted' "$work/report"
	else
		skip 'pages that a fork counted: nothing is frozen here'
	fi
else
	skip 'pages that a fork counted: no perl here'
fi

# A forked child counts what it inherited. Its parent counts that, too, so a sum leaves it out.
if command -v perl >/dev/null; then
	"$cowshed" run --report="$work/report" -o threshold=1M -- \
		perl -e '$x = "a" x 20e6; exit if !fork; wait' >"$work/out" 2>"$work/err"
	tr -s '\n ' ' ' <"$work/report" >"$work/lines"
	says 'run --report: what a child inherited was served once' \
		'processes 1 more, together: 0 B served, peak of the largest [1-9]' "$work/lines"
else
	skip 'run --report: what a child inherited: no perl here'
fi

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
# Each command that the overview lists has a help, which begins with its usage.
for name in $("$cowshed" help | sed -n 's/^  \([a-z][a-z]*\)  .*/\1/p'); do
	ends 0 "help of $name" "$cowshed" help "$name"
	says "help of $name: how it is called" "^Usage: cowshed $name" "$work/out"
done

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

# ---- Programs that can't load the shim ----
# without NAME WHY STATUS COMMAND...: runs without the shim, and says in one line why
without() {
	local name=$1 why=$2 status=$3 how
	shift 3
	for how in '' "--report=$work/report"; do
		ends "$status" "run ${how%%=*}: $name" "$cowshed" run $how -- "$@"
		if [ "$(grep -c "^cowshed: '.*' runs without cowshed, because $why" \
			"$work/err")" -eq 1 ] &&
			[ "$(wc -l <"$work/err")" -eq 1 ]; then
			pass "run ${how%%=*}: $name says so"
		else
			fail "run ${how%%=*}: $name says so" "$work/err"
		fi
	done
}

# built FILE ARGUMENTS...: a small program that prints its LD_PRELOAD, status 5
built() {
	local file=$1
	shift
	cat >"$work/small.c" <<-'END'
		#include <stdio.h>
		#include <stdlib.h>
		#include <unistd.h>

		int main(int argc, char **argv)
		{
			if (argc > 2 && argv[1][0] == '-')
				execvp(argv[2], argv + 2);
			puts(getenv("LD_PRELOAD") ? "asked" : "not asked");
			return 5;
		}
	END
	"$@" -o "$file" "$work/small.c" 2>/dev/null && "$file" >/dev/null
	[ $? -eq 5 ]
}

cc=$(command -v gcc || command -v cc || command -v clang)
if [ -n "$cc" ] && built "$work/static" "$cc" -static; then
	without 'static' 'it is linked statically' 5 "$work/static"
	printf '#!%s\n' "$work/static" >"$work/script"
	chmod +x "$work/script"
	without 'script of a static one' 'it is linked statically' 5 \
		"$work/script"
	"$cowshed" run --report="$work/report" -- "$work/static" - \
		"$programs/zero" >"$work/out" 2>"$work/err"
	says 'run: what a static program becomes is served' \
		'served *[0-9]' "$work/report"
else
	skip 'run: static: no static program can be linked here'
fi
if [ -n "$cc" ] && built "$work/pie" "$cc" -static-pie; then
	without 'static-pie' 'it is linked statically' 5 "$work/pie"
else
	skip 'run: static-pie: none can be linked here'
fi
if command -v musl-gcc >/dev/null && built "$work/musl" musl-gcc; then
	without 'musl' 'it uses another libc' 5 "$work/musl"
	says 'run: musl is not asked' '^not asked' "$work/out"
else
	skip 'run: musl: no musl-gcc here'
fi

for kind in address thread leak; do
	for how in '' "-static-lib${kind:0:1}san"; do
		if [ -n "$cc" ] && built "$work/checked" "$cc" -fsanitize="$kind" $how; then
			without "$kind sanitizer $how" 'it has a sanitizer' 5 "$work/checked"
			says "run: $kind sanitizer $how: it is not asked" '^not asked' "$work/out"
		else
			skip "run: no $kind sanitizer $how here"
		fi
	done
done

# Copies with another byte in the header. The kernel may or may not start them.
head_byte() { # FILE OFFSET OCTAL
	cp "$programs/zero" "$1" &&
		printf "\\$3" | dd of="$1" bs=1 seek="$2" conv=notrunc \
			status=none
}
head_byte "$work/class32" 4 001
head_byte "$work/machine" 18 052
for file in class32 machine; do
	"$cowshed" run -- "$work/$file" >"$work/out" 2>"$work/err"
	says "run: $file" "runs without cowshed, because it is made for another" \
		"$work/err"
done

# As another user than root, so that there are privileges to gain.
if [ "$(id -u)" -eq 0 ] && id nobody >/dev/null 2>&1 &&
	command -v setpriv >/dev/null; then
	chmod 755 "$work"
	cp "$programs/zero" "$work/raised" && chmod 4755 "$work/raised"
	mkdir "$work/lib" "$work/bin" && cp "$cowshed" "$work/bin" &&
		cp "$BUILD"/lib/*.so* "$work/lib"
	nobody() { setpriv --reuid=nobody --clear-groups "$@"; }
	nobody "$work/bin/cowshed" run -- "$work/raised" >"$work/out" 2>"$work/err"
	says 'run: set-user-ID' 'because it runs with raised privileges' "$work/err"
	nobody --no-new-privs "$work/bin/cowshed" run -- "$work/raised" \
		>"$work/out" 2>"$work/err"
	if [ -s "$work/err" ]; then
		fail 'run: set-user-ID that gains nothing' "$work/err"
	else
		pass 'run: set-user-ID that gains nothing'
	fi
	# The loader of such a program ignores the shim and prints nothing.
	nobody "$work/raised" >"$work/plain.out" 2>"$work/plain.err"
	plain=$?
	LD_PRELOAD=$work/lib/libcowshed-preload.so nobody "$work/raised" \
		>"$work/shim.out" 2>"$work/shim.err"
	got=$?
	same 'LD_PRELOAD and set-user-ID'

	# If the administrator preloads the shim everywhere, it is loaded there, too. It
	# must ignore the caller's environment then. The file names the library beside it,
	# too, because the loader does not look at $ORIGIN then.
	mkdir -m 777 "$work/told"
	cp "$(command -v cat)" "$work/cat" && cp "$work/cat" "$work/raised_cat" &&
		chmod 4755 "$work/raised_cat"
	everywhere() { # NAME PROGRAM: its maps and identity to $work/out
		$(own_mounts) bash -c 'mount -t tmpfs none /etc && printf "%s\n" \
			"$1/libcowshed.so.0" "$1/libcowshed-preload.so" >/etc/ld.so.preload &&
			exec setpriv --reuid=65534 --clear-groups env COWSHED_OPTIONS="$2" \
			"$3" /proc/self/maps /proc/self/status' bash "$work/lib" \
			"threshold=4096,report=$work/told/$1" "$2" >"$work/out" 2>"$work/err"
	}
	if ! everywhere plain "$work/cat" || [ ! -s "$work/told/plain" ]; then
		skip 'run: set-user-ID with the shim: no /etc/ld.so.preload of our own here'
	elif ! everywhere raised "$work/raised_cat" || ! grep -q \
		'^Uid:[[:blank:]]*65534[[:blank:]]*0[[:blank:]]' "$work/out"; then
		skip 'run: set-user-ID with the shim: nothing is raised here'
	else
		says 'set-user-ID with the shim: it is loaded' libcowshed-preload.so "$work/out"
		if [ -e "$work/told/raised" ]; then
			fail "set-user-ID with the shim: the caller's options do nothing" "$work/told/raised"
		else
			pass "set-user-ID with the shim: the caller's options do nothing"
		fi
	fi
else
	skip 'run: set-user-ID: needs root, nobody and setpriv'
fi

# ---- From outside ----
# Ready when it says so, alive until its stdin ends.
mkfifo "$work/ready" "$work/go"
perl=$(command -v perl)
if [ -n "$perl" ]; then
	# Where memfds are slow, libc serves blocks by default.
	"$cowshed" run -o threshold=1M -- perl -e '$x = "a" x 20e6; $| = 1;
		open F, ">", $ARGV[0]; print F "ready\n"; close F;
		open G, "<", $ARGV[1]; <G>; print length $x' \
		"$work/ready" "$work/go" >"$work/perl.out" 2>"$work/perl.err" &
	pid=$!
	read -r _ <"$work/ready"
	ends 0 'stat' "$cowshed" stat "$pid"
	says 'stat: when pages are counted' '^  pages_private .*  copied when written, as a fork last counted$' "$work/out"
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

# A hostile process has a descriptor whose name looks like statistics. It is a fifo
# without a writer, on a mount that is gone.
mkdir "$work/mount"
$(own_mounts) bash -c 'mount -t tmpfs none "$1" && cd "$1" &&
	mkfifo memfd:cowshed-stats && exec 9<>memfd:cowshed-stats &&
	exec 8<memfd:cowshed-stats 9>&- && cd / && umount -l "$1" &&
	exec sleep 1000' bash "$work/mount" 2>"$work/err" &
pid=$!
looks_like_statistics() {
	[ "$(cat "/proc/$pid/comm")" = sleep ] || ! kill -0 "$pid"
}
until_true looks_like_statistics
if [ "$(readlink "/proc/$pid/fd/8")" = /memfd:cowshed-stats ]; then
	limit=10 ends 2 'stat of a fifo does not hang' "$cowshed" stat "$pid"
	limit=10 ends 0 'top does not hang either' "$cowshed" top -b -n 1
else
	skip 'stat of a fifo: no mounts here'
fi
kill "$pid" 2>/dev/null
wait "$pid" 2>/dev/null

ends 2 'stat of nothing' "$cowshed" stat

if compgen -G "$work/cowshed-*" >"$work/out"; then
	fail 'run --report leaves nothing in TMPDIR' "$work/out"
else
	pass 'run --report leaves nothing in TMPDIR'
fi
finish
