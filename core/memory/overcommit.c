/* SPDX-License-Identifier: MIT */
/*
 * What the kernel would refuse. See the header.
 *
 * Where memory is not counted the answer depends on the size alone, so only
 * what is larger than ever is asked for; where it is, what is warm counts.
 */
#include "core/memory/overcommit.h"
#include "core/base/base.h"
#include "core/memory/state.h"
#include "memfd/map.h"

int
cow__overcommit_ask(size_t bytes)
{
	static size_t granted = 64 * MIB; /* every machine has that */
	int r;

	if (bytes <= __atomic_load_n(&granted, __ATOMIC_RELAXED))
		return 0;
	r = cow__map_ask(bytes);
	if (r < 0 && cow__hooks.trim())
		r = cow__map_ask(bytes);
	if (r == 0 && !__atomic_load_n(&cow__engine.counted, __ATOMIC_RELAXED))
		__atomic_store_n(&granted, bytes, __ATOMIC_RELAXED);
	return r;
}
