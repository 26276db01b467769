/* SPDX-License-Identifier: MIT */
/*
 * Requests that come while memory heals: how late are they answered?
 *
 *      plain_late [-S TOTAL] [-b BLOCK] [-n FORKS]
 *
 * A server with TOTAL (512M) in blocks of BLOCK (16M) forks. While the child lives it rewrites
 * all. The child ends, and for 1.2 seconds the server sleeps for 200 us again and again, and
 * then writes to 16 pages here and there, as a request does. A request is as late as its sleep
 * was too long, and its writes took. FORKS (4) times. It prints percentiles over all requests.
 */
#include "bench/common.h"

#define SLEEP_NS 200000
#define SERVE_NS 1.2e9
#define MOST 100000
#define PAGES 16

static double late[MOST]; /* us */
static size_t requests;

static void request(char **blocks, size_t count, size_t pages)
{
	struct timespec pause = { 0, SLEEP_NS };
	double t0 = now_ns();

	nanosleep(&pause, NULL);
	for (size_t i = 0; i < PAGES; i++)
		blocks[(requests * 7 + i * 5) % count][(requests * 131 + i * 977) % pages * PAGE]++;
	if (requests < MOST)
		late[requests++] = (now_ns() - t0 - SLEEP_NS) / 1e3;
}

static void fork_and_rewrite(char **blocks, size_t count, size_t block, int value)
{
	int gate[2];
	char end;

	pipe_open(gate);
	if (forked(NULL) == 0) {
		close(gate[1]);
		_exit(read(gate[0], &end, 1) != 0);
	}
	for (size_t i = 0; i < count; i++)
		memset(blocks[i], value, block);
	close(gate[0]);
	close(gate[1]);
}

int main(int argc, char **argv)
{
	size_t total = 512 * MIB, block = 16 * MIB, count;
	int forks = 4;
	char **blocks;
	double t0;

	OPTIONS({ 'S', .size = &total }, { 'b', .size = &block }, { 'n', .count = &forks });
	if (block < PAGE)
		die("sizes that can't be");
	blocks = blocks_of(total, block, false, 1, &count);
	for (int f = 0; f < forks; f++) {
		fork_and_rewrite(blocks, count, block, f + 2);
		for (t0 = now_ns(); now_ns() - t0 < SERVE_NS;) {
			request(blocks, count, block / PAGE);
			(void)waitpid(-1, NULL, WNOHANG);
		}
	}
	printf("half_us=%.1f p99_us=%.1f p999_us=%.1f worst_us=%.1f requests=%zu\n",
	       quantile(late, requests, 0.5), quantile(late, requests, 0.99),
	       quantile(late, requests, 0.999), quantile(late, requests, 1), requests);
	return 0;
}
