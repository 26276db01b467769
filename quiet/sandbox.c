/* SPDX-License-Identifier: MIT */
/*
 * Processes under a filter of system calls: no proofs (quiet/park.h)
 */
#include "memfd/gate.h"
#include "quiet/park.h"

/* Locked, so that a prover either is done or will see it. The thread that has a filter
 * already may not make the calls of the lock. */
void
cow__park_sandbox(int add)
{
	uint32_t *sum = &cow__sandboxed;
	struct cow__signals old;

	if (__atomic_load_n(sum, __ATOMIC_ACQUIRE)) {
		__atomic_fetch_add(sum, (uint32_t)add, __ATOMIC_SEQ_CST);
		return;
	}
	cow__park_lock(&old);
	__atomic_fetch_add(sum, (uint32_t)add, __ATOMIC_SEQ_CST);
	cow__park_unlock(&old);
	/* From now on handlers are set without a look at sections. */
	if (add > 0) {
		cow__signals_handler_begin();
		cow__signals_handler_end();
	}
}
