/* SPDX-License-Identifier: MIT */
/*
 * A storage over a fork: each side has the bytes of that moment
 *
 * The library's own fork handlers freeze the memory before the fork. The child
 * inherits the memory as a private mapping. So each side's later writes are its
 * own. The kernel copies the pages that are written, not 64 MiB.
 */
#include <cowshed.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES ((size_t)64 << 20)

static void
must(int r)
{
	if (r < 0) {
		fprintf(stderr, "fork: %s\n", cow_last_error());
		exit(1);
	}
}

/* Asks for the address each time it begins to write: it may change. */
static void
write_first(struct cow_storage *s, char byte)
{
	void *p;

	must(cow_storage_data_mut_range(s, 0, 1, COW_WRITE_AUTO, &p));
	*(char *)p = byte;
}

static int
child(struct cow_storage *s)
{
	const char *p = cow_storage_data(s);

	if (p[0] != 'a' || p[BYTES - 1] != 'a')
		return 1;
	write_first(s, 'c');
	p = cow_storage_data(s);
	printf("child:  %.4s\n", p);
	fflush(stdout);
	return p[0] != 'c';
}

int
main(void)
{
	struct cow_stats stats = { .size = sizeof(stats) };
	struct cow_storage *s;
	const char *bytes;
	int status = 0;
	pid_t pid;
	void *p;

	must(cow_storage_new(BYTES, NULL, &s));
	must(cow_storage_data_mut(s, &p));
	memset(p, 'a', BYTES);

	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(child(s));
	if (pid < 0) {
		perror("fork");
		return 1;
	}
	write_first(s, 'p');
	if (waitpid(pid, &status, 0) != pid || status != 0)
		return 1;

	bytes = cow_storage_data(s);
	if (bytes[0] != 'p' || bytes[1] != 'a')
		return 1;
	must(cow_stats_get(&stats));
	printf("parent: %.4s\n", bytes);
	printf("the fork froze %llu bytes and copied %llu\n",
	       (unsigned long long)stats.bytes_frozen,
	       (unsigned long long)stats.bytes_copied);
	cow_storage_unref(s);
	return 0;
}
