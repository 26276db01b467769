#!/bin/bash
# SPDX-License-Identifier: MIT
#
# check.sh PROGRAM|SCRIPT...: runs each, two at a time, and adds up the single
# tests. They are counted from libcheck's "NN%: Checks: ..." and from lines "ok NAME",
# "not ok NAME", "skip NAME reason". What prints neither has failed (exit status 77: is skipped),
# but for examples and fuzzers, and so has what left no result. Shows the output of what failed.
#
# Runs in the repository's root with BUILD (made absolute) and MODE in the
# environment. A .py is run by the run.sh beside it. LIMIT: seconds for each. STRICT=1: a skip
# is a failure. T=text: only what has it in its name. AROUND: a command that runs each
# program (valgrind). MODE=fuzz: FUZZ_SECONDS (60) for each target, with its corpus.
set -u
export BUILD MODE LC_ALL=C
BUILD=$(cd "${BUILD:-build/plain}" && pwd) || exit 1
MODE=${MODE:-plain}
limit=${LIMIT:-$([ -n "${LONG:-}" ] && echo 1800 || echo 240)}
[ "$MODE" != fuzz ] || limit=$((${FUZZ_SECONDS:=60} + 120))
unset LD_PRELOAD MAKEFLAGS MAKELEVEL MFLAGS
# Expected crashes stay crashes (there are none in fuzzing); tests fork. Sanitizers take their time.
traps=$([ "$MODE" = fuzz ] || echo handle_segv=0:handle_sigbus=0:handle_abort=0:handle_sigill=0)
export ASAN_OPTIONS=$traps${ASAN_OPTIONS:+:$ASAN_OPTIONS}
export TSAN_OPTIONS=$traps:die_after_fork=0${TSAN_OPTIONS:+:$TSAN_OPTIONS}
export LLVM_PROFILE_FILE=$BUILD/profiles/%m%c.profraw UBSAN_OPTIONS=$traps:print_stacktrace=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}
case $MODE in asan | tsan | cov) : "${CK_TIMEOUT_MULTIPLIER:=4}" ;; esac
if [ -n "${CK_TIMEOUT_MULTIPLIER:-}" ]; then
	export CK_TIMEOUT_MULTIPLIER
	limit=$(awk "BEGIN { print $limit * $CK_TIMEOUT_MULTIPLIER }")
fi
around=${AROUND:-}
[ "$MODE" != tsan ] || ! setarch -R true 2>/dev/null || around="setarch -R"
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
names=() && : >"$tmp/result"

# count OUTPUT STATUS NAME: prints "passed failed skipped"
count() {
	awk -v status="$2" -v strict="${STRICT:-0}" -v one="$([[ $MODE:$3 = @(*/examples/*|fuzz:*) ]] && echo 1)" '
	/^[0-9]+%: Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+/ {
		gsub(",", "")
		check = 1; bad += $5 + $7; good += $3 - $5 - $7
	}
	/^ok [^ ]/ { ok++ }
	/^not ok [^ ]/ { not_ok++ }
	/^skip [^ ]/ { skip++ }
	END {
		if (!check) { good = ok; bad = not_ok }
		if (status == 77 && good + bad + skip == 0) skip = 1
		if (status != 0 && status != 77 && bad == 0) bad = 1
		if (status == 0 && good + bad + skip == 0) { good = one; bad = !one }
		if (strict == 1) { bad += skip; skip = 0 }
		print good + 0, bad + 0, skip + 0
	}' "$1"
}

# one NAME: its counts to $tmp/result, and a line for people
one() {
	local name=$1 out start=$EPOCHREALTIME status p f s shell= with=()
	out=$tmp/${name//\//_}.out
	case $MODE:$name in
	*.sh) shell=bash ;;
	*.py | *.py:*) shell="bash ${name%/*}/run.sh" ;;
	fuzz:*/fuzz_*) # what it finds stays in the build
		with=("-max_total_time=$FUZZ_SECONDS" "-artifact_prefix=$BUILD/${name##*/}-"
			"$BUILD/corpus/${name##*fuzz_}" "tests/fuzz/corpus/${name##*fuzz_}")
		mkdir -p "${with[2]}" ;;
	esac
	{ timeout -k 10 "$limit" $around $shell "./$name" "${with[@]}" >"$out" 2>&1 </dev/null; } 2>/dev/null
	status=$?
	[[ $status != @(124|137) ]] || echo "check.sh: killed, or not done after $limit s" >>"$out"
	read -r p f s < <(count "$out" $status "$name") || p=0 f=1 s=0
	{
		echo "$p $f $s $name" >>"$tmp/result"
		if [ "$f" -gt 0 ]; then
			printf '%s\n' "---- $name failed (exit status $status):" \
				"$(grep -a -v '^ok ' "$out" | tail -n 200)" "----"
		fi
		awk -v n="${name#build/*/}" -v p="$p" -v f="$f" -v s="$s" \
			-v t="$(awk "BEGIN { print $EPOCHREALTIME - $start }")" 'BEGIN {
			printf "  %-34s %4d ok%s%s  %.1f s\n", n, p, f ? ", " f \
				" FAILED" : "", s ? ", " s " skipped" : "", t }'
		grep -a '^skip ' "$out" | sed 's/^/      /'
	} >"$out.report"
	cat "$out.report"
}

for name in "$@"; do
	[[ $name = *"${T:-}"* ]] || continue
	names+=("$name")
	while [ "$(jobs -pr | wc -l)" -ge 2 ]; do wait -n; done
	one "$name" &
done
wait
comm -23 <(printf '0 1 0 %s\n' "${names[@]}" | sort) <(sed 's/^[0-9]* [0-9]* [0-9]* /0 1 0 /' "$tmp/result" | sort) |
	grep -v ' $' | tee "$tmp/missing" | sed 's/^0 1 0 /check.sh: no result of /'
cat "$tmp/missing" >>"$tmp/result"
awk '{ p += $1; f += $2; s += $3 }
END { if (p + f + s == 0) { print "check.sh: no tests"; f = 1 }
	printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 }' \
	"$tmp/result"
