/* SPDX-License-Identifier: MIT */
/*
 * Test support: a kernel that refuses. See the header.
 *
 * The library's own gate is built in here under another name, for the calls
 * that pass. It may be entered by the helper thread, which has no thread-local
 * storage: so no libc, no errno, and atomics.
 */
#define cow__syscall real_gate
#include "memfd/syscall.c"
#undef cow__syscall

#include "core/base/pool.h"
#include "tests/support/fault/fault.h"
#include "tests/support/fault/pages.h"

enum { RULES_MAX = 16 };

static struct {
	long nr, value;
	int arg, error;
} rules[RULES_MAX];
static int rule_count;
static unsigned long denials;
static bool unmaps;

static int countdown, armed_error, fired;
static bool lasting;
static long fired_nr;

void fault_after(int n, int error)
{
	__atomic_store_n(&fired, 0, __ATOMIC_RELAXED);
	armed_error = error & ~FAULT_LASTING;
	lasting = error & FAULT_LASTING;
	__atomic_store_n(&countdown, n, __ATOMIC_RELEASE);
}

bool fault_lasts(void)
{
	return lasting;
}

bool fault_disarm(void)
{
	__atomic_store_n(&countdown, 0, __ATOMIC_RELAXED);
	return __atomic_load_n(&fired, __ATOMIC_RELAXED);
}

long fault_fired_nr(void)
{
	return fired_nr;
}

void fault_deny(long nr, int arg, long value, int error)
{
	if (rule_count == RULES_MAX)
		__builtin_trap();
	rules[rule_count].nr = nr;
	rules[rule_count].arg = arg;
	rules[rule_count].value = value;
	rules[rule_count++].error = error;
}

void fault_unmaps(void)
{
	unmaps = true;
}

unsigned long fault_denials(void)
{
	return __atomic_load_n(&denials, __ATOMIC_RELAXED);
}

static bool may_fail(long nr)
{
	switch (nr) {
	case SYS_close:
	case SYS_munmap:
	case SYS_fstat:
	case SYS_futex:
	case SYS_sched_yield:
	case SYS_getpid:
	case SYS_gettid:
	case SYS_exit_group:
		return false;
	default:
		return true;
	}
}

static int denied(long nr, const long *args)
{
	int i;

	for (i = 0; i < rule_count; i++)
		if (rules[i].nr == nr &&
		    (rules[i].arg == FAULT_ANY ||
		     args[rules[i].arg] == rules[i].value)) {
			__atomic_fetch_add(&denials, 1, __ATOMIC_RELAXED);
			return rules[i].error;
		}
	return 0;
}

/* True for exactly one call, in whichever thread, if it is not to last. `pool`: at the
 * other gate. */
static bool fires(long nr, long flags, bool pool)
{
	int n = __atomic_load_n(&countdown, __ATOMIC_ACQUIRE);

	if (n == 0 || pool != (armed_error == FAULT_POOLS) || !may_fail(nr))
		return false;
	/* Else nobody could take a name away again, or look whether it is his. */
	if (lasting && __atomic_load_n(&fired, __ATOMIC_RELAXED) &&
	    (nr == SYS_unlinkat || (nr == SYS_openat && (flags & O_PATH))))
		return false;
	/* One that lasts stays at its last call. */
	while (n > 0 && !__atomic_compare_exchange_n(&countdown, &n, lasting && n == 1 ? 1 : n - 1,
	                                             false, __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE))
		;
	if (n != 1)
		return false;
	fired_nr = nr;
	__atomic_store_n(&fired, 1, __ATOMIC_RELAXED);
	return true;
}

long cow__syscall(long nr, long a, long b, long c, long d, long e, long f)
{
	const long args[] = { a, b, c, d, e, f };
	int error = denied(nr, args);

	if (error != 0 && unmaps && nr == SYS_mremap && (d & MREMAP_FIXED))
		(void)real_gate(SYS_munmap, e, b, 0, 0, 0, 0);
	if (error != 0)
		return error == FAULT_IGNORED ? 0 : -error;
	/* A limit that is put back: a new one, and the old one is asked for. */
	if (!(nr == SYS_prlimit64 && c && d) && fires(nr, c, false))
		return -armed_error;
	return fault_pages_call(real_gate, nr, a, b, c, d, e, f);
}

/* The linker puts these names in the place of cow__pool_take() (Makefile). */
void *__wrap_cow__pool_take(struct cow__pool *pool);
void *__real_cow__pool_take(struct cow__pool *pool);

void *__wrap_cow__pool_take(struct cow__pool *pool)
{
	return fires(-1, 0, true) ? NULL : __real_cow__pool_take(pool);
}
