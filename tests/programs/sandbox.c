/* SPDX-License-Identifier: MIT */
/*
 * sandbox CALL ERROR COMMAND...: runs a command to which the kernel denies a call
 *
 * The call is denied from the command's first step on, also to the libraries that it loads.
 */
#include "deny.h"

static int number_of(const char *name)
{
	static const struct {
		const char *name;
		int number;
	} calls[] = {
		{ "membarrier", SYS_membarrier },
		{ "unshare", SYS_unshare },
	};

	for (size_t i = 0; i < COUNT(calls); i++)
		if (strcmp(calls[i].name, name) == 0)
			return calls[i].number;
	return -1;
}

int main(int argc, char **argv)
{
	int call = argc > 3 ? number_of(argv[1]) : -1;

	check(call >= 0);
	deny_calls(&call, 1, strcmp(argv[2], "EPERM") == 0 ? EPERM : ENOSYS);
	execv(argv[3], argv + 3);
	check(!"the command can be run");
}
