/* SPDX-License-Identifier: MIT */
/*
 * How much freed memory stays warm: see the header.
 */
#include "core/policy/warm.h"
#include "core/policy/constants.h"

/* By how much the peak exceeds what is live now. */
static size_t
below_peak(struct cow__warm *w, size_t live, size_t *live_peak, uint64_t now)
{
	size_t most;

	if (cow__without(PEAKS))
		return live / COW__WARM_PEAK_SHARE;
	if (*live_peak >= w->peak || (now > w->since && now - w->since > COW__WARM_PEAK_NS)) {
		w->peak = *live_peak;
		w->since = now;
		*live_peak = live;
	}
	most = w->peak + w->peak / COW__WARM_PEAK_SHARE;
	return most > live ? most - live : 0;
}

/* What may be kept, however much is live. A small program would notice 16 MiB. */
static size_t
beyond_peak(const struct cow__warm *w)
{
	return cow__min(COW__WARM_BEYOND_MOST,
	                cow__max(COW__WARM_BEYOND_LEAST, w->peak / COW__WARM_BEYOND_SHARE));
}

size_t
cow__warm_limit(struct cow__warm *w, size_t live, size_t *live_peak, uint64_t now)
{
	size_t below = below_peak(w, live, live_peak, now);

	return cow__min(cow__max(COW__WARM_LIVELESS, live), cow__max(beyond_peak(w), below));
}
