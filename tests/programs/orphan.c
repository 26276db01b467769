/* SPDX-License-Identifier: MIT */
/*
 * An orphan that rewrites what it inherited, and then asks for nothing large
 *
 * The parent is gone, so no process reads the bytes of the moment of the fork any
 * more. An allocator that keeps them in a memfd has to give them back, though no call
 * of this process needs that. Without a memfd the program checks nothing.
 */
#include "memory.h"

#include <time.h>

#define BYTES (48 * MIB)

static unsigned char *block;
static int to_parent[2];

static int twice(void)
{
	struct held now = held_now();

	return now.memfd && now.memfd + now.anonymous > BYTES + BYTES / 4;
}

static void lives_on(void *arg)
{
	pid_t parent = *(pid_t *)arg;
	int looks;

	while (getppid() == parent)
		nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
	check(holds(block, BYTES, 1));
	fill(block, BYTES, 2);
	/* The bytes are there once: in pages of its own, or in the memfd again. */
	for (looks = 0; twice(); looks++) {
		check(looks < 1000);
		free(get(100));
		nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
	}
	check(holds(block, BYTES, 2));
	gate_open(to_parent);
}

static void leaves(void *arg)
{
	pid_t self = getpid();

	(void)arg;
	block = get_filled(BYTES, 1);
	(void)start(lives_on, &self);
}

/* The same for a fork inside of libc. */
static void becomes_a_daemon(void *arg)
{
	pid_t self = getpid();

	(void)arg;
	block = get_filled(BYTES, 1);
	check(daemon(1, 1) == 0);
	lives_on(&self);
}

int main(void)
{
	gate_make(to_parent);
	in_child(leaves, NULL);
	gate_wait(to_parent);
	in_child(becomes_a_daemon, NULL);
	gate_wait(to_parent);
	puts("nothing is kept for the dead");
	return 0;
}
