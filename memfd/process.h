/* SPDX-License-Identifier: MIT */
/*
 * What the process around us is and does
 */
#ifndef COW_MEMFD_PROCESS_H
#define COW_MEMFD_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that the memory cgroup still allows and the machine still has;
 * UINT64_MAX if that can't be found out. It reads files, which takes tens of
 * microseconds. */
uint64_t cow__process_headroom(void);

/* Bytes of anonymous memory that the process has, without what is swapped out;
 * SIZE_MAX if that can't be found out. Copies of a file's pages are anonymous. */
size_t cow__process_anonymous(void);

/* Has libc run these around fork() from now on. 0 or -errno. */
int cow__process_atfork(void (*prepare)(void), void (*parent)(void),
                        void (*child)(void));

/* Reads the start of a memfd of this name that another process has open.
 * -ENOENT: it has none; -ESRCH: no such process; -EACCES, -EPERM. */
int cow__process_read_memfd(int32_t pid, const char *name, void *buf,
                            size_t bytes);

/* Processors that the calling thread may run on; 1 if that can't be found out. */
int cow__process_processors(void);

int32_t cow__process_id(void);
uint32_t cow__process_user(void); /* effective */

/* Has the process more rights than the user who started it (set-user-ID, file
 * capabilities)? */
bool cow__process_is_raised(void);

/* Could the process open a file by its mapping (/proc/self/map_files)? It has a capability
 * that allows it, or that can't be found out. */
bool cow__process_opens_mapped(void);

/* Has the process these capabilities (a mask of 1 << CAP_...), in effect, or `permitted`?
 * All of them, or any of them if `any`. False if that can't be found out. */
bool cow__process_capable(uint64_t mask, bool any, bool permitted);

/* Does the kernel let a process trace its parents and siblings of the same user and sandbox? Not
 * where Yama's ptrace_scope is not 0, which is asked once, and not if the process is not dumpable.
 * With CAP_SYS_PTRACE it does in both cases. */
bool cow__process_traces_relatives(void);

/* Is this user, as the kernel names a peer's here, the process's own? All users
 * that a user namespace does not know have the same number. */
bool cow__process_is_user(uint32_t uid);

/* Bytes that nobody can guess. 0 or -errno. */
int cow__random(void *buf, size_t bytes);

/* Writes to standard error, past libc. For builds that check invariants. */
void cow__process_say(const char *text, size_t bytes);

/* Ends the process at once. Nothing of it runs any more. */
_Noreturn void cow__process_exit(int status);

#endif
