#!/bin/bash
# SPDX-License-Identifier: MIT
#
# share_storm.sh: a short storm of shared storages, for make check
seed=${SEED:-$(date +%s)}
if out=$("$BUILD/tests/stress/share_storm" 15 "$seed" 8 2>&1); then
	echo "ok share-storm"
else
	printf '%s\n' "$out" "not ok share-storm (SEED=$seed)"
	exit 1
fi
