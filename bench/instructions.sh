#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Instructions of programs, with and without the shim
#
# The programs are those of bench/programs_inputs.sh, on small inputs. The processor counts
# if perf is allowed to (instructions:u, children included). Otherwise valgrind's
# cachegrind counts every process that it follows. Times vary from run to run, but
# instructions hardly do, so three runs are enough, and one under valgrind. Bar: within
# 1 %. The start-up of a program weighs more here than in programs.sh. PROGRAMS_ONLY names
# some programs.
. "$(dirname "$0")/common.sh"
. "$here/programs_inputs.sh"
need "$shim"

programs_sources="'$root'/core/[a-c]*.c" # valgrind takes seconds a file
mkdir "$tmp/in" || exit 1
programs_prepare "$tmp/in" 24 80 30000
# Hashes have a fixed order, and no threads of a pool spin while they wait.
export PYTHONHASHSEED=0 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1

no_rep=glibc.cpu.x86_rep_movsb_threshold=1099511627776
no_rep=$no_rep:glibc.cpu.x86_rep_stosb_threshold=1099511627776

turns_of 3 3
if perf stat -x, -e instructions:u -o "$tmp/perf" true 2>/dev/null &&
	grep -q '^[0-9][0-9]*,' "$tmp/perf"; then
	how=perf
elif have valgrind; then
	how=valgrind
	turns=1
else
	echo '  instructions: skipped (neither perf counters nor valgrind)'
	exit 0
fi

# count SIDE COMMAND: prints the number of instructions; fails if the command fails
count() {
	of_side "$1"
	if [ $how = perf ]; then
		perf stat -x, -e instructions:u -o "$tmp/perf" \
			env LD_PRELOAD="$preload" sh -c "$2" \
			>/dev/null 2>&1 || return 1
		awk -F, '/instructions/ && $1 + 0 > 0 { print $1; n++ } END { exit !n }' \
			"$tmp/perf"
	else
		rm -f "$tmp"/grind.*
		# valgrind counts a "rep movsb" once for each byte.
		GLIBC_TUNABLES=$no_rep LD_PRELOAD=$preload valgrind --tool=cachegrind \
			--cache-sim=no --trace-children=yes \
			--cachegrind-out-file=/dev/null \
			--log-file="$tmp/grind.%p" sh -c "$2" \
			>/dev/null 2>&1 || return 1
		cat "$tmp"/grind.* | awk '/I *refs:/ {
			gsub(",", "")
			n += $NF
		} END { print n }'
	fi
}

once() { # SIDE COMMAND
	(cd "$tmp/in" && count "$@") >"$tmp/counted" || fail "$name failed ($1)"
	note "$1" count <"$tmp/counted"
}

for name in ${PROGRAMS_ONLY:-numpy sort xz $programs_small}; do
	why=$(program_missing "$name")
	if [ -n "$why" ]; then
		echo "  instructions, $name: skipped ($why)"
		continue
	fi
	command=$(program_command "$name")
	(cd "$tmp/in" && sh -c "$command") >/dev/null 2>&1 || # fills caches, makes .pyc
		fail "$name fails without the shim"
	in_turns 'plain shim' once "$command"
	row "$name/$how" count count plain ratio 1.01
done
