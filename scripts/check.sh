#!/bin/bash
# SPDX-License-Identifier: MIT
#
# check.sh PROGRAM|SCRIPT...: runs tests, some at a time, and says what became of them: a line
# for each group (a folder of tests/), the reasons of skipped tests, the output of failed ones,
# how long is left; at the end the failures again, and "N passed, N failed, N skipped".
#
# Runs in the repository's root. Environment:
#     BUILD, MODE      the build and its mode
#     T=TEXT           run only tests with TEXT in their path
#     QUICK=1          tests that know it do less (mk/check.mk); LONG=1: they do more
#     STRICT=1         a skipped test is a failure
#     JOBS=3           tests at a time, else one more than processors; LIMIT=SECONDS: for each, generous for busy machines
#     BUDGET=SECONDS   start no test after this time; the rest counts as skipped
#     AROUND=COMMAND   runs each program (valgrind)
#     FUZZ_SECONDS=60  in MODE=fuzz, for each target
set -u
export BUILD MODE=${MODE:-plain} LC_ALL=C
BUILD=$(cd "${BUILD:-build/plain}" && pwd) || exit 1
unset LD_PRELOAD MAKEFLAGS MAKELEVEL MFLAGS
export FUZZ_SECONDS=${FUZZ_SECONDS:-60} AROUND=${AROUND:-} CK_TIMEOUT_MULTIPLIER=${CK_TIMEOUT_MULTIPLIER:-4}
export LIMIT=${LIMIT:-$([ "$MODE" = fuzz ] && echo $((FUZZ_SECONDS + 120)) || echo 1200)}
# Expected crashes stay crashes, except under a fuzzer. Tests fork.
traps=$([ "$MODE" = fuzz ] || echo handle_segv=0:handle_sigbus=0:handle_abort=0:handle_sigill=0)
export ASAN_OPTIONS=$traps${ASAN_OPTIONS:+:$ASAN_OPTIONS}
export TSAN_OPTIONS=$traps:die_after_fork=0${TSAN_OPTIONS:+:$TSAN_OPTIONS}
export LLVM_PROFILE_FILE=$BUILD/profiles/%m%c.profraw UBSAN_OPTIONS=$traps:print_stacktrace=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}
[ "$MODE" != tsan ] || ! setarch -R true 2>/dev/null || AROUND="setarch -R"
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
[ -t 1 ] && clear=$'\r\e[K' || clear=
short() { local n=${1#build/*/}; echo "${n#tests/}"; }

# The tests, each group in one piece: "GROUP TENTHS NAME". Tenths of a second are those of the last
# run here, else of tests/seconds.txt, else 10. A group begins with its longest test.
known=$BUILD/seconds${QUICK:+-quick}
for name in "$@"; do
	[[ $name != *"${T:-}"* ]] || { n=$(short "$name") && echo "${n%/*} $n $name"; }
done | awk -v known="$known" '
	BEGIN { while ((getline line < "tests/seconds.txt") > 0 || (getline line < known) > 0)
		if (split(line, f, " ") == 2) tenths[f[1]] = int(f[2] * 10) }
	{ if (!($1 in rank)) rank[$1] = NR
	  print rank[$1], ($2 in tenths) ? tenths[$2] : 10, $1, $3 }' |
	sort -k1,1n -k2,2nr | cut -d' ' -f2- >"$tmp/tests"
declare -A running=() tenths=() group_of=() todo=() programs=() good=() bad=() skips=() began=() notes=()
all=0 done=0 rest=0 past=0 passed=0 failed=0 skipped=0 jobs=${JOBS:-$(($(nproc) + 1))}
while read -r t group name; do
	group_of[$name]=$group tenths[$name]=$t
	todo[$group]=$((${todo[$group]:-0} + 1)) programs[$group]=${todo[$group]}
	all=$((all + 1)) rest=$((rest + t))
done <"$tmp/tests"

left() { # by the speed of this run so far
	local s=$((rest / jobs / 10))
	[ $past -lt 200 ] || s=$((rest * SECONDS / past))
	[ $s -ge 90 ] && echo "$(((s + 30) / 60)) min left" || echo "$s s left"
}
start() {
	local out=$tmp/${1//\//_}.out
	if [ -n "${BUDGET:-}" ] && [ "$SECONDS" -ge "$BUDGET" ]; then
		echo "skip $(short "$1") not begun within $BUDGET s" >"$out"
		echo "0 $([ "${STRICT:-0}" = 1 ] && echo '1 0' || echo '0 1') 0 77" >"$out.count" &
	else bash scripts/check-one.sh "$1" "$out" >"$out.count" & fi
	running[$!]=$1
	: "${began[${group_of[$1]}]:=$SECONDS}"
}
reap() { # waits for one test, and says what became of it
	local pid=0 name g out p f s t status
	wait -n -p pid "${!running[@]}"
	name=${running[$pid]} g=${group_of[$name]} out=$tmp/${name//\//_}.out
	unset "running[$pid]"
	read -r p f s t status <"$out.count" || { p=0 f=1 s=0 t=0 status=1; echo "failed: $name (no result)" | tee "$out.failed" >>"$out"; }
	done=$((done + 1)) past=$((past + ${tenths[$name]})) rest=$((rest - ${tenths[$name]}))
	passed=$((passed + p)) failed=$((failed + f)) skipped=$((skipped + s))
	good[$g]=$((${good[$g]:-0} + p)) bad[$g]=$((${bad[$g]:-0} + f)) skips[$g]=$((${skips[$g]:-0} + s))
	echo "$(short "$name") $t" >>"$tmp/seconds"
	notes[$g]+=$(grep -a '^skip ' "$out" | sed 's/^/      /')$'\n'
	[ "$f" -eq 0 ] || printf '%s\n' "$clear---- $name failed (exit status $status):" \
		"$(grep -a -v '^ok ' "$out" | tail -n 200)" ----
	[ -z "${V:-}" ] || printf '%s    %-40s %4d ok %6.1f s\n' "$clear" "$(short "$name")" "$p" "$t"
	if [ $((todo[$g] -= 1)) -eq 0 ]; then
		printf '%s  %-16s %3d programs %5d ok%s%s %5d s, %s\n' "$clear" "$g" "${programs[$g]}" \
			"${good[$g]}" "$([ "${bad[$g]}" -eq 0 ] || echo ", ${bad[$g]} FAILED")" \
			"$([ "${skips[$g]}" -eq 0 ] || echo ", ${skips[$g]} skipped")" \
			$((SECONDS - ${began[$g]})) "$(left)"
		grep . <<<"${notes[$g]}"
	fi
	[ -z "$clear" ] || printf '%s  [%d/%d] %s, %s' "$clear" $done $all "$(short "$name")" "$(left)"
}
[ $all -eq 0 ] || echo "check: $all programs and scripts, $jobs at a time, $(left)"
while read -r _ _ name; do
	[ ${#running[@]} -lt "$jobs" ] || reap
	start "$name"
done <"$tmp/tests"
while [ ${#running[@]} -gt 0 ]; do reap; done
if [ $all -eq 0 ]; then echo "check.sh: no test has '${T:-}' in its path" && failed=1; fi
[ -n "${T:-}${BUDGET:-}" ] || mv "$tmp/seconds" "$known"
printf %s "$clear" && cat "$tmp"/*.failed 2>/dev/null
printf '%d passed, %d failed, %d skipped\n' $passed $failed $skipped
[ $failed -eq 0 ]
