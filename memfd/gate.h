/* SPDX-License-Identifier: MIT */
/*
 * Which calls of the kernel the library may make in this process
 *
 * A filter of system calls (seccomp) may end the process for a call. Two kinds of filters are
 * known:
 *
 *   a filter that came with exec   It is there before the first call of the library. What the
 *                                  library needs is tried once, in a child that may die. Calls
 *                                  that would end the process are refused from then on. If they
 *                                  are such that nothing is left to gain, all but libc's are.
 *   a filter that the process      It was written for a program that does not know of the
 *   sets itself                    library. From then on the library makes no call that libc's
 *                                  own allocator does not make.
 *
 * A refused call gives -EPERM, as if the kernel had answered so. A filter that answers with an
 * error needs no help. Every call of memfd/sys.h passes here.
 */
#ifndef COW_MEMFD_GATE_H
#define COW_MEMFD_GATE_H

#include <stdbool.h>
#include <stdint.h>

enum cow__gate {
	COW__GATE_OPEN,    /* all calls may be made */
	COW__GATE_UNKNOWN, /* nobody has looked for a filter yet */
	COW__GATE_TRIED,   /* but for those that ended a child */
	COW__GATE_LIBC,    /* only what libc's allocator needs */
};

/* One of these. Not open: cow__gate_lets() tells. */
extern uint32_t cow__gate_state;

bool cow__gate_lets(long nr, long a, long b, long c, long d);

/* Looks for a filter, if nobody has. Does it allow less than what the library can't do without? */
bool cow__gate_is_libcs(void);

/* The process is about to set a filter (`libc`), or could not set it. Plain stores, so it is
 * async-signal-safe. Calls that are under way go on. */
void cow__gate_libc(bool libc);

/* As cow__syscall() (memfd/syscall.c), through the gate; also for the shim's own needs.
 * Async-signal-safe. */
__attribute__((visibility("default"))) long
cow__ask(long nr, long a, long b, long c, long d, long e, long f);

/* Not 0: a thread of this process may be under a filter that it set itself, or is about to set one.
 * What would need an unusual call is left out then. quiet/sandbox.c counts. */
extern uint32_t cow__sandboxed;

/* ---- For memfd/gate.c alone (memfd/tries.c) ---- */

/* Tries the calls in a child, and notes those that ended it. `handlers`: the program has handlers
 * of signals, which must not run in a child. `lodgers`: the end of a child that has the process's
 * memory leaves the process alone. Returns what the gate becomes. */
enum cow__gate cow__tries_make(bool handlers, bool lodgers);
/* The flag of SYS_clone by which a child without the process's memory is tried: the kernel refuses
 * it, since it wants CLONE_VM besides. */
#define COW__FORKS CLONE_SIGHAND
/* Did this call end a child? */
bool cow__tries_killed(long nr, long a, long b, long c, long d);

#endif
