/* SPDX-License-Identifier: MIT */
/*
 * Every counter of struct cow_stats: its name, its place, its unit
 *
 * This is the only list of them in the command. stat walks it, for people and
 * for JSON. The report reads records through it and adds them up. An assertion
 * below fails if the public struct has a member that this list lacks.
 */
#include "cli/cli.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#define ROW(member, unit, is_max, group, says) \
	{#member, says, group, offsetof(struct cow_stats, member), unit, is_max}
#define SUM(member, unit, says) ROW(member, unit, false, NULL, says)
#define MAX(member, unit, says) ROW(member, unit, true, NULL, says)
#define HEAD(group, member, unit, says) ROW(member, unit, false, group, says)

const struct cli_counter cli_counters[] = {
	HEAD("memory", bytes_live, CLI_BYTES, "handed out and not freed"),
	MAX(bytes_peak, CLI_BYTES, "highest bytes_live"),
	SUM(bytes_served, CLI_BYTES, "handed out in total"),
	SUM(bytes_inherited, CLI_BYTES, "of those, by the parent before the fork"),
	SUM(bytes_recycled, CLI_BYTES, "handed out from warm memory"),
	SUM(bytes_warm, CLI_BYTES, "freed, kept warm"),
	SUM(bytes_returned, CLI_BYTES, "returned to the kernel in total"),
	SUM(bytes_collapsed, CLI_BYTES, "huge pages made ahead"),
	HEAD("blocks and storages", blocks_live, CLI_COUNT, "blocks live"),
	SUM(blocks_served, CLI_COUNT, "blocks handed out in total"),
	SUM(blocks_inherited, CLI_COUNT, "of those, by the parent before the fork"),
	SUM(storages_live, CLI_COUNT, "storages live"),
	HEAD("copy-on-write", clones_lazy, CLI_COUNT, "clones by reference"),
	SUM(clones_paged, CLI_COUNT, "clones by freezing"),
	SUM(clones_eager, CLI_COUNT, "clones by copying"),
	SUM(materialized_page, CLI_COUNT, "materialized by page"),
	SUM(materialized_copy, CLI_COUNT, "materialized by copy"),
	SUM(steals, CLI_COUNT, "taken over by the last reference"),
	SUM(bytes_copied, CLI_BYTES, "copied by the library"),
	SUM(bytes_not_copied, CLI_BYTES, "bytes that were not copied"),
	HEAD("fork", forks, CLI_COUNT, "forks"),
	MAX(fork_ns_last, CLI_NS, "pause of the last"),
	MAX(fork_ns_max, CLI_NS, "longest pause"),
	SUM(fork_ns_total, CLI_NS, "all pauses"),
	SUM(freezes, CLI_COUNT, "extents frozen"),
	SUM(bytes_frozen, CLI_BYTES, "frozen"),
	SUM(thaws, CLI_COUNT, "extents thawed"),
	SUM(bytes_thawed, CLI_BYTES, "thawed"),
	SUM(pages_written_back, CLI_COUNT, "pages written back by thaws"),
	SUM(pages_private, CLI_COUNT, "copied when written, as a fork last counted"),
	SUM(bytes_shadow_returned, CLI_BYTES, "old frozen pages returned"),
	HEAD("kernel", bytes_limbo, CLI_BYTES, "freed, still mapped by other processes"),
	SUM(segments, CLI_COUNT, "memfds open"),
	SUM(mappings, CLI_COUNT, "mappings, estimated"),
	SUM(helper_starts, CLI_COUNT, "helper threads started"),
	SUM(heal_ns_total, CLI_NS, "spent on thawing in slices"),
	MAX(heal_wait_ns_max, CLI_NS, "longest wait of a thread for a slice"),
	HEAD("border", strangers, CLI_COUNT, "processes that gave up privileges beside relatives"),
	SUM(bytes_marked, CLI_BYTES, "in files that such a process marked"),
	SUM(bytes_border_returned, CLI_BYTES, "freed memory returned before"),
	SUM(bytes_forwarded, CLI_BYTES, "moved out of files that relatives have"),
};

enum { COUNTERS = sizeof cli_counters / sizeof cli_counters[0] };

const size_t cli_counters_count = COUNTERS;

/* All members but `size`, which is the first, and the two arrays of fallbacks. */
static_assert(COUNTERS == sizeof(struct cow_stats) / sizeof(uint64_t) - 1 -
                          2 * COW_FALLBACKS, "a counter has no row");

static uint64_t *place_of_counter(const struct cli_counter *counter,
                                  struct cow_stats *stats)
{
	return (uint64_t *)((char *)stats + counter->offset);
}

uint64_t cli_counter_get(const struct cli_counter *counter,
                         const struct cow_stats *stats)
{
	return *(const uint64_t *)((const char *)stats + counter->offset);
}

static int set_fallback(uint64_t *all, const char *name, uint64_t value)
{
	for (int i = 0; i < COW_FALLBACKS; i++)
		if (strcmp(cli_fallback_name(i), name) == 0) {
			all[i] = value;
			return 0;
		}
	return -ENOENT;
}

int cli_counter_set(struct cow_stats *stats, const char *name, uint64_t value)
{
	static const char times[] = "fallback.", bytes[] = "fallback_bytes.";

	if (strncmp(name, times, sizeof times - 1) == 0)
		return set_fallback(stats->fallbacks, name + sizeof times - 1,
		                    value);
	if (strncmp(name, bytes, sizeof bytes - 1) == 0)
		return set_fallback(stats->fallback_bytes,
		                    name + sizeof bytes - 1, value);
	for (size_t i = 0; i < COUNTERS; i++)
		if (strcmp(cli_counters[i].name, name) == 0) {
			*place_of_counter(&cli_counters[i], stats) = value;
			return 0;
		}
	return -ENOENT;
}

void cli_stats_add(struct cow_stats *sum, const struct cow_stats *more)
{
	for (size_t i = 0; i < COUNTERS; i++) {
		uint64_t *to = place_of_counter(&cli_counters[i], sum);
		uint64_t value = cli_counter_get(&cli_counters[i], more);

		if (!cli_counters[i].is_max)
			*to += value;
		else if (*to < value)
			*to = value;
	}
	for (int i = 0; i < COW_FALLBACKS; i++) {
		sum->fallbacks[i] += more->fallbacks[i];
		sum->fallback_bytes[i] += more->fallback_bytes[i];
	}
}

uint64_t cli_bytes_served(const struct cow_stats *stats)
{
	return stats->bytes_served - stats->bytes_inherited;
}

uint64_t cli_blocks_served(const struct cow_stats *stats)
{
	return stats->blocks_served - stats->blocks_inherited;
}
