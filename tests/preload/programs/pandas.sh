#!/bin/bash
# SPDX-License-Identifier: MIT
#
# A part of pandas' own tests: frames and their blocks, merges, groups, files.
. "$(dirname "$0")/lib.sh"

if ! has_module pandas pytest hypothesis; then
	skip 'pandas is not here, or pytest, or hypothesis'
	finish
fi
folder=$("$python" -c 'import pandas; print(pandas.__path__[0])')

for part in copy_view internals reshape/merge groupby/aggregate \
	frame/indexing/test_{setitem,insert,where}.py \
	frame/methods/test_{sort_values,reindex,replace}.py \
	io/parser/common/test_{chunksize,common_basic,data_list}.py test_algos.py; do
	if [ -e "$folder/tests/$part" ]; then
		suite "pandas' $part" "$python" -m pytest -q \
			-p no:cacheprovider -p no:randomly --skip-slow \
			--skip-network --junitxml "$results" \
			"$folder/tests/$part"
	else
		skip "pandas' $part is not here"
	fi
done
finish
