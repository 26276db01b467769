#!/bin/sh
# SPDX-License-Identifier: MIT
#
# `make bench`: every benchmark
#
#      bench/run.sh [NAME...]
#
# Runs the benchmarks one after another and shows what they print. NAME is that of a script
# of bench/, or of a program. Without one it runs all but thp and border. No other program
# should be running. The machine-readable lines are kept in build/bench.txt, or in the file
# that BENCH_OUT names. At the end it lists the bars that were not met. BENCH_QUICK=1 measures
# small sizes and fewer cases; the bars are meant for the full sizes. The exit status says
# whether all could be measured, not whether the bars were met.
. "$(dirname "$0")/common.sh"

out=${BENCH_OUT:-$(dirname "$build")/bench.txt}
case $out in /*) ;; *) out=$(pwd)/$out ;; esac
all='clone page copy rewrite fill freeze share transparent curves sparse zeros fork churn
	mimalloc_bench template cycle memory moment pair wrappers start copies tensors instructions redis
	prefork programs file stall give broker scaling python'
failed=

command="bench/run.sh${*:+ $*}"
for name in FORK_ONLY CYCLE_ONLY BENCH_ROUNDS PREFORK_SECONDS PREFORK_BYTES BORDER_TOTAL BORDER_BLOCK \
	BORDER_SECONDS BENCH_OPTIONS; do
	eval "value=\${$name:-}"
	[ -z "$value" ] || command="$name='$value' $command"
done
[ $# -gt 0 ] || set -- $all
need "$bin/plain_measure" "$shim"
{
	echo "# $(date -u +%F), commit $(git -C "$root" describe --always \
		2>/dev/null || echo unknown): $command"
	echo "# $(uname -srm), $(nproc) CPUs, $(sed -n \
		's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
	thp=/sys/kernel/mm/transparent_hugepage
	echo "# $(sed -n 's/^MemTotal: *//p' /proc/meminfo), huge pages:" \
		"$(cat $thp/enabled 2>/dev/null); of memfds:" \
		"$(cat $thp/shmem_enabled 2>/dev/null)"
	quick && echo '# BENCH_QUICK: small sizes, for which the bars are not meant'
} >"$out.part"
cat "$out.part"

for name in "$@"; do
	echo "== $name"
	if [ "$name" = mimalloc_bench ] && [ ! -d "${MIMALLOC_BENCH:-}" ]; then
		echo '  skipped: MIMALLOC_BENCH names no checkout of mimalloc-bench'
		continue
	elif [ -e "$here/$name.sh" ] && echo " $all border thp " | tr '\n\t' '  ' | grep -q " $name "; then
		set -- sh "$here/$name.sh"
	elif [ -x "$bin/$name" ]; then
		set -- "$bin/$name"
	else
		fail "there is no benchmark of this name: $name"
	fi
	{ "$@" || echo "FAILED $name"; } | tee "$tmp/log" | grep -v '^bench='
	grep '^bench=' "$tmp/log" >>"$out.part"
	grep -q -e '^FAILED' -e ' met=failed' "$tmp/log" &&
		failed="$failed $name"
done
mv "$out.part" "$out"

echo
awk '
/^bench=/ {
	match($0, / met=[a-z-]*/)
	met = substr($0, RSTART + 5, RLENGTH - 5)
	n[met]++
	if (met == "no")
		missed = missed "\n  " substr($1, 7) " " substr($2, 6)
}
END {
	printf "%d bars met, %d not met, %d figures without a bar", n["yes"], n["no"], n["-"]
	if (n["failed"])
		printf ", %d not measured", n["failed"]
	print "." (missed ? "\nNot met:" missed : "")
}' "$out"
echo "Figures: $out"
if [ -n "$failed" ]; then
	echo "FAILED:$failed" >&2
	exit 1
fi
