#!/bin/bash
# SPDX-License-Identifier: MIT
#
# fork under the shim: each side sees the bytes of that moment and its own
# writes after it, beside threads that sleep, that write, and that allocate.
. "$(dirname "$0")/lib.sh"

program forks
program descendants
program swapped
program orphan
program generations
program raw_forks
program clone_returns
program own_atfork
program idle_threads
program safe_points
program park_storm
for error in ENOSYS EPERM; do
	program sandbox membarrier $error "$programs/safe_points"
	program sandbox unshare $error "$programs/safe_points"
	program sandbox membarrier $error "$programs/park_storm"
done
program park_storm 2 ENOSYS
program park_storm 2 EPERM
program kernel_writes
program kernel_writes_status
program cancelled
program handlers_parked
program handlers_over_forks
program old_handlers
program real_time
program idle_signals
program small_stack
program early_threads
program odd_threads
program odd_threads ended
program odd_threads no_data
program robust
program kernel_words
program busy_threads
also=quiet=signal program stops 20
also=quiet=signal program busy_threads
also=quiet=signal program execs
also=quiet=signal program signals
also=quiet=signal program idle_signals
also=quiet=signal program old_handlers
# Without an optimizer a gate has a frame of its own.
if [ "${MODE:-plain}" = plain ]; then
	program signal_frame
	also=quiet=signal program signal_frame
fi
program fork_hooks
program signals
program fork_in_handler
report=$work/report program fork_in_handler
program fork_stdio
program stack_in_block
if [ -z "${QUICK:-}" ]; then
	program storm
	program crowd
fi
finish
