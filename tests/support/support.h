/* SPDX-License-Identifier: MIT */
/*
 * What every test uses
 *
 * libcheck runs each test in a process of its own, so that a crash or a leak
 * stays inside one test. Three of its traps are closed here, once:
 *
 *   - A failed assertion in a process that the *test* forked passes silently,
 *     unless somebody looks at how that process ended. So nobody calls fork():
 *     in_child() and child_start()/child_finish() do, and look.
 *   - A leak is invisible. add_case() gives each test a fixture that compares
 *     descriptors, mappings, memfds' pages, live bytes, blocks and storages before
 *     and after, and looks for children that nobody waited for.
 *   - A test that waits for another process by sleeping is wrong on a slow day.
 *     A *gate* is a pipe: one side waits until the other opens it, or until a
 *     generous deadline shows that nobody will.
 *
 * test_harness.c proves that each of these does catch what it is for.
 *
 * Patterns: pattern.h has fill(); ck_pattern() names the first wrong byte.
 */
#ifndef COWSHED_TESTS_SUPPORT_H
#define COWSHED_TESTS_SUPPORT_H

#include "tests/support/pattern.h"

#include <check.h>
#include <cowshed.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#ifndef TEST_PAGE /* scripts/kernels-cross.sh: of another kernel */
#define TEST_PAGE 4096
#endif
#define PAGE ((size_t)TEST_PAGE)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* A quarter of them with QUICK=1 in the environment, as make check sets it. */
int rounds(int n);

/* Sanitizers make everything slower, so loops that only repeat are shortened there. */
#if defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#define UNDER_TSAN 1
#define ROUNDS(n) ((n) / 8 + 1)
#elif defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#define UNDER_TSAN 0
#define ROUNDS(n) ((n) / 3 + 1)
#else
#define SANITIZED 0
#define UNDER_TSAN 0
#define ROUNDS(n) rounds(n)
#endif

/*
 * libcheck's own assertions write to a file where they hold, too. These do not,
 * so they may stand in inner loops and between threads that should race.
 */
