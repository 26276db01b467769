/* SPDX-License-Identifier: MIT */
/*
 * Finds the preload library
 *
 * It lies beside the libcowshed that the loader found for this command. That may
 * be in a build tree, in an installation with any prefix, or in a Debian package
 * under any root. So no path is compiled in, and the program gets the same
 * engine as the command.
 */
#include "cli/cli.h"

#include <cowshed.h>

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHIM "libcowshed-preload.so"
#define COPIES "libcowshed-copies.so"

int cli_shim_find(char ret[PATH_MAX])
{
	char path[PATH_MAX], real[PATH_MAX], *slash;
	struct stat st;
	Dl_info library;

	/* The version is a string in the library. A function would not do: its
	 * address may lie in the program. */
	if (dladdr(cow_version(), &library) == 0 ||
	    realpath(library.dli_fname, path) == NULL)
		return -ENOENT;
	slash = strrchr(path, '/');
	if ((size_t)(slash + 1 - path) + sizeof SHIM > sizeof path)
		return -ENAMETOOLONG;
	strcpy(slash + 1, SHIM);
	if (realpath(path, real) == NULL)
		return -errno;
	if (stat(real, &st) < 0 || access(real, R_OK) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOENT;
	strcpy(ret, real);
	return 0;
}

int cli_shim_copies(const char *shim, char ret[PATH_MAX])
{
	size_t length = strlen(shim) - strlen(SHIM);

	if (length + sizeof COPIES > PATH_MAX)
		return -ENAMETOOLONG;
	memcpy(ret, shim, length);
	strcpy(ret + length, COPIES);
	return access(ret, R_OK) < 0 ? -errno : 0;
}
