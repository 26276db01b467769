#!/bin/bash
# SPDX-License-Identifier: MIT
#
# kernels-table.sh [RESULTS/KERNEL/SET...]: writes the tables of docs/platforms.md. What a machine of
# scripts/check-kernels.sh said goes into docs/kernels.txt first, in place of what that set said there
# before. Each of its lines is KERNEL, SET and a line of a log. A set that did not come to its end
# changes nothing.
set -eu
page=docs/platforms.md record=docs/kernels.txt new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT

for set; do
	[ -e "$set/status" ] || continue
	k=$(basename "$(dirname "$set")") s=$(basename "$set")
	awk -F '\t' -v k="$k" -v s="$s" '!($1 == k && $2 == s)' "$record" >"$new/record"
	awk -v k="$k" -v s="$s" -v date="$(cat "$set/date")" 'NR == 3 { print k "\t" s "\tdate " date }
		NR <= 2 || /^[0-9]+ passed/ || /^measure / || /^ *skip / || /^left out / ||
		/^(ok|note|unknown) +[a-z_\/]+:/ { print k "\t" s "\t" $0 }' "$set/log" >>"$new/record"
	LC_ALL=C sort -s -t "$(printf '\t')" -k 1,2 "$new/record" >"$record"
done
mapfile -t kernels < <(cut -f 1 "$record" | sort -uV)

row() { local IFS='|' && echo "|$*|" | sed 's/|/ | /g; s/^ //; s/ $//'; }
# logs KERNEL [SET]
logs() { awk -F '\t' -v k="$1" -v s="${2:-}" '$1 == k && (s == "" || $2 == s) { print $3 }' "$record"; }
header() {
	row "$@"
	shift
	printf '| --- |' && printf ' --- |%.0s' "$@" && echo
}

tables() {
	local k s name columns
	header kernel set version 'page size' passed failed skipped 'too long' 'date, commit'
	for k in "${kernels[@]}"; do
		for s in $(awk -F '\t' -v k="$k" '$1 == k && !seen[$2]++ { print $2 }' "$record"); do
			[ "$s" != measures ] || continue
			row "$k" "$s" "$(logs "$k" "$s" | awk 'NR == 1 { print $2 }')" \
				"$(logs "$k" "$s" | awk 'NR == 2 { print $1 }')" \
				"$(logs "$k" "$s" | grep -aE '^[0-9]+ passed' |
					awk '{ p += $1; f += $3; s += $5 } END { print p + 0 "|" f + 0 "|" s + 0 }')" \
				"$(logs "$k" "$s" | awk '/^left out / { n++ } /^date / { m = NF > 2 } END { print m ? n + 0 : "-" }')" \
				"$(logs "$k" "$s" | sed -n 's/^date //p')"
		done
	done
	printf '\nWhat `cowshed doctor` found there. "no" stands for a feature that cowshed does without.\n\n'
	columns=()
	for k in "${kernels[@]}"; do ! logs "$k" | grep -aq '^ok  *memfd' || columns+=("$k"); done
	header feature "${columns[@]}"
	for name in memfd collapse pagemap pagemap_scan locks threads unshare io_uring transparent_hugepage/enabled; do
		row "$name" "$(for k in "${columns[@]}"; do
			logs "$k" | awk -v n="$name:" '$2 == n { r = n ~ /enabled/ ? $3 : $1 == "ok" ? "yes" : "no" }
				END { print r == "" ? "-" : r }'
		done | paste -sd '|')"
	done
	printf '\nThe time under the shim, as a multiple of glibc'"'"'s in the same machine.\n\n'
	columns=()
	for k in "${kernels[@]}"; do ! logs "$k" | grep -aq '^measure ' || columns+=("$k"); done
	if [ ${#columns[@]} -gt 0 ]; then
		header measured "${columns[@]}"
		for name in $(for k in "${columns[@]}"; do logs "$k"; done | awk '/^measure / && !seen[$2]++ { print $2 }'); do
			row "$name" "$(for k in "${columns[@]}"; do
				logs "$k" | awk -v n="$name" '$1 == "measure" && $2 == n && $4 > 0 { r = sprintf("%.3g", $3 / $4) }
					END { print r == "" ? "-" : r }'
			done | paste -sd '|')"
		done
	else
		echo 'Not measured.'
	fi
	printf '\nSkipped tests:\n\n'
	for k in "${kernels[@]}"; do
		logs "$k" | grep -aE '^ *skip ' | sort -u | cut -c1-105 | sed "s/^ *skip /* $k: /"
	done | grep . || echo '* none'
}

start='<!-- make check-kernels writes what follows -->'
end='<!-- end -->'
tables >"$new/tables.md"
awk -v start="$start" -v end="$end" -v tables="$new/tables.md" '
	$0 == end { inside = 0 }
	!inside { print }
	$0 == start { inside = 1; print ""; while ((getline line < tables) > 0) print line; print "" }
' "$page" >"$new/platforms.md"
cat "$new/platforms.md" >"$page"
