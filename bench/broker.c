/* SPDX-License-Identifier: MIT */
/*
 * Operations a second that a broker does for many clients
 *
 *      broker ADDRESS CLIENTS SECONDS PID
 *
 * Each client is a process that repeats three operations. It registers a storage of its
 * own under a fresh token. It fetches a storage that its neighbour registered, maps it,
 * reads a byte and releases it. It drops its own registration. Every operation must
 * succeed. All clients start at once and count until the time is over. The program prints the
 * operations a second, and the CPU time of an operation: clients and broker together, whose
 * number is PID.
 */
#include <cowshed-broker.h>

#include "bench/common.h"

enum { BYTES = 4096, MOST = 1024 };

static struct {
	int ready, go, stop;
	struct cow_token token[MOST];
	unsigned long done[MOST], failed[MOST];
} *all;

static int count = 64;

static void cycle(struct cow_broker *b, struct cow_storage *s, int i)
{
	int neighbour = (i + 1) % count;
	struct cow_broker_item mine = { .mode = COW_SHARE_SEALED,
		                        .permissions = 0600 };
	struct cow_broker_item other = { .token = all->token[neighbour] };
	struct cow_storage *got;

	if (cow_broker_put(b, s, &mine) < 0) {
		all->failed[i]++;
		return;
	}
	if (cow_broker_get(b, &other, &got, NULL) < 0) {
		all->failed[i]++;
	} else {
		const char *byte = cow_storage_data(got);

		all->failed[i] += byte[BYTES - 1] != (neighbour & 0x7f);
		cow_storage_unref(got);
	}
	if (cow_broker_drop(b, &mine) < 0)
		all->failed[i]++;
	all->done[i] += 3;
}

static void client(const char *address, int i)
{
	struct cow_broker_options o = { .size = sizeof(o), .address = address };
	struct cow_broker_item item = { .mode = COW_SHARE_SEALED };
	struct cow_storage *s = storage_filled(BYTES, 0, i & 0x7f, NULL);
	struct cow_broker *b;

	if (cow_broker_open(&o, &b) < 0 || cow_broker_put(b, s, &item) < 0) {
		fprintf(stderr, "client %d: %s\n", i, cow_last_error());
		_exit(1);
	}
	all->token[i] = item.token;
	__atomic_add_fetch(&all->ready, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&all->go, __ATOMIC_SEQ_CST))
		sleep_ms(1);
	while (!__atomic_load_n(&all->stop, __ATOMIC_RELAXED))
		cycle(b, s, i);
	/* The neighbour may still fetch this storage. */
	__atomic_sub_fetch(&all->ready, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&all->ready, __ATOMIC_SEQ_CST))
		sleep_ms(1);
	_exit(0);
}

/* CPU time of this process's dead children and of the broker, in nanoseconds. */
static double cpu(const char *pid)
{
	double ns = file_number(named("/proc/%s", pid), "schedstat");

	return (ns > 0 ? ns : 0) + cpu_ns_of(RUSAGE_CHILDREN);
}

/* Lets all clients work for so many seconds; returns the microseconds that it took. */
static double work(double seconds)
{
	double start = now_ns();

	__atomic_store_n(&all->go, 1, __ATOMIC_SEQ_CST);
	sleep_ms((long)(seconds * 1000));
	return us_since(start);
}

int main(int argc, char **argv)
{
	unsigned long done = 0, failed = 0;
	double before, us, used;
	int bad = 0, status;

	if (argc != 5)
		die("usage: broker ADDRESS CLIENTS SECONDS PID");
	count = atoi(argv[2]);
	if (count < 1 || count > MOST)
		die("from 1 to %d clients", MOST);
	before = cpu(argv[4]);
	all = map_shared(sizeof(*all));
	for (int i = 0; i < count; i++)
		if (forked(NULL) == 0)
			client(argv[1], i);
	while (__atomic_load_n(&all->ready, __ATOMIC_SEQ_CST) < count) {
		if (waitpid(-1, &status, WNOHANG) > 0)
			return 1; /* a client ended before the start */
		sleep_ms(1);
	}
	us = work(atof(argv[3]));
	for (int i = 0; i < count; i++)
		done += all->done[i];
	__atomic_store_n(&all->stop, 1, __ATOMIC_SEQ_CST);
	while (wait(&status) > 0)
		bad += status != 0;
	used = (cpu(argv[4]) - before) / 1e3;
	for (int i = 0; i < count; i++)
		failed += all->failed[i];
	printf("clients=%d operations=%.0f failed=%lu died=%d cpu_us=%.1f\n", count,
	       (double)done / us * 1e6, failed, bad, used / (double)done);
	return failed || bad;
}
