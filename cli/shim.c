/* SPDX-License-Identifier: MIT */
/*
 * Where the preload library is
 *
 * Beside the command, so that a build tree and an installation in any prefix
 * work without being told: ../lib/ first (an installation), then the command's
 * own directory (a build), then where `make install` puts libraries. The
 * command's directory comes from /proc/self/exe; without /proc, from the path
 * the kernel gave this program (AT_EXECFN).
 */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef COWSHED_LIBDIR
#define COWSHED_LIBDIR "/usr/local/lib"
#endif

#define SHIM "libcowshed-preload.so"
#define COPIES "libcowshed-copies.so"

/* The directory of this executable, with no slash at the end. */
static int own_directory(char ret[PATH_MAX])
{
	ssize_t length = readlink("/proc/self/exe", ret, PATH_MAX - 1);
	char *slash;

	if (length >= 0) {
		ret[length] = 0;
	} else {
		const char *path = (const char *)getauxval(AT_EXECFN);

		if (path == NULL || realpath(path, ret) == NULL)
			return -ENOENT;
	}
	slash = strrchr(ret, '/');
	if (slash == NULL)
		return -ENOENT;
	*slash = 0;
	return 0;
}

static int try_directory(const char *directory, const char *below,
                         char ret[PATH_MAX])
{
	char path[PATH_MAX], real[PATH_MAX];
	struct stat st;
	int length = snprintf(path, sizeof path, "%s%s/" SHIM, directory,
	                      below);

	if (length < 0 || (size_t)length >= sizeof path)
		return -ENAMETOOLONG;
	if (realpath(path, real) == NULL)
		return -errno;
	if (stat(real, &st) < 0 || access(real, R_OK) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOENT;
	strcpy(ret, real);
	return 0;
}

int cli_shim_find(char ret[PATH_MAX])
{
	char own[PATH_MAX];

	if (own_directory(own) == 0 &&
	    (try_directory(own, "/../lib", ret) == 0 ||
	     try_directory(own, "", ret) == 0))
		return 0;
	return try_directory(COWSHED_LIBDIR, "", ret);
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

const char *cli_shim_places(void)
{
	return "../lib beside the command, the command's directory, "
	       COWSHED_LIBDIR;
}