#define must(condition)                                                        \
	do {                                                                   \
		if (!(condition))                                              \
			ck_abort_msg("not so: %s", #condition);                \
	} while (0)

/* A call that must succeed; the failure shows the library's sentence. */
#define ok(call)                                                               \
	do {                                                                   \
		int ok_code = (call);                                          \
		if (ok_code != 0)                                              \
			ck_abort_msg("%s gave %d: %s", #call, ok_code,         \
			             cow_last_error());                        \
	} while (0)

/* A call that must fail with `code`, and say why. */
#define fails(code, call)                                                      \
	do {                                                                   \
		int fails_code = (call);                                       \
		if (fails_code != (code))                                      \
			ck_abort_msg("%s gave %d, not %d", #call, fails_code,  \
			             (int)(code));                             \
		if (cow_last_error()[0] == '\0')                               \
			ck_abort_msg("%s left no sentence", #call);            \
	} while (0)

/* A call that must fail, for a reason that the contract leaves open. */
#define refuses(call)                                                          \
	do {                                                                   \
		int refuses_code = (call);                                     \
		if (refuses_code >= 0)                                         \
			ck_abort_msg("%s gave %d", #call, refuses_code);       \
		if (cow_last_error()[0] == '\0')                               \
			ck_abort_msg("%s left no sentence", #call);            \
	} while (0)

/* ---- Bytes --------------------------------------------------------------- */

/* The position of the first byte that is not `value`, or `bytes`. */
size_t first_not(const void *data, size_t bytes, unsigned char value);

#define ck_pattern(data, bytes, seed)                                          \
	do {                                                                   \
		size_t ck_n = (bytes);                                         \
		size_t ck_at = first_wrong((data), ck_n, (seed));              \
		if (ck_at != ck_n)                                             \
			ck_abort_msg("%s: byte %zu of %zu is wrong", #data,    \
			             ck_at, ck_n);                             \
	} while (0)

#define ck_bytes(data, bytes, value)                                           \
	do {                                                                   \
		size_t ck_n = (bytes);                                         \
		unsigned char ck_value = (unsigned char)(value);               \
		size_t ck_at = first_not((data), ck_n, ck_value);              \
		if (ck_at != ck_n)                                             \
			ck_abort_msg("%s: byte %zu of %zu is not %d", #data,   \
			             ck_at, ck_n, ck_value);                   \
	} while (0)

/* A deterministic stream of numbers (xorshift64*); any seed will do. */
struct prng {
	uint64_t state;
};
struct prng prng_make(uint64_t seed);
uint64_t prng_next(struct prng *prng);
size_t prng_below(struct prng *prng, size_t limit);

/* ---- Storages in one word ------------------------------------------------ */

struct cow_storage *new_storage(size_t bytes, uint32_t flags);
struct cow_storage *new_filled(size_t bytes, uint32_t flags, uint64_t seed);
struct cow_storage *lazy(struct cow_storage *storage);
unsigned char *mut(struct cow_storage *storage);
unsigned char *mut_range(struct cow_storage *storage, size_t offset,
                         size_t bytes, enum cow_write_hint hint);
unsigned char *expose(struct cow_storage *storage);
const unsigned char *data(const struct cow_storage *storage);
struct cow_storage_info info_of(const struct cow_storage *storage);
uint32_t state_of(const struct cow_storage *storage);
uint64_t refs_of(const struct cow_storage *storage);
struct cow_stats stats_now(void);
unsigned char *new_block(size_t bytes, uint32_t flags);

/* At a boundary of 2 MiB, not side by side with what was allocated before
 * (core/memory/place.c). So a gap lies behind it, unless its size is a multiple. */
unsigned char *new_block_apart(size_t bytes);
struct cow_storage *new_apart(size_t bytes); /* transparent */

/* ---- Children, gates, deadlines ------------------------------------------ */

typedef void child_fn(void *arg);

/* Forks. The child runs `body` and ends with status 0, or with another one
 * where an assertion failed. The only fork() of the tests. */
pid_t child_start(child_fn *body, void *arg);

/* Waits and asserts that the child ended with status 0. */
void child_finish(pid_t child);

/* Waits and returns the wait status, whatever it is. */
int child_status(pid_t child);

/* Does that thread of ours sleep, whatever for? Without /proc nobody does. */
bool thread_sleeps(int tid);

/* Both at once: `body` in a child, which must succeed. */
void in_child(child_fn *body, void *arg);

/* `body` in a child, which must end in the library's trap. */
void in_child_traps(child_fn *body, void *arg);

/* `body` in a child, which must return or trap: no other end will do. */
void in_child_survives(child_fn *body, void *arg);

struct gate {
	int fd[2];
};
void gate_make(struct gate *gate);
void gate_free(struct gate *gate);

/* Lets one waiter through, in this or in another process. */
void gate_open(struct gate *gate);

/* Waits to be let through; after half a minute the test fails. */
void gate_wait(struct gate *gate);

/* Sends and receives a few bytes in order, with the same deadline. */
void gate_send(struct gate *gate, const void *bytes, size_t count);
void gate_receive(struct gate *gate, void *bytes, size_t count);

/* Asks again and again until `met` says yes; false after `seconds`. For what
 * the library does by itself and announces to nobody. */
bool wait_until(bool (*met)(void *arg), void *arg, int seconds);

/* Is this address in a mapping that is shared (written in place), or private? */
bool mapped_shared(const void *address);

/* Kernel mappings from the first to the last of `n` addresses, which have `bytes` bytes. */
unsigned mappings_between(unsigned char *const *p, unsigned n, size_t bytes);

/* Linux before 5.13 moves the page tables of anonymous memory alone. */
bool page_tables_move(void);

/* ---- What the process holds ---------------------------------------------- */

struct footprint {
	long fds;      /* entries of /proc/self/fd */
	long maps;     /* lines of /proc/self/maps on memfds of cowshed */
	uint64_t memory; /* bytes in memfds of cowshed */
	uint64_t uncounted; /* children without a slot: what they inherited is kept */
	uint64_t bytes_live;
	uint64_t blocks_live;
	uint64_t storages_live;
};
struct footprint footprint_now(void);

/* The engine may keep this much for the next user, whatever a test did. What
 * a test leaks it should leak more than that many times. */
#define SLACK_FDS 8
#define SLACK_MAPS 32
#define SLACK_MEMORY (2 * MIB)

/* NULL if `after` holds no more than `before`, else what is too much. */
const char *footprint_excess(const struct footprint *before,
                             const struct footprint *after);

/* Calls `visit` for each memfd of ours that this process has open, once for
 * each inode, whichever thread's table it is in. Returns how many there are. */
int each_memfd(void (*visit)(int fd, const char *name, void *arg), void *arg);

/* Raises the soft limit on descriptors to the hard one, and returns what both were. The
 * library's numbers may lie above the soft limit, where dup2() refuses them. */
struct rlimit descriptors_raise(void);

/* Bytes of pages in those memfds, mapped or not. */
uint64_t memfd_bytes(void);

/* Those, and (without a sanitizer) the anonymous pages of this process. */
uint64_t memory_held(void);

/* Whether the kernel maps so many bytes of private memory at once. By default it refuses more than
 * all memory and swap (vm.overcommit_memory of proc(5)). */
bool memory_granted(size_t bytes);

/* ---- The build ----------------------------------------------------------- */

/* The path of `name` in the build that this program lies in (build/plain). A static buffer, which
 * the next call overwrites. */
const char *in_build(const char *name);

/* ---- Suites -------------------------------------------------------------- */

/* A test case with a generous timeout, whose tests may leak nothing. */
TCase *add_case(Suite *suite, const char *name);

/* The same without warming the engine up first and without the leak check:
 * for what must be the first thing that a process does. */
TCase *add_bare_case(Suite *suite, const char *name);

/* Runs and frees it; for main() to return. */
int run_suite(Suite *suite);

#ifdef __cplusplus
}
#endif

#endif
