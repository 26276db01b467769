#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The malloc family under the shim: programs that check themselves.
. "$(dirname "$0")/lib.sh"

program family
program realloc
program zero
program new_delete
program sparse
program unread
program resident
program refusals
program absurd
program threads
program early_late
program mallinfo

# Random programs; the second number is steps, the third the largest block.
for seed in 1 2 3; do
	program random "$seed" 1500 9000
	program random "$seed" 800 200000
	program random "$seed" 250 3000000
done
finish
