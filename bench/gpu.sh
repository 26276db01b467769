#!/bin/bash
# SPDX-License-Identifier: MIT
#
# gpu.sh: the GPU's table (docs/gpu.md): ours and the driver's (bench/gpu.c), then
# PyTorch's side (bench/gpu.py) where it is installed with CUDA; three turns of each.
# Exits 77 without a GPU. BENCH_QUICK=1: small sizes.
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
		echo '# PyTorch with CUDA is not installed: its side is left out'
	fi
done
