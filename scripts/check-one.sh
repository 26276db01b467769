#!/bin/bash
# SPDX-License-Identifier: MIT
#
# check-one.sh PROGRAM|SCRIPT OUT: runs one test for scripts/check.sh, its output to OUT, and
# prints "PASSED FAILED SKIPPED SECONDS STATUS". If it failed, a few lines in OUT.failed say why, for
# readers who have only the end of all output.
#
# Single tests are counted from libcheck's "NN%: Checks: ..." and from lines "ok NAME",
# "not ok NAME", "skip NAME reason". A program that prints neither has failed, except examples
# and fuzzers. Exit status 77 without such lines is one skipped test.
#
# A .py is run by the run.sh beside it. The environment is that of scripts/check.sh.
set -u
name=$1 out=$2 start=$EPOCHREALTIME shell= with=()
case $MODE:$name in
*.sh) shell=bash ;;
*.py | *.py:*) shell="bash ${name%/*}/run.sh" ;;
fuzz:*/fuzz_*) # what it finds stays in the build
	with=("-max_total_time=$FUZZ_SECONDS" "-artifact_prefix=$BUILD/${name##*/}-"
		"$BUILD/corpus/${name##*fuzz_}" "tests/fuzz/corpus/${name##*fuzz_}")
	mkdir -p "${with[2]}" ;;
esac
{ timeout -k 10 "$LIMIT" ${AROUND:-} $shell "./$name" "${with[@]}" >"$out" 2>&1 </dev/null; } 2>/dev/null
status=$?
[[ $status != @(124|137) ]] || echo "check.sh: killed, or not done after $LIMIT s" >>"$out"
awk -v name="${name#build/*/}" -v failed="$out.failed" -v status="$status" -v strict="${STRICT:-0}" -v start="$start" -v end="$EPOCHREALTIME" \
	-v one="$([[ $MODE:$name = @(*/examples/*|fuzz:*) ]] && echo 1)" '
	/^[0-9]+%: Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+/ {
		gsub(",", "")
		check = 1; bad += $5 + $7; good += $3 - $5 - $7
	}
	/^[^ ]+:[0-9]+:[EF]:|^not ok / && said++ < 5 || /^check.sh: / || strict == 1 && /^skip / {
		why = why "    " substr($0, 1, 300) "\n"
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
		if (bad) printf "failed: %s (exit status %d)\n%s", name, status, why >failed
		printf "%d %d %d %.1f %d\n", good, bad, skip, end - start, status
	}' "$out"
