/* SPDX-License-Identifier: MIT */
/*
 * unshare(CLONE_NEWUSER) and setns() to such a namespace need a process with one thread
 *
 * A program that never started a thread has one, whatever its malloc does. The
 * result is printed, since a machine may forbid it for other reasons; it must
 * be the same with and without the shim.
 */
#include "program.h"

#include <fcntl.h>
#include <sched.h>

static void try_it(void *arg)
{
	(void)arg;
	errno = 0;
	printf("user_namespace: %d", unshare(CLONE_NEWUSER));
	printf(" errno %d\n", errno);
	fflush(NULL);
	free(get_filled(10 * MIB, 1));
}

static int to_child[2], to_parent[2];

static void has_its_own(void *arg)
{
	(void)arg;
	(void)!unshare(CLONE_NEWUSER);
	gate_open(to_parent);
	gate_wait(to_child);
}

static void join_another(void *arg)
{
	pid_t other = start(has_its_own, NULL);
	char path[40];
	int fd;

	(void)arg;
	gate_wait(to_parent);
	snprintf(path, sizeof(path), "/proc/%d/ns/user", other);
	fd = open(path, O_RDONLY);
	free(get_filled(200 * MIB, 1));
	errno = 0;
	printf("user_namespace: join %d", setns(fd, CLONE_NEWUSER));
	printf(" errno %d\n", errno);
	fflush(NULL);
	close(fd);
	free(get_filled(10 * MIB, 1));
	gate_open(to_child);
	finish(other);
}

int main(void)
{
	unsigned char *p[40];
	int i;

	gate_make(to_child);
	gate_make(to_parent);
	in_child(try_it, NULL);
	in_child(join_another, NULL);
	for (i = 0; i < 40; i++)
		p[i] = get_filled(4 * MIB, (uint64_t)i);
	for (i = 0; i < 40; i++) {
		check(holds(p[i], 4 * MIB, (uint64_t)i));
		free(p[i]);
	}
	in_child(try_it, NULL);
	in_child(join_another, NULL);
	free(get_filled(20 * MIB, 1));
	/* And in the process that did all that. */
	try_it(NULL);
	return 0;
}
