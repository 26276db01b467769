# SPDX-License-Identifier: MIT
#
# lib.sh: what the suites beside it share; sourced, never run.
#
# A suite is what others wrote: its tests run without the shim, and with it under each of
# $settings. Only differences count: a test that fails alike without the shim is the same. A
# difference is looked at again, each side once more, since such tests fail now and then. What
# differs once and not again has a line, and counts as the same.
#
# Each comparison is a line of $results: suite, setting, test, "same" or "differs". Sources come
# from Debian's source packages, into build/sources. OUTSIDE=quick: $quick is 1, minutes a suite.
set -u
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
unset LD_PRELOAD COWSHED_OPTIONS MAKEFLAGS MAKELEVEL MFLAGS
root=$PWD
shim=$root/${BUILD:-build/plain}/lib/libcowshed-preload.so
suite=$(basename "$0" .sh)
quick=$([ "${OUTSIDE:-}" != quick ] || echo 1)
settings='threshold=4096 threshold=65536,mmap=65536 default'
limit=300 # seconds of a test
# As most systems have it: below the hard limit. Else the engine's descriptors lie among the numbers
# that a program may have (docs/limits.md), and suites that look at each number meet them.
ulimit -Sn 1024
work=$root/build/outside/$suite
results=$work/results
differing=0 same=0

skip() { echo "skip outside/$suite $1" && exit 77; }
[ -e "$shim" ] || skip 'the shim is not built'
rm -rf "$work" && mkdir -p "$work/tmp" && : >"$results"

# sources SUITE PACKAGE: the folder
sources() { scripts/source.sh "$@" || skip "no sources of $2"; }

# sift FILE: what of a test's output is compared, beside its status. A suite may replace it, by
# one that prints a line for each test of the program; without such a line nothing ran.
sift() { echo 'one test'; }

# once SETTING COMMAND...: writes $work/SETTING.out, .log
once() {
	local setting=$1 status
	shift
	local with=("LD_PRELOAD=$shim" "COWSHED_OPTIONS=$setting")
	[ "$setting" != default ] || with=("LD_PRELOAD=$shim")
	[ "$setting" != none ] || with=()
	env "${with[@]}" TMPDIR="$work/tmp" setsid -w timeout -k 5 "$limit" "$@" </dev/null \
		>"$work/$setting.log" 2>&1
	status=$?
	# Without the shim both sides are the same.
	head -n 1 "$work/$setting.log" | grep -q 'cannot be preloaded' &&
		status='the shim was not loaded'
	{ sift "$work/$setting.log" && echo "status $status"; } >"$work/$setting.out"
}

# Did the run without the shim do anything? Not so: it could not be started, exceeded its time,
# or said by its status that it can't run here (77; with $absent, more).
ran() {
	local status
	status=$(sed -n 's/^status //p' "$work/none.out")
	case " 77 124 126 127 137 ${absent:-} " in *" $status "*) return 1 ;; esac
	[ "$(wc -l <"$work/none.out")" -ge 2 ]
}

# compare TEST COMMAND...
compare() {
	local name=$1 setting
	shift
	once none "$@"
	for setting in $settings; do
		if ! ran; then
			echo "skip outside/$suite: $name: nothing of it ran: $(tail -n 1 "$work/none.log")"
			return
		fi
		once "$setting" "$@"
		if ! cmp -s "$work/none.out" "$work/$setting.out"; then
			once none "$@"
			once "$setting" "$@"
			! cmp -s "$work/none.out" "$work/$setting.out" ||
				echo "note outside/$suite: $name under $setting differed once, not again"
		fi
		if cmp -s "$work/none.out" "$work/$setting.out"; then
			same=$((same + 1))
			printf '%s\t%s\t%s\tsame\n' "$suite" "$setting" "$name" >>"$results"
		else
			differing=$((differing + 1))
			printf '%s\t%s\t%s\tdiffers\n' "$suite" "$setting" "$name" >>"$results"
			echo "not ok outside/$suite: $name under $setting"
			diff "$work/none.out" "$work/$setting.out" | head -n 8 | sed 's/^/    /'
			tail -n 4 "$work/$setting.log" | cut -c1-160 | sed 's/^/    /'
		fi
	done
}

finish() {
	[ $((same + differing)) -gt 0 ] || skip 'nothing of it could run'
	[ $differing -gt 0 ] || echo "ok outside/$suite: $same comparisons"
	exit $((differing > 0))
}
