/* SPDX-License-Identifier: MIT */
/*
 * Call sites: which lines of a Python program cloned and copied
 *
 * The command makes a file of slots. Each process of the program that imports the Python
 * package maps it, and counts in it (python/_cowshed/sites.c). So nothing is lost when a
 * process is killed, and no process has to be asked.
 */
#include "cli/profile.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static_assert(sizeof(struct cli_site) == 248, "python/_cowshed/sites.c has it, too");

int cli_sites_make(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600), r;

	if (fd < 0)
		return -errno;
	r = ftruncate(fd, CLI_SITES * sizeof(struct cli_site)) < 0 ||
	    setenv("COWSHED_SITES", path, 1) < 0 ? -errno : fd;
	if (r < 0) {
		unlink(path);
		close(fd);
	}
	return r;
}

static int by_copied(const void *a, const void *b)
{
	const struct cli_site *p = a, *q = b;

	if (p->copied != q->copied)
		return p->copied < q->copied ? 1 : -1;
	if (p->shared != q->shared)
		return p->shared < q->shared ? 1 : -1;
	return strcmp(p->text, q->text);
}

/* Two processes may have taken a slot each for the same site. */
static size_t merge(struct cli_site *all, size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++) {
		size_t same = 0;

		while (same < kept && strcmp(all[same].text, all[i].text) != 0)
			same++;
		if (same == kept) {
			all[kept++] = all[i];
			continue;
		}
		all[same].calls += all[i].calls;
		all[same].shared += all[i].shared;
		all[same].copied += all[i].copied;
		all[same].ns += all[i].ns;
	}
	return kept;
}

ssize_t cli_sites_read(int fd, struct cli_site **ret)
{
	struct cli_site *all = calloc(CLI_SITES, sizeof *all);
	ssize_t n = all != NULL ? pread(fd, all, CLI_SITES * sizeof *all, 0) : -1;
	size_t count = 0;

	if (n < 0) {
		int r = all != NULL ? -errno : -ENOMEM;

		free(all);
		return r;
	}
	for (size_t i = 0; i < (size_t)n / sizeof *all; i++) {
		all[i].text[CLI_SITE_TEXT - 1] = 0; /* a program may have written it */
		if (all[i].state == CLI_SITE_READY && all[i].calls > 0)
			all[count++] = all[i];
	}
	count = merge(all, count);
	qsort(all, count, sizeof *all, by_copied);
	*ret = all;
	return (ssize_t)count;
}
