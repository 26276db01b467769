#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Copies between tensors, against memcpy, NumPy and PyTorch
#
# bench/tensors.txt has the patterns: name, types, sizes, strides of the source and of the
# destination, bits. Four ways copy them in turns: cow_tensor_copy(), memcpy of the same
# bytes with as many threads, NumPy (one thread) and PyTorch. NumPy and PyTorch come from
# build/venv, else from a Python in PATH that has them. With one thread the time is its
# processor time. Bars for each pattern: of memcpy as `bar` says; 0.9 of PyTorch's speed,
# and 1.5 for the geometric mean. Without PyTorch its bars have failed.
. "$(dirname "$0")/common.sh"
need "$bin/tensors"

turns=${BENCH_ROUNDS:-5} all=$(nproc)
! quick || turns=${BENCH_ROUNDS:-2}
patterns=$here/tensors.txt
python=$(python_with numpy,torch)
python=${python:-$(python_with numpy)}

# bar PATTERN THREADS: how many times the time of memcpy it may take; nothing: no bar
bar() {
	case $1 in
	contiguous*) echo 1.0526 ;;
	transpose-float64 | transpose-uint8 | transpose-bfloat16 | \
		transpose-float32-bfloat16) ;;
	transpose* | permute* | *channels-last*)
		[ "$2" = 1 ] && echo 2 || echo 1.5 ;;
	float32-bfloat16 | bfloat16-float32 | float32-float16 | float16-float32 | \
		float32-int32 | int32-float32) echo 1.3 ;;
	esac
}

for threads in 1 "$all"; do
	rm -f "$tmp"/ours.* "$tmp"/memcpy.* "$tmp"/numpy.* "$tmp"/torch.*
	turn=0
	while [ $turn -lt "$turns" ]; do
		"$bin/tensors" "$threads" <"$patterns" >"$tmp/out" ||
			fail "bench/tensors failed"
		while read -r name ours rival bytes; do
			echo "$ours" >>"$tmp/ours.$name"
			echo "$rival" >>"$tmp/memcpy.$name"
		done <"$tmp/out"
		if [ "$python" ]; then
			"$python" "$here/tensors.py" "$threads" <"$patterns" \
				>"$tmp/out" || fail "tensors.py failed"
			while read -r name rival ns; do
				echo "$ns" >>"$tmp/$rival.$name"
			done <"$tmp/out"
		fi
		turn=$((turn + 1))
	done
	: >"$tmp/factors"
	while read -r name rest; do
		case=t$threads/$name on=ratio
		limit=$(bar "$name" "$threads")
		[ "$limit" ] || on=-
		report tensors "$case/memcpy" ns "$tmp/ours.$name" \
			"$tmp/memcpy.$name" $on "${limit:-0}"
		case $name in small-64)
			report tensors "$case/call" ns "$tmp/ours.$name" - ours 150 ;;
		esac
		# NumPy has no bfloat16, and copies with one thread.
		[ ! -e "$tmp/numpy.$name" ] || report tensors "$case/numpy" ns \
			"$tmp/ours.$name" "$tmp/numpy.$name" faster 0
		report tensors "$case/torch" ns "$tmp/ours.$name" \
			"$tmp/torch.$name" speedup 0.9
		[ ! -e "$tmp/torch.$name" ] || echo "$(median "$tmp/torch.$name")" \
			"$(median "$tmp/ours.$name")" >>"$tmp/factors"
	done <"$patterns"
	echo 1 >"$tmp/one"
	awk '{ s += log($1 / $2) } END { if (NR) print exp(s / NR) }' \
		"$tmp/factors" >"$tmp/mean"
	# The mean is reported as a rival's number, so that the ratio is the speedup.
	report tensors "t$threads/mean/torch" x "$tmp/one" "$tmp/mean" speedup 1.5
	[ "$all" != 1 ] || break
done
