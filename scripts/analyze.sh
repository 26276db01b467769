#!/bin/bash
# SPDX-License-Identifier: MIT
#
# analyze.sh [FILE...]: cppcheck, clang-tidy and gcc -fanalyzer on the sources (by default on
# all that is shipped). Each finding is one line, "FILE CHECK"; those that scripts/analyze.txt
# explains are counted, any other one is shown and fails. So does an explanation of a whole
# run that nothing needs any more.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1
explained=scripts/analyze.txt
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT
whole=$#
[ $# -gt 0 ] || set -- memfd/*.c quiet/*.c core/*.c core/*/*.c share/*.c tensor/*.c cuda/*.c preload/*.c \
	preload/copies/*.c cli/*.c python/_cowshed/*.c
python=$(bash scripts/python.sh include)
export FLAGS="-std=gnu11 -D_GNU_SOURCE= -I. -Iinclude -isystem ${python:-/usr/include}"
export OUT=$out

# Checks that judge style, or what is done on purpose everywhere:
# - strcpy() and strcat() where a length was compared right before;
# - sizeof of a pointer in arrays of pointers; macros that make names, not values;
# - integers that are narrowed where a comparison bounds them; parameters of one type.
off=-bugprone-easily-swappable-parameters,-bugprone-narrowing-conversions
off=$off,-bugprone-reserved-identifier,-bugprone-assignment-in-if-condition
off=$off,-bugprone-implicit-widening-of-multiplication-result,-bugprone-macro-parentheses
off=$off,-bugprone-sizeof-expression,-bugprone-not-null-terminated-result
off=$off,-bugprone-suspicious-string-compare,-bugprone-signed-char-misuse
off=$off,-clang-analyzer-security.insecureAPI.strcpy,-clang-analyzer-optin.performance.Padding
off=$off,-clang-analyzer-security.insecureAPI.DeprecatedOrUnsafeBufferHandling
export CHECKS="-*,clang-analyzer-*,bugprone-*,$off"

one() {
	local name=${1//\//_}
	# shellcheck disable=SC2086
	if command -v clang-tidy >/dev/null; then
		clang-tidy --quiet -checks="$CHECKS" "$1" -- $FLAGS -pthread -fPIC 2>/dev/null |
			sed -nE 's|^(.*): (warning: .*) \[([a-z.A-Z,-]+)\]$|\1 \3 \2|p'
	fi
	# shellcheck disable=SC2086
	gcc $FLAGS -O2 -fanalyzer -pthread -fPIC -c \
		-o "$OUT/$name.o" "$1" 2>&1 |
		sed -nE 's|^(.*): (warning: .*) (\[CWE-[0-9]+\] )?\[-(Wanalyzer[a-z-]+)\]$|\1 \4 \2|p'
	rm -f "$OUT/$name.o"
}
export -f one
printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} bash -c 'one {} >"$OUT/$(echo {} | tr / _).found"'
cat "$out"/*.found >"$out/all"
if command -v cppcheck >/dev/null; then
	cppcheck -j "$(nproc)" --quiet --std=c11 --enable=warning,portability,performance \
		-D__x86_64__ -D_GNU_SOURCE= -I. -Iinclude --template='{file}:{line}: {id} warning: {message}' \
		'-DPy_BEGIN_ALLOW_THREADS={' '-DPy_END_ALLOW_THREADS=}' "$@" 2>&1 |
		sed -nE 's|^(.*:[0-9]+): ([a-zA-Z]+) (warning: .*)$|\1 cppcheck:\2 \3|p' >>"$out/all"
fi

# FILE:LINE... CHECK TEXT -> "FILE CHECK" and the line as it came
sed "s|$PWD/||; s|^\./||" "$out/all" | sort -u |
	awk -v list="$explained" -v whole="$whole" '
	BEGIN {
		while ((getline line < list) > 0)
			if (line ~ /^[a-z]/) { split(line, f, " "); known[f[1] " " f[2]] = 1 }
	}
	{
		split($1, place, ":")
		key = place[1] " " $2
		if (key in known) { used[key] = 1; n++ } else { print "analyze: " $0; bad++ }
	}
	END {
		for (key in known)
			if (!whole && !(key in used)) { print "analyze: explained, not found: " key; bad++ }
		printf "analyze: %d findings explained, %d not\n", n, bad
		exit bad > 0
	}'
