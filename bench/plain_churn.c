/* SPDX-License-Identifier: MIT */
/*
 * Blocks of many sizes, made, written and freed in random order
 *
 *      plain_churn [-l BYTES] [-m BYTES] [-a BLOCKS] [-n TIMES] [-t THREADS]
 *
 * Each thread has BLOCKS (20) blocks of between -l (5M) and -m (25M) bytes. It frees one
 * at random, makes one of another size, and writes all of it, TIMES (1000) times. Before
 * a block is freed its bytes are checked here and there. plain_measure measures time and
 * memory from outside.
 */
#include "bench/common.h"

#include <pthread.h>

static size_t least = 5 * MIB, most = 25 * MIB, blocks = 20, times = 1000;

static void end(unsigned char *p, size_t bytes, size_t k)
{
	if (p && (p[0] != (unsigned char)k || p[bytes / 3] != (unsigned char)k ||
	          p[bytes - 1] != (unsigned char)k))
		die("a byte was lost");
	free(p);
}

static void *churn(void *arg)
{
	uint64_t state = RANDOM_START + (uintptr_t)arg;
	unsigned char **block = calloc(blocks, sizeof(*block));
	size_t *bytes = calloc(blocks, sizeof(*bytes)), k;

	if (!block || !bytes)
		die("no memory");
	for (size_t i = 0; i < times; i++) {
		k = random_next(&state) % blocks;
		end(block[k], bytes[k], k);
		bytes[k] = least + random_next(&state) % (most - least + 1);
		block[k] = (unsigned char *)block_of(bytes[k], false, (int)k);
	}
	for (k = 0; k < blocks; k++)
		end(block[k], bytes[k], k);
	free(block);
	free(bytes);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread[64];
	size_t threads = 1;

	OPTIONS({ 'l', .size = &least }, { 'm', .size = &most }, { 'a', .size = &blocks },
	        { 'n', .size = &times }, { 't', .size = &threads });
	if (!least || most < least || !blocks || !threads || threads > 64)
		die("usage: see the head of bench/plain_churn.c");
	for (size_t i = 1; i < threads; i++)
		if (pthread_create(&thread[i], NULL, churn, (void *)i) != 0)
			die("no thread");
	churn(NULL);
	for (size_t i = 1; i < threads; i++)
		pthread_join(thread[i], NULL);
	return 0;
}
