/* SPDX-License-Identifier: MIT */
/*
 * Operations a second that a broker does for many clients
 *
 *      broker ADDRESS [CLIENTS [SECONDS [PID]]]
 *
 * Each client is a process that repeats three operations. It registers a storage of its
 * own under a fresh token. It fetches a storage that its neighbour registered, maps it,
 * reads a byte and releases it. It drops its own registration. Every operation must
 * succeed. All clients start at once and count until the time is over. If the PID of
 * the broker is given, the program also prints the CPU time of an operation, clients
 * and broker together: so many operations could two cores do that had no other work.
 */
#include <cowshed-broker.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 4096, MOST = 1024 };

static struct {
	int ready, go, stop;
	struct cow_token token[MOST];
	unsigned long done[MOST], failed[MOST];
} *all;

static int count = 64;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static struct cow_storage *storage_of(int i)
{
	struct cow_storage *s;
	void *data;

	if (cow_storage_new(BYTES, NULL, &s) < 0 ||
	    cow_storage_data_mut(s, &data) < 0)
		exit(1);
	memset(data, i & 0x7f, BYTES);
	return s;
}

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
	struct cow_storage *s = storage_of(i);
	struct cow_broker *b;

	if (cow_broker_open(&o, &b) < 0 || cow_broker_put(b, s, &item) < 0) {
		fprintf(stderr, "client %d: %s\n", i, cow_last_error());
		_exit(1);
	}
	all->token[i] = item.token;
	__atomic_add_fetch(&all->ready, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&all->go, __ATOMIC_SEQ_CST))
		usleep(1000);
	while (!__atomic_load_n(&all->stop, __ATOMIC_RELAXED))
		cycle(b, s, i);
	/* The neighbour may still fetch this storage. */
	__atomic_sub_fetch(&all->ready, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&all->ready, __ATOMIC_SEQ_CST))
		usleep(1000);
	_exit(0);
}

/* CPU time of this process's dead children and of the broker, in seconds. */
static double cpu(const char *pid)
{
	struct rusage u;
	char path[64];
	double ns = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%s/schedstat", pid);
	f = fopen(path, "r");
	if (f) {
		if (fscanf(f, "%lf", &ns) != 1)
			ns = 0;
		fclose(f);
	}
	getrusage(RUSAGE_CHILDREN, &u);
	return ns * 1e-9 + (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

int main(int argc, char **argv)
{
	unsigned long done = 0, failed = 0;
	double before = argc > 4 ? cpu(argv[4]) : 0, used;
	double seconds = argc > 3 ? atof(argv[3]) : 5, start;
	int bad = 0, status;

	if (argc > 2)
		count = atoi(argv[2]);
	if (argc < 2 || count < 1 || count > MOST) {
		fprintf(stderr, "usage: broker ADDRESS [CLIENTS [SECONDS [PID]]]\n");
		return 2;
	}
	all = mmap(NULL, sizeof(*all), PROT_READ | PROT_WRITE,
	           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED)
		return 1;
	for (int i = 0; i < count; i++)
		if (fork() == 0)
			client(argv[1], i);
	while (__atomic_load_n(&all->ready, __ATOMIC_SEQ_CST) < count) {
		if (waitpid(-1, &status, WNOHANG) > 0)
			return 1; /* a client ended before the start */
		usleep(1000);
	}
	start = now();
	__atomic_store_n(&all->go, 1, __ATOMIC_SEQ_CST);
	while (now() - start < seconds)
		usleep(10000);
	seconds = now() - start;
	for (int i = 0; i < count; i++)
		done += all->done[i];
	__atomic_store_n(&all->stop, 1, __ATOMIC_SEQ_CST);
	while (wait(&status) > 0)
		bad += status != 0;
	used = argc > 4 ? cpu(argv[4]) - before : 0;
	for (int i = 0; i < count; i++)
		failed += all->failed[i];
	printf("%d clients: %.0f operations/s, %lu failed, %d clients died\n",
	       count, (double)done / seconds, failed, bad);
	if (argc > 4)
		printf("          %.1f us of CPU an operation, both sides: two "
		       "cores could do %.0f/s\n",
		       used / (double)done * 1e6, 2 * (double)done / used);
	return failed || bad;
}
