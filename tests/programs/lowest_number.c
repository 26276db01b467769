/* SPDX-License-Identifier: MIT */
/*
 * A program with one thread gets the lowest descriptor that is free
 *
 * POSIX says so. Programs that put a file in the place of another rely on it: close, then
 * open. Meanwhile this program fills and frees memory, page by page and in large blocks.
 *
 * Round numbers stay closed: tests take one of them where they need a wrong descriptor.
 */
#include "program.h"

#include <fcntl.h>

#define ROUNDS 60000

static void round_numbers_are_closed(void)
{
	static const int numbers[] = { 99,  100, 128, 200, 256, 300,
		                       400, 500, 512, 999, 1000 };

	for (size_t i = 0; i < COUNT(numbers); i++)
		check(fcntl(numbers[i], F_GETFD) == -1 && errno == EBADF);
}

static void reopen(int number)
{
	int fd;

	check(close(number) == 0);
	fd = open("/dev/null", O_RDONLY);
	if (fd != number) {
		dprintf(2, "the number is %d, not %d\n", fd, number);
		_exit(1);
	}
}

int main(void)
{
	unsigned char *slow = get(ROUNDS * PAGE), *p = NULL;
	size_t i;

	check(close(0) == 0 && open("/dev/null", O_RDONLY) == 0);
	for (i = 0; i < ROUNDS; i++) {
		if (i % 10000 == 0) {
			free(p);
			p = get_filled(64 * MIB, i);
		}
		slow[i * PAGE] = 1;
		reopen(0);
	}
	round_numbers_are_closed();
	free(p);
	free(slow);
	for (i = 0; i < ROUNDS / 2; i++)
		reopen(0);
	puts("lowest_number: done");
	return 0;
}
