/* SPDX-License-Identifier: MIT */
/*
 * What the heap says about itself counts large blocks
 *
 * Servers watch their heap by these calls. A block of 100 MiB must appear in each of them while it
 * lives, and be gone after its end.
 */
#include "program.h"

#include <fcntl.h>
#include <malloc.h>

enum { BLOCK = 100 << 20 };

/* The largest number in the text behind `key`. */
static unsigned long long largest(const char *text, const char *key)
{
	unsigned long long most = 0;

	while ((text = strstr(text, key))) {
		unsigned long long n;

		text += strlen(key);
		n = strtoull(text, NULL, 10);
		most = n > most ? n : most;
	}
	return most;
}

static const char *stats(void)
{
	static char text[65536];
	int saved = dup(2), file = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	ssize_t n;

	check(saved >= 0 && file >= 0);
	check(dup2(file, 2) == 2);
	malloc_stats();
	fflush(stderr);
	check(dup2(saved, 2) == 2);
	n = pread(file, text, sizeof(text) - 1, 0);
	check(n > 0);
	text[n] = '\0';
	close(saved);
	close(file);
	return text;
}

static const char *info(void)
{
	static char text[65536];
	FILE *to = fmemopen(text, sizeof(text), "w");

	check(to && malloc_info(0, to) == 0);
	check(fclose(to) == 0);
	check(strncmp(text, "<malloc", 7) == 0);
	check(strcmp(strstr(text, "</malloc>"), "</malloc>\n") == 0);
	return text;
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* of mallinfo() */

static void look(const char *when, const struct mallinfo2 *before)
{
	struct mallinfo2 now = mallinfo2();
	struct mallinfo old = mallinfo();

	printf("%s: %zu blocks, %zu MiB\n", when, now.hblks - before->hblks,
	       (now.hblkhd - before->hblkhd) / MIB);
	check((unsigned)old.hblkhd == (unsigned)now.hblkhd);
	check((unsigned)old.hblks == (unsigned)now.hblks);
	printf("%s: in malloc_stats(): %d\n", when, largest(stats(), "in use bytes     =") >= BLOCK);
	printf("%s: in malloc_info(): %d\n", when, largest(info(), " size=\"") >= BLOCK);
}

int main(void)
{
	static char buffer[BUFSIZ];
	struct mallinfo2 before;
	unsigned char *p;

	check(setvbuf(stdout, buffer, _IOFBF, sizeof(buffer)) == 0);
	free(get(4 * MIB));
	(void)info();
	before = mallinfo2();
	look("before", &before);
	p = get(BLOCK);
	memset(p, 1, PAGE);
	look("while it lives", &before);
	free(p);
	look("after it", &before);
	return 0;
}
