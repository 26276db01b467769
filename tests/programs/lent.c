/* SPDX-License-Identifier: MIT */
/*
 * vmsplice of memory that another thread writes meanwhile
 *
 * A pipe gets pages of a block while a thread writes to all of them in turn, and
 * checks that its words are there. A part of the block is read-only.
 */
#include "writer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>

enum { ROUNDS = 20 };

static const size_t bytes = 4 * MIB;

static void lend(unsigned char *p)
{
	struct iovec all_of_it = { p, bytes };
	unsigned char found[PAGE];
	int ends[2];

	check(pipe(ends) == 0);
	check(vmsplice(ends[1], &all_of_it, 1, SPLICE_F_NONBLOCK) > 0);
	check(read(ends[0], found, PAGE) == (ssize_t)PAGE);
	check(holds(found + 8, PAGE - 8, 1));
	close(ends[0]);
	close(ends[1]);
}

int main(void)
{
	pthread_t thread;
	unsigned char *p;
	int n;

	for (n = 0; n < ROUNDS; n++) {
		p = get_pages(bytes);
		memset(p, 3, bytes);
		fill(p, PAGE, 1);
		memmove(p + 8, p, PAGE - 8);
		words = (volatile uint64_t *)p;
		check(mprotect(p + 3 * MIB, MIB, PROT_READ) == 0);
		atomic_store(&stop, 0);
		check(pthread_create(&thread, NULL, write_and_look, NULL) == 0);
		wait_for_turns(2);
		lend(p);
		wait_for_turns(2);
		atomic_store(&stop, 1);
		pthread_join(thread, NULL);
		check(all(p + 3 * MIB, MIB, 3));
		check(mprotect(p, bytes, PROT_READ | PROT_WRITE) == 0);
		memset(p, 4, bytes);
		free(p);
	}
	puts("lent: done");
	return 0;
}
