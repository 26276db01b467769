/* SPDX-License-Identifier: MIT */
/*
 * Test support: a kernel that refuses
 *
 * The library enters the kernel through one function, cow__syscall(). The
 * programs tests/fault_*.c are linked with another one in its place, which can
 * fail a single call, or all from one on, or deny a feature for ever, and
 * otherwise does the same.
 *
 * Some calls never fail here: close, munmap and fstat fail for wrong arguments
 * alone, and waiting and asking for one's own number have no failure that
 * means anything. What their failure would prove is that the test leaks. Nor,
 * once all calls fail, do unlinking and looking whether a name is still that file.
 *
 * The second gate is cow__pool_take(): the engine's own metadata. A pool that has
 * been used asks the kernel for nothing, so that its end is to be made here.
 *
 * Counters are per process: a forked child goes on with a copy.
 */
#ifndef COWSHED_TESTS_FAULT_H
#define COWSHED_TESTS_FAULT_H

#include <stdbool.h>

/* The n-th call from now that may fail (1: the next) fails with -error, once.
 * Replaces what was armed before. FAULT_POOLS for an error: the n-th object that a
 * pool should give is not there. FAULT_LASTING besides: nor does any after it
 * succeed, until it is disarmed. */
enum { FAULT_POOLS = 0, FAULT_LASTING = 0x10000 };
void fault_after(int n, int error);

/* Is what was armed last, or still is, one that lasts? */
bool fault_lasts(void);

/* Nothing is armed any more. Has it fired, in this process or before its
 * fork? */
bool fault_disarm(void);

/* The number of the call that failed last, for messages; -1: a pool. */
long fault_fired_nr(void);

enum { FAULT_ANY = -1 };

/* For an error: the call is not made, and says that it was. */
#define FAULT_IGNORED 0x7fffffff

/* From now on call `nr` fails with -error; all of them (FAULT_ANY), or those
 * whose argument number `arg` (from 0) equals `value`. */
void fault_deny(long nr, int arg, long value, int error);

/* From now on a denied mremap() has unmapped the place that it should move to, as most
 * kernels do. */
void fault_unmaps(void);

/* How often something that was denied has been asked for. */
unsigned long fault_denials(void);

#endif
