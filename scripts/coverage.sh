#!/bin/bash
# SPDX-License-Identifier: MIT
#
# coverage.sh: of the counters that tests left in $BUILD/profiles (MODE=cov), for each file of the
# library, the shim and the command: its lines, how many never ran, and those, to coverage.txt there.
set -eu
: "${BUILD:=build/cov}"
cd "$(dirname "$0")/.."
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
shopt -s nullglob
profiles=("$BUILD"/profiles/*.profraw)
[ ${#profiles[@]} -gt 0 ] || { echo "coverage: nothing in $BUILD/profiles: make check MODE=cov"; exit 1; }
llvm-profdata merge -o "$tmp/all" "${profiles[@]}"

# The tests, which have the library in them, and what they start.
objects=()
for object in "$BUILD"/lib/*.so "$BUILD"/lib/*.so.0 "$BUILD"/bin/cowshed "$BUILD"/python/cowshed/*.so \
	$(find "$BUILD/tests" -regex '.*/\(test\|fault\|bug\|fuzz\)_[^./]*'); do
	[ -f "$object" ] && [ ! -L "$object" ] && objects+=(-object "$object")
done
llvm-cov export -format=lcov -instr-profile="$tmp/all" "${objects[@]}" 2>/dev/null |
	sed -E "s,^SF:($PWD|\.)/,SF:," >"$tmp/lcov"

# A line is never run where no copy of it was.
awk -F '[:,]' '/^SF:/ { file = $2; wanted = file !~ /^(tests|bench|examples|\/)/ }
	wanted && /^DA:/ { seen[file, $2] = 1; if ($3 > 0) ran[file, $2] = 1 }
	END { for (k in seen) { split(k, at, SUBSEP); print at[1], at[2], (k in ran) ? 1 : 0 } }' \
	"$tmp/lcov" | sort -k1,1 -k2,2n >"$tmp/lines"
{
	awk '{ all[$1]++; never[$1] += !$3; n++; m += !$3 }
		END { for (f in all) printf "%-34s %5d lines, %4d never\n", f, all[f], never[f]
			printf "%-34s %5d lines, %4d never\n", "~all", n, m }' "$tmp/lines" | sort | sed 's/~all/all '/
	echo
	awk '!$3 { print $1, $2 }' "$tmp/lines" | while read -r file line; do
		[ "$file" = "${before:-}" ] || { before=$file && mapfile -t text <"$file"; }
		# Of headers that are one macro after the other a line too many is counted.
		printf '%s:%d:%s\n' "$file" "$line" "${text[line - 1]-}"
	done
} >"$BUILD/coverage.txt"
sed '/^$/q' "$BUILD/coverage.txt"
echo "coverage: $BUILD/coverage.txt has the lines that never ran"
