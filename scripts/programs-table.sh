#!/bin/bash
# SPDX-License-Identifier: MIT
#
# programs-table.sh [SCRIPT...]: measures programs with and without the shim (tests/preload/programs/beside),
# one after another, and writes a table into docs/coverage.md. It needs root, for cgroups.
# ROUNDS=3: how often each side runs. ONLY='ruby perl': these again; the table keeps its other rows.
# With `-` nothing runs, and the table is made of the last results.
set -u
cd "$(dirname "$0")/.." || exit 1
export LC_ALL=C BUILD=${BUILD:-build/plain} ROUNDS=${ROUNDS:-3}
failed=0
[ -n "${1:-}${ONLY:-}" ] || rm -rf build/programs
[ "${1:-}" = - ] || for script in tests/preload/programs/beside/*.sh; do
	name=$(basename "$script" .sh)
	case " ${*:-$name} " in *" $name "*) ;; *) continue ;; esac
	[ "$name" != lib ] || continue
	bash "$script" | grep -v '^ok '
	case ${PIPESTATUS[0]} in 0 | 77) ;; *) failed=1 ;; esac
done
results=$(ls build/programs/* 2>/dev/null | grep -v '\.md$')
[ -n "$results" ] || { echo 'programs-table: nothing was measured' >&2 && exit 1; }

# Lines of the results: program, side, microseconds, KiB, "same" or "differs".
# rows: a line for each program, with the ratios of medians; what is above its bar is bold.
rows() {
	cat $results | awk -F '\t' '
	function median(list, n, a, i, j, x) {
		n = split(list, a, " ")
		for (i = 2; i <= n; i++)
			for (j = i; j > 1 && a[j - 1] + 0 > a[j] + 0; j--) { x = a[j]; a[j] = a[j - 1]; a[j - 1] = x }
		return n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2
	}
	function ratio(what, name, side, bar, r) {
		if (!((name, side) in what)) return "-"
		r = median(what[name, side]) / median(what[name, "none"])
		if (bar && r > bar) { return sprintf("**%.2f**", r) }
		return sprintf("%.2f", r)
	}
	{
		if (!($1 in seen)) { names[++n] = $1; seen[$1] = 1 }
		cpu[$1, $2] = cpu[$1, $2] " " $3
		peak[$1, $2] = peak[$1, $2] " " $4
		if ($5 != "same") bad[$1] = bad[$1] " `" $2 "`"
	}
	END {
		small = "threshold=4096"; mapped = "threshold=65536,mmap=65536"; large = "mmap=1M"
		print "| program | output | CPU s | MiB | CPU | peak | 4096: CPU | peak | 65536: CPU | peak | mmap=1M: CPU | peak |"
		print "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
		for (i = 1; i <= n; i++) {
			p = names[i]
			if (!((p, "default") in cpu)) continue
			printf "| %s | %s | %.2f | %.0f | %s | %s | %s | %s | %s | %s | %s | %s |\n", p,
				p in bad ? "differs:" bad[p] : "same", median(cpu[p, "none"]) / 1e6,
				median(peak[p, "none"]) / 1024, ratio(cpu, p, "default", 1.05), ratio(peak, p, "default", 1.1),
				ratio(cpu, p, small), ratio(peak, p, small), ratio(cpu, p, mapped),
				ratio(peak, p, mapped, 1.25), ratio(cpu, p, large), ratio(peak, p, large, 1.25)
		}
	}'
}
begin='<!-- make programs-table: begin -->' end='<!-- make programs-table: end -->'
table() { sed -n "/^$begin/,/^$end/p" docs/coverage.md; }
# kept: the table as it is, with the new rows of ONLY, and a line that names them
kept() {
	rows | awk -v only="$ONLY" 'BEGIN { again = only; gsub(/ +/, ", ", again); only = " " only " " }
	NR == FNR { if (index(only, " " $2 " ")) fresh[$2] = $0; next }
	/^\|/ { if ($2 in fresh) { $0 = fresh[$2]; delete fresh[$2] } rows = 1; print; next }
	rows == 1 { rows = 2; for (name in fresh) print fresh[name]; print "" }
	/^Measured again/ { print; print "" }
	/^On / { print; print "" }
	END { print "Measured again on '"$(date +%F), medians of $ROUNDS runs a side"': " again "." }' - <(table)
}
{
	sed "/^$begin/q" docs/coverage.md
	echo
	if [ -n "${ONLY:-}" ] && table | grep -q '^|'; then kept; else
		printf '%s\n\n' "On $(date +%F), Linux $(uname -r | cut -d. -f1,2), $(uname -m), $(nproc) processors, medians of $ROUNDS runs a side:"
		rows
	fi
	echo
	sed -n "/^$end/,\$p" docs/coverage.md
} >build/programs/table.md && cp build/programs/table.md docs/coverage.md
exit $failed
