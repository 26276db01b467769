#!/bin/bash
# SPDX-License-Identifier: MIT
#
# lint.sh: the rules of CONTRIBUTING.md that a machine can check, on the files. Says each
# violation. lint-objects.sh and lint-folders.sh check objects and the order of folders.
set -u
export LC_ALL=C
CC=${CC:-gcc} CXX=${CXX:-g++}
bad=$(mktemp) && trap 'rm -f "$bad"' EXIT
# Reads violations, one a line.
rule() { sed "s|^|lint: $1: |" | tee -a "$bad"; }

mapfile -t files < <(find . -name '.git' -prune -o -path ./build -prune -o -type f -print |
	grep -v '/__pycache__/' | sed 's|^\./||' | sort)
named() { printf '%s\n' "${files[@]}" | grep -E "$1"; }
mapfile -t code < <(named '\.(c|h|cc|cu|S|sh|py|mk)$|^\.ci/run$|^Makefile$')
mapfile -t text < <(named '\.(c|h|cc|cu|S|sh|py|mk|md|map|[1-8])$|^\.ci/run$|^Makefile$')
mapfile -t c < <(named '^(memfd|quiet|core|share|tensor|preload|cli|cuda|bench|tests|examples)/.*\.c$')

# ---- Text ----
for f in "${code[@]}"; do
	head -n 2 "$f" | grep -q 'SPDX-License-Identifier: MIT' || echo "$f"
done | rule 'no SPDX line at the top'
grep -nE $'[ \t\r]$|^ +\t' "${text[@]}" /dev/null | rule 'stray blanks'
grep -nwE 'TO[D]O|FIX[M]E|X[X]X' "${text[@]}" /dev/null | rule 'left to do'
# The public headers are one text each, with its contracts.
named '\.(c|cc|cu|h|S)$' | grep -v '^include/' | xargs -r wc -l | awk '$2 != "total" && $1 > 500' |
	rule 'over 500 lines'
# A function begins with a brace in the first column and ends with one there.
named '\.(c|cc|cu|h)$' | xargs awk 'FNR == 1 { begin = 0 } /^\{/ { begin = FNR }
	/^}/ && begin { if (FNR - begin > 50) print FILENAME ":" begin ": " FNR - begin " lines"; begin = 0 }' |
	rule 'a function over 50 lines'
named '^scripts/.*\.sh$' | xargs wc -l | awk '$2 != "total" && $1 > 100' |
	rule 'over 100 lines'
grep -oE '^\| \*\*[^*]+' docs/glossary.md | sort | awk '$0 == last || NR > 80; { last = $0 }' |
	rule 'docs/glossary.md: a word twice, or more than 80 words'
for f in $(named '\.sh$|^\.ci/run$'); do bash -n "$f"; done 2>&1 | rule 'shell'

# ---- Includes: FOLDER's files may include only what matches PATTERN ----
includes() {
	named "^$1/.*\.(c|h|cc|S)$" | xargs -r grep -HnE '^[[:blank:]]*#[[:blank:]]*include' |
		sed -E 's/^([^:]*:[0-9]+):[^"<]*(["<][^">]*[">]).*/\1 \2/' |
		grep -vE " ($2)$" | rule "include in $1/"
}
api='[<"](cowshed[a-z-]*\.h)[">]'
libc='<[a-z0-9_/-]*\.h>|<[a-z]+>'
plain='std(int|def|bool|atomic|arg|align|noreturn)|string|limits|errno|inttypes|float|math'
plain="<($plain|assert|sys/types|cpuid|[a-z]mmintrin|immintrin|arm_neon|arm_acle)\.h>"
includes memfd "\"memfd/[a-z0-9_/-]+\.h\"|$libc"
includes quiet "\"(quiet|memfd)/[a-z0-9_/-]+\.h\"|$libc"
includes core "\"(core|quiet|memfd)/[a-z0-9_/-]+\.h\"|$api|$plain"
includes share "\"(share|core|memfd)/[a-z0-9_/-]+\.h\"|$api|$plain"
includes tensor "\"(tensor|core|memfd)/[a-z0-9_/-]+\.h\"|$api|$plain"
includes preload "\"(core|preload)/[a-z0-9_/-]+\.h\"|$api|$libc"
includes cuda "\"(core|cuda|memfd|share|tensor)/[a-z0-9_/-]+\.h\"|$api|$libc"
includes cli "\"cli/[a-z0-9_/-]+\.h\"|$api|$libc"
includes python "\"python/[a-z0-9_/-]+\.h\"|<Python\.h>|$api|$libc"
includes examples "$api|$libc"
includes tests/device "\"tests/device/[a-z0-9_/-]+\.h\"|$api|$libc"
includes include "$api|<std(int|def|bool)\.h>|<sys/types\.h>"
named '^(memfd|quiet|core|preload|cli)/.*\.[ch]$' | xargs -r grep -nE 'include *<cowshed' |
	grep -E '^(memfd|quiet)/' | rule 'memfd/ and quiet/ know nothing of ours'

# ---- Compilers ----
for h in include/*.h; do
	echo "#include <${h##*/}>" | $CC -std=c99 -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only -x c -
	echo "#include <${h##*/}>" | $CXX -std=c++11 -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only -x c++ -
done 2>&1 | rule 'public header'
printf '%s\n' "${c[@]}" | grep . | xargs -r -P 4 -n 8 $CC -std=gnu11 -D_GNU_SOURCE= -Wall -Wextra \
	-pthread -I. -Iinclude -fsyntax-only 2>&1 | grep -E '(warning|error):' | rule 'compiler'

echo "lint: ${#files[@]} files, $(wc -l <"$bad") violations"
[ ! -s "$bad" ]
