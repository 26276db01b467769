/* SPDX-License-Identifier: MIT */
/*
 * Freed memory goes back to the kernel while the program sleeps
 *
 * A helper gives it back, and thaws what a fork froze. It does so whatever other libraries the
 * process has, and whatever time they tell.
 */
#include "program.h"

#include <fcntl.h>

enum { BLOCK = 64 << 20 };

static size_t resident(void)
{
	char text[128], *p = text;
	int fd = open("/proc/self/statm", O_RDONLY);
	ssize_t n;

	check(fd >= 0);
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	check(n > 0);
	text[n] = '\0';
	while (*p != ' ')
		p++;
	return strtoul(p, NULL, 10) * PAGE;
}

static void forks(void)
{
	unsigned char *p = get(BLOCK);
	pid_t child;
	int status;

	memset(p, 1, BLOCK);
	child = fork();
	check(child >= 0);
	if (child == 0) {
		check(all(p, BLOCK, 1));
		memset(p, 2, BLOCK);
		_exit(all(p, BLOCK, 2) ? 0 : 1);
	}
	memset(p, 3, BLOCK / 2);
	check(waitpid(child, &status, 0) == child && status == 0);
	check(poll(NULL, 0, 50) == 0); /* time to thaw */
	check(all(p, BLOCK / 2, 3) && all(p + BLOCK / 2, BLOCK / 2, 1));
	free(p);
}

int main(void)
{
	size_t before = resident();
	unsigned char *p = get(BLOCK);

	memset(p, 1, BLOCK);
	free(p);
	/* The engine may keep 16 MiB warm. */
	while (resident() > before + BLOCK / 2)
		check(poll(NULL, 0, 10) == 0);
	forks();
	forks();
	puts("given back");
	return 0;
}
