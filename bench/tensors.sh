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

turns_of 5 2
all=$(nproc)
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

once() { # SIDE THREADS: a turn of ours and of memcpy, or of NumPy and PyTorch
	if [ "$1" = shim ]; then
		"$bin/tensors" "$2" <"$patterns" >"$tmp/out" || fail "bench/tensors failed"
		while read -r name ours rival bytes; do
			echo "$ours" >>"$tmp/of/shim.$name"
			echo "$rival" >>"$tmp/of/memcpy.$name"
		done <"$tmp/out"
	elif [ "$python" ]; then
		"$python" "$here/tensors.py" "$2" <"$patterns" >"$tmp/out" || fail "tensors.py failed"
		while read -r name rival ns; do
			echo "$ns" >>"$tmp/of/$rival.$name"
		done <"$tmp/out"
	fi
}

for threads in 1 "$all"; do
	in_turns 'shim python' once "$threads"
	: >"$tmp/factors"
	while read -r name rest; do
		case=t$threads/$name on=ratio
		most=$(bar "$name" "$threads")
		[ "$most" ] || on=-
		row "$case/memcpy" ns "$name" memcpy $on "${most:-0}"
		[ "$name" != small-64 ] || row "$case/call" ns "$name" - ours 150
		# NumPy has no bfloat16, and copies with one thread.
		[ ! -e "$tmp/of/numpy.$name" ] || row "$case/numpy" ns "$name" numpy faster 0
		row "$case/torch" ns "$name" torch speedup 0.9
		[ ! -e "$tmp/of/torch.$name" ] || echo "$(median "$tmp/of/torch.$name")" \
			"$(median "$tmp/of/shim.$name")" >>"$tmp/factors"
	done <"$patterns"
	echo 1 >"$tmp/one"
	awk '{ s += log($1 / $2) } END { if (NR) print exp(s / NR) }' \
		"$tmp/factors" >"$tmp/mean"
	# The mean is reported as a rival's number, so that the ratio is the speedup.
	report tensors "t$threads/mean/torch" x "$tmp/one" "$tmp/mean" speedup 1.5
	[ "$all" != 1 ] || break
done
