#!/bin/bash
# SPDX-License-Identifier: MIT
#
# gpu.sh: the table of docs/gpu.md. It runs ours and the driver's own calls (bench/gpu.c),
# then PyTorch's side (bench/gpu.py) if PyTorch is installed with CUDA: three turns of
# each. It exits with 77 without a GPU. BENCH_QUICK=1: small sizes.
. "$(dirname "$0")/common.sh"

for turn in 1 2 3; do
	echo "# turn $turn"
	"$bin/gpu" || exit
	python=$(python_with torch)
	if [ "$python" ] && "$python" -c '
import torch, sys
sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
		"$python" "$here/gpu.py" || exit
	else
		echo '# PyTorch with CUDA is not installed: no figures of PyTorch'
	fi
done
