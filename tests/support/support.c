/* SPDX-License-Identifier: MIT */
/*
 * Test support: patterns, short forms, suites and the leak check
 *
 * The leak check has an exact half and a tolerant half. Live bytes, blocks and
 * storages are the library's own counters and must come back to the last one.
 * Descriptors and mappings are the kernel's, and there the engine may keep a
 * segment or a page of metadata for the next user: SLACK_FDS and SLACK_MAPS
 * say how much; they are asked again for some seconds, since freed memory may
 * be given back by a helper thread.
 */
#include "tests/support/support.h"
#include "tests/support/left.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TIMEOUT_SECONDS = 240, SETTLE_SECONDS = 5 };

size_t first_not(const void *data, size_t bytes, unsigned char value)
{
	const unsigned char *p = data;
	size_t i;

	/* All equal the first one, if each equals its neighbour. */
	if (bytes == 0 || (p[0] == value && memcmp(p, p + 1, bytes - 1) == 0))
		return bytes;
	for (i = 0; i < bytes && p[i] == value; i++)
		;
	return i;
}

struct prng prng_make(uint64_t seed)
{
	struct prng prng = { pattern_start(seed) | 1 };

	return prng;
}

uint64_t prng_next(struct prng *prng)
{
	uint64_t x = prng->state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	prng->state = x;
	return x * 0x2545f4914f6cdd1d;
}

size_t prng_below(struct prng *prng, size_t limit)
{
	return (size_t)(prng_next(prng) >> 11) % limit;
}

struct cow_storage *new_storage(size_t bytes, uint32_t flags)
{
	struct cow_storage_options options = {
		.size = sizeof(options),
		.flags = flags,
	};
	struct cow_storage *storage = NULL;

	ok(cow_storage_new(bytes, &options, &storage));
	must(storage != NULL);
	return storage;
}

struct cow_storage *new_filled(size_t bytes, uint32_t flags, uint64_t seed)
{
	struct cow_storage *storage = new_storage(bytes, flags);

	fill(mut(storage), bytes, seed);
	return storage;
}

struct cow_storage *lazy(struct cow_storage *storage)
{
	struct cow_storage *clone = NULL;

	ok(cow_storage_lazy_clone(storage, &clone));
	must(clone != NULL);
	must(clone != storage);
	return clone;
}

unsigned char *mut(struct cow_storage *storage)
{
	void *p = NULL;

	ok(cow_storage_data_mut(storage, &p));
	must(p == cow_storage_data(storage));
	return p;
}

unsigned char *mut_range(struct cow_storage *storage, size_t offset,
                         size_t bytes, enum cow_write_hint hint)
{
	void *p = NULL;

	ok(cow_storage_data_mut_range(storage, offset, bytes, hint, &p));
	must(p == cow_storage_data(storage));
	return p;
}

unsigned char *expose(struct cow_storage *storage)
{
	void *p = NULL;

	ok(cow_storage_expose(storage, &p));
	must(p == cow_storage_data(storage));
	return p;
}

const unsigned char *data(const struct cow_storage *storage)
{
	return cow_storage_data(storage);
}

struct cow_storage_info info_of(const struct cow_storage *storage)
{
	struct cow_storage_info info;

	memset(&info, 0, sizeof(info));
	info.size = sizeof(info);
	ok(cow_storage_get_info(storage, &info));
	return info;
}

uint32_t state_of(const struct cow_storage *storage)
{
	return info_of(storage).state;
}

uint64_t refs_of(const struct cow_storage *storage)
{
	return cow_storage_use_count(storage);
}

struct cow_stats stats_now(void)
{
	struct cow_stats stats;

	memset(&stats, 0, sizeof(stats));
	stats.size = sizeof(stats);
	ok(cow_stats_get(&stats));
	return stats;
}

unsigned char *new_block(size_t bytes, uint32_t flags)
{
	void *block = NULL;

	ok(cow_block_new(bytes, 0, flags, &block));
	must(block != NULL);
	return block;
}

unsigned char *new_block_apart(size_t bytes)
{
	void *block = NULL;

	ok(cow_block_new(bytes, 2 * MIB, 0, &block));
	must(block != NULL);
	return block;
}

struct cow_storage *new_apart(size_t bytes)
{
	unsigned char *block = new_block_apart(bytes);
	struct cow_storage *storage = NULL;

	ok(cow_storage_from_ptr(block, NULL, &storage));
	cow_block_free(block);
	return storage;
}

/* ---- The leak check ------------------------------------------------------ */

static struct footprint at_start;

/* Uses each part of the engine once, so that what it sets up for good is there
 * before anything is counted. */
