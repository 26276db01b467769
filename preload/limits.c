/* SPDX-License-Identifier: MIT */
/*
 * Calls that would fail, or do wrong, because of the shim
 *
 *   setrlimit, prlimit   a limit on address space counts the reserved window; a
 *                        limit on private memory does not count our blocks
 *   mlockall             the limit on locked memory counts the window, too; and
 *                        free and frozen memory would become resident
 *   munlockall           a fork would lock again what was locked before
 */
#include "preload/park.h"
#include "preload/preload.h"

#include "core/program/advise.h"
#include "core/memory/window.h"
#include "cowshed.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

/* Called before the limit is set. */
static void
prepare_limit(int resource, const struct rlimit *limit)
{
	if (!limit || !preload_is_readable(limit, sizeof(*limit)) ||
	    limit->rlim_cur == RLIM_INFINITY)
		return;
	if (resource == RLIMIT_AS)
		(void)cow__window_yield();
	if (resource == RLIMIT_DATA)
		cow__window_counts();
}

EXPORT int
setrlimit(__rlimit_resource_t resource, const struct rlimit *limit)
{
	prepare_limit((int)resource, limit);
	return (int)preload_kernel(SYS_prlimit64, 0, resource, limit, NULL);
}

EXPORT int
setrlimit64(__rlimit_resource_t resource, const struct rlimit64 *limit)
{
	return setrlimit(resource, (const struct rlimit *)limit);
}

EXPORT int
prlimit(pid_t pid, enum __rlimit_resource resource, const struct rlimit *limit,
        struct rlimit *old)
{
	if (limit && (pid == 0 || pid == preload_pid()))
		prepare_limit((int)resource, limit);
	return (int)preload_kernel(SYS_prlimit64, pid, resource, limit, old);
}

EXPORT int
prlimit64(pid_t pid, enum __rlimit_resource resource,
          const struct rlimit64 *limit, struct rlimit64 *old)
{
	return prlimit(pid, resource, (const struct rlimit *)limit,
	               (struct rlimit *)old);
}

EXPORT int
mlockall(int flags)
{
	struct rlimit limit;

	if (preload_sandboxed())
		return (int)preload_kernel(SYS_mlockall, flags);
	/* Else the kernel would copy each page when a frozen mapping is made. */
	if ((flags & MCL_FUTURE) && !(flags & MCL_ONFAULT))
		cow__window_counts();
	if (preload_kernel(SYS_prlimit64, 0, RLIMIT_MEMLOCK, NULL, &limit) == 0 &&
	    limit.rlim_cur != RLIM_INFINITY)
		(void)cow__window_yield();
	/* Else the kernel would make free memory resident again. */
	if ((flags & MCL_CURRENT) && !(flags & MCL_ONFAULT))
		(void)cow_trim();
	return (int)preload_kernel(SYS_mlockall, flags);
}

EXPORT int
munlockall(void)
{
	int r = cow__unlock_all();

	if (r < 0)
		errno = -r;
	return r < 0 ? -1 : 0;
}

PRELOAD_OWN(mlockall);
PRELOAD_OWN(munlockall);
