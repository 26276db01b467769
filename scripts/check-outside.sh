#!/bin/bash
# SPDX-License-Identifier: MIT
#
# check-outside.sh [SUITE...]: what others wrote, with and without the shim (tests/outside). Prints
# each difference, and writes the counts into docs/coverage.md. OUTSIDE=quick: 20 minutes.
set -u
cd "$(dirname "$0")/.." || exit 1
export BUILD=${BUILD:-build/plain}
for name; do
	[ -e "tests/outside/$name.sh" ] || { echo "check-outside: there is no tests/outside/$name.sh" >&2 && exit 1; }
done
failed=0
quick=$([ "${OUTSIDE:-}" != quick ] || echo ', its quick part')
for script in tests/outside/*.sh; do
	name=$(basename "$script" .sh)
	case " ${*:-$name} " in *" $name "*) ;; *) continue ;; esac
	[ "$name" != lib ] || continue
	bash "$script"
	case $? in 0 | 77) ;; *) failed=1 ;; esac
done

# rows: suite, setting, how many comparisons, which differ
rows() {
	echo '| suite | setting | compared | differ |'
	echo '| --- | --- | --- | --- |'
	cat build/outside/*/results | awk -F '\t' '{
		key = "| " $1 " | `" $2 "` |"
		if (!(key in n)) order[++keys] = key
		n[key]++
		if ($4 == "differs") bad[key] = bad[key] (bad[key] ? ", " : "") "`" $3 "`"
	} END { for (i = 1; i <= keys; i++)
		print order[i], n[order[i]], "|", (bad[order[i]] ? bad[order[i]] : "none"), "|" }'
	for it in build/outside/*/results; do
		[ -s "$it" ] || echo "| $(basename "$(dirname "$it")") | - | 0 | could not run |"
	done
}
begin='<!-- make check-outside: begin -->' end='<!-- end -->'
if [ $# -eq 0 ] && cat build/outside/*/results 2>/dev/null | grep -q .; then
	{
		sed "/^$begin/q" docs/coverage.md
		printf '\n%s\n\n' "On $(date +%F), Linux $(uname -r | cut -d. -f1,2), $(uname -m)$quick:"
		rows
		printf '\n'
		sed -n "/^$end/,\$p" docs/coverage.md
	} >build/outside/coverage.md && cp build/outside/coverage.md docs/coverage.md
fi
exit $failed