static void warm_up(void)
{
	struct cow_storage *a = new_filled(2 * MIB, 0, 1), *b = lazy(a);
	struct cow_storage *t = new_filled(2 * MIB, COW_STORAGE_TRANSPARENT, 1);
	struct cow_storage *u = lazy(t);
	void *block = new_block(2 * MIB, 0);

	mut_range(b, 0, 1, COW_WRITE_BY_PAGE)[0] = 1;
	mut_range(u, 0, 1, COW_WRITE_BY_COPY)[0] = 1;
	cow_block_free(block);
	cow_storage_unref(a);
	cow_storage_unref(b);
	cow_storage_unref(t);
	cow_storage_unref(u);
	a = new_filled(64, 0, 1);
	cow_storage_unref(a);
	cow_trim();
}

static void leak_check_begin(void)
{
	warm_up();
	at_start = footprint_now();
}

static bool
counters_differ(const struct footprint *a, const struct footprint *b)
{
	return a->storages_live != b->storages_live ||
	       a->blocks_live != b->blocks_live ||
	       a->bytes_live != b->bytes_live;
}

/* Settled: nothing is too much, or what is will not go away by waiting. */
static bool settled(void *arg)
{
	const char **excess = arg;
	struct footprint now;

	cow_trim();
	now = footprint_now();
	*excess = footprint_excess(&at_start, &now);
	return *excess == NULL || counters_differ(&at_start, &now);
}

static void leak_check_end(void)
{
	const char *excess = NULL;

	wait_until(settled, &excess, SETTLE_SECONDS);
	ck_assert_msg(excess == NULL, "leaked: %s", excess);
	if (waitpid(-1, NULL, WNOHANG) >= 0 || errno != ECHILD)
		ck_abort_msg("leaked: a child that nobody waited for");
}

const char *footprint_excess(const struct footprint *before,
                             const struct footprint *after)
{
	static char text[160];
	/* Children that could not be counted: each keeps a segment, a descriptor and its
	 * mappings (docs/design/holders.md). */
	long kept = (long)(after->uncounted - before->uncounted);

	if (after->storages_live != before->storages_live)
		snprintf(text, sizeof(text), "storages: %llu, were %llu",
		         (unsigned long long)after->storages_live,
		         (unsigned long long)before->storages_live);
	else if (after->blocks_live != before->blocks_live)
		snprintf(text, sizeof(text), "blocks: %llu, were %llu",
		         (unsigned long long)after->blocks_live,
		         (unsigned long long)before->blocks_live);
	else if (after->bytes_live != before->bytes_live)
		snprintf(text, sizeof(text), "bytes: %llu, were %llu",
		         (unsigned long long)after->bytes_live,
		         (unsigned long long)before->bytes_live);
	else if (after->fds > before->fds + SLACK_FDS + kept)
		snprintf(text, sizeof(text), "descriptors: %ld, were %ld",
		         after->fds, before->fds);
	else if (after->maps > before->maps + SLACK_MAPS + 2 * kept)
		snprintf(text, sizeof(text), "mappings: %ld, were %ld",
		         after->maps, before->maps);
	else if (after->memory > before->memory + SLACK_MEMORY && kept == 0)
		snprintf(text, sizeof(text), "memory: %llu bytes in memfds, were %llu",
		         (unsigned long long)after->memory,
		         (unsigned long long)before->memory);
	else
		return NULL;
	return text;
}

/* ---- Suites -------------------------------------------------------------- */

const char *in_build(const char *name)
{
	static char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) / 2);
	char *tests;

	must(n > 0);
	path[n] = '\0';
	/* The last one: folders above may have the same name. */
	for (tests = path + n; strncmp(tests, "/tests/", 7) != 0; tests--)
		must(tests > path);
	snprintf(tests, sizeof(path) - (size_t)(tests - path), "/%s", name);
	return path;
}

int rounds(int n)
{
	static int quick = -1;

	if (quick < 0) {
		const char *said = getenv("QUICK");

		quick = said && *said;
	}
	return quick ? n / 4 + 1 : n;
}

TCase *add_bare_case(Suite *suite, const char *name)
{
	TCase *tcase = tcase_create(name);

	tcase_set_timeout(tcase, TIMEOUT_SECONDS);
	suite_add_tcase(suite, tcase);
	return tcase;
}

TCase *add_case(Suite *suite, const char *name)
{
	TCase *tcase = add_bare_case(suite, name);

	tcase_add_checked_fixture(tcase, leak_check_begin, leak_check_end);
	return tcase;
}

int run_suite(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	/* The engine's helper thread has no thread-local storage, where this
	 * sanitizer keeps what it knows. */
	if (UNDER_TSAN)
		ok(cow_option_set("helper", "0"));
	fflush(stdout); /* what main() said of skips is said once */
	left_begin();
	srunner_run_all(runner, CK_ENV);
	(void)left_end();
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
