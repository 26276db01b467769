/* SPDX-License-Identifier: MIT */
/*
 * A program that forbids itself huge pages
 *
 * PR_SET_THP_DISABLE is meant against huge pages that nobody asked for, and against copies of
 * 2 MiB after a fork. redis-server makes the call where transparent_hugepage/enabled is
 * "always". The engine's memory is copied page by page after a fork, and without huge pages it
 * is slower. Linux 6.18 can forbid huge pages except where they are advised. So the shim makes
 * that call, and the engine advises its own memory. The program's other memory has none, as it
 * wants, and PR_GET_THP_DISABLE tells what it set. On an older kernel, and with the option
 * collapse=no, the call stays as it is.
 */
#include "preload/park.h"
#include "preload/preload.h"

#include "core/program/advise.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define EXCEPT_ADVISED 2 /* PR_THP_DISABLE_EXCEPT_ADVISED of Linux 6.18 */

static bool ours; /* the shim added EXCEPT_ADVISED */

static long
set(long a, long b, long c, long d)
{
	int saved = errno;
	long r;

	if (a && !b && !c && !d && !preload_sandboxed() && cow__huge_apart(true)) {
		if (preload_kernel(SYS_prctl, PR_SET_THP_DISABLE, a, EXCEPT_ADVISED, 0, 0) == 0) {
			ours = true;
			return 0;
		}
		errno = saved;
	}
	r = preload_kernel(SYS_prctl, PR_SET_THP_DISABLE, a, b, c, d);
	if (r == 0 || !ours) {
		ours = false;
		(void)cow__huge_apart(false);
	}
	return r;
}

bool
preload_is_thp(long number, long option)
{
	return number == SYS_prctl &&
	       (option == PR_SET_THP_DISABLE || option == PR_GET_THP_DISABLE);
}

long
preload_thp(long option, long a, long b, long c, long d)
{
	long r;

	if (option == PR_SET_THP_DISABLE)
		return set(a, b, c, d);
	r = preload_kernel(SYS_prctl, option, a, b, c, d);
	return ours && r == (1 | EXCEPT_ADVISED) ? 1 : r;
}
