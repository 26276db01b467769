#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The manual says all that there is: each command and option of `cowshed help`, each option of
# docs/options.md, each public function. Its pages are of this version and of the changelog's
# date, and have no mistakes that man or mandoc know.
set -u
build=${BUILD:-build/plain} bad=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
result() { # NAME FILE: the file has what is wrong
	if [ -s "$2" ]; then
		echo "not ok $1" && sed 's/^/    /' "$2"
		bad=1
	else echo "ok $1"; fi
}
version=$(awk '/^.define COW_VERSION_/ { printf "%s%s", s, $3; s = "." }' include/cowshed.h)
date=$(sed -nE '/^## /{s/.*\((.*)\)/\1/p;q}' CHANGELOG.md)

mkdir "$work/pages"
awk -v out="$work/pages" -v version="$version" -v date="$date" -f docs/man/section3.awk include/*.h
pages=(docs/man/*.[17] "$work"/pages/*.3)

for page in "${pages[@]}"; do
	grep -q "^\.TH .* [1-8] $date \"cowshed $version\"" "$page" || echo "$page"
done >"$work/out"
result 'manual: of this version and date' "$work/out"

if command -v mandoc >/dev/null; then
	mandoc -T lint -W warning "${pages[@]}" >"$work/out" 2>&1
	result 'manual: mandoc' "$work/out"
else echo 'skip manual: mandoc there is none'; fi
if command -v man >/dev/null && man --version 2>&1 | grep -q '^man 2'; then
	for page in "${pages[@]}"; do
		LC_ALL=C.UTF-8 man --warnings -l "$page" 2>&1 >/dev/null
	done >"$work/out"
	result 'manual: man --warnings' "$work/out"
else echo 'skip manual: man --warnings there is none'; fi

sed 's/\\//g' docs/man/*.1 >"$work/section1"
"$build/bin/cowshed" help >"$work/help"
for command in $(awk '/^  [a-z]/ { print $1 }' "$work/help"); do
	grep -qE "\b$command\b" "$work/section1" || echo "$command"
	case $command in help | version) continue ;; esac
	"$build/bin/cowshed" help "$command" | awk '/^  -/' | sed 's/   .*//' |
		grep -oE '(^|[ ,])--?[a-z][a-z-]*' | tr -d ' ,' | while read -r option; do
		grep -qE -- "(^|[ ,\"|])$option\b" "$work/section1" || echo "$command $option"
	done
done >"$work/out"
[ "$(wc -l <"$work/help")" -gt 10 ] || echo 'no help' >>"$work/out"
result 'manual: every command and option' "$work/out"

sed 's/\\//g' docs/man/libcowshed-preload.7 >"$work/section7"
sed -nE 's/^\| `([a-z-]+)` \| (shim|engine).*/\1/p' docs/options.md | while read -r key; do
	grep -qx "\.B $key" "$work/section7" || echo "$key"
done >"$work/out"
result 'manual: every option of the shim' "$work/out"

# What is exported, and nothing else.
{ cut -d' ' -f1 "$work/pages/links"; ls "$work/pages" | sed -n 's/\.3$//p'; } | sort -u >"$work/named"
sed 's|/\*.*\*/||' {core,tensor,cuda}/libcowshed*.map | grep -oE '\bcow_[a-z0-9][a-z0-9_]*' | sort -u >"$work/exported"
comm -13 "$work/named" "$work/exported" >"$work/out"
cut -d' ' -f1 "$work/pages/links" | sort | comm -23 - "$work/exported" >>"$work/out"
result "manual: each of $(wc -l <"$work/exported") functions" "$work/out"
exit $bad
