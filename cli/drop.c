/* SPDX-License-Identifier: MIT */
/*
 * Where the processes of a program leave what they counted
 *
 * A directory of its own has a file of records and, for a profile, one of call sites.
 * Both are open here, so the names go when the program has ended.
 */
#include "cli/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_PATH = 255 }; /* characters; preload/options.c ignores a longer one */

void cli_drop_remove(struct cli_drop *drop)
{
	unlink(drop->path);
	if (drop->sites >= 0)
		unlink(drop->sites_path);
	rmdir(drop->directory);
}

void cli_drop_close(struct cli_drop *drop)
{
	fclose(drop->in);
	if (drop->sites >= 0)
		close(drop->sites);
}

int cli_drop_make(struct cli_drop *drop, bool sites)
{
	const char *where = getenv("TMPDIR");
	int fd, r;

	drop->sites = -1;
	/* The program may change directory; a comma would end the option. */
	if (where == NULL || *where != '/' || strchr(where, ',') != NULL ||
	    strlen(where) > sizeof drop->directory - 32)
		where = "/tmp";
	snprintf(drop->directory, sizeof drop->directory, "%s/cowshed-XXXXXX",
	         where);
	if (mkdtemp(drop->directory) == NULL)
		return -errno;
	snprintf(drop->path, sizeof drop->path, "%s/records", drop->directory);
	snprintf(drop->sites_path, sizeof drop->sites_path, "%s/sites",
	         drop->directory);
	fd = open(drop->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	drop->in = fd < 0 ? NULL : fdopen(fd, "r");
	r = drop->in == NULL ? -errno : 0;
	if (r == 0 && sites) {
		drop->sites = cli_sites_make(drop->sites_path);
		r = drop->sites < 0 ? drop->sites : 0;
	}
	if (r == 0)
		return 0;
	if (drop->in != NULL)
		fclose(drop->in);
	cli_drop_remove(drop);
	return r;
}

int cli_drop_check(const char *path)
{
	struct stat facts;
	int fd;

	if (strlen(path) > MOST_PATH)
		return cli_error("The records can't be written to '%s': the "
		                 "path has %zu characters; at most %d are "
		                 "possible.", path, strlen(path), MOST_PATH);
	/* To open a pipe would wait for its reader. */
	if (*path == 0 ||
	    (stat(path, &facts) == 0 && !S_ISREG(facts.st_mode) &&
	     !S_ISDIR(facts.st_mode)))
		return CLI_GO_ON;
	fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		return cli_error("The records can't be written to '%s': %s.",
		                 path, strerror(errno));
	close(fd);
	return CLI_GO_ON;
}
