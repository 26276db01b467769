/* SPDX-License-Identifier: MIT */
/*
 * What the kernel would refuse: see the header.
 *
 * Where memory is not counted the answer depends on the size alone. So only a
 * size larger than any granted before is asked for. Where it is counted no answer
 * is remembered, since it depends on what else is granted. What is warm counts,
 * so it is given back before a refusal.
 */
#include "core/memory/overcommit.h"
#include "core/base/base.h"
#include "core/memory/state.h"
#include "core/policy/constants.h"
#include "memfd/map.h"

int
cow__overcommit_ask(size_t bytes)
{
	static size_t granted = COW__OVERCOMMIT_ASKED;
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
