/* SPDX-License-Identifier: MIT */
/*
 * Share: small storages by the thousand, large ones at once
 *
 * Two processes of one group have a socket between them. The rival does what programs
 * do without a library: shm_open, ftruncate and mmap for each storage. It sends each
 * descriptor in a message of its own; the receiver maps it.
 *
 *   many      100 000 storages of 4 KiB. They are made and written first (reported
 *             apart), then sent and received: the time until the receiver has all
 *   large     a clone of up to 1 GiB, of which the receiver writes one page: the time
 *             beyond the round trip of a byte by the same kind of socket. Reported
 *             apart: the first message of all, by which the other process joins the
 *             group; the first message of a storage; later messages
 *
 * Python's multiprocessing (bench/share.py) is another rival of the many, in turns with ours:
 * send_handle(), and DupFd() as torch.multiprocessing uses it. It sends fewer storages,
 * and its figures are for one storage. They include the cost of the interpreter, which
 * a Python program pays, too.
 *
 * System calls of both sides: `strace -f -c share 50000`. The calls whose number grows
 * with the count are those of a storage, its creation and death included.
 */
#include <cowshed-share.h>

#include "bench/common.h"
#include "bench/peer.h"

#include <fcntl.h>
#include <signal.h>

#ifndef BENCH_SOURCES /* the Makefile says where */
#define BENCH_SOURCES "bench"
#endif

enum { MANY = 100000, BATCH = 1000 };

static struct cow_storage *all[MANY];
static struct cow_parcel parcels[MANY];

/* Bytes in the packs that this process has open. */
static double in_packs(void)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	double bytes = 0;

	while ((e = readdir(d))) {
		char name[64] = "";
		struct stat st;

		if (readlinkat(dirfd(d), e->d_name, name, 63) > 0 &&
		    !strncmp(name, "/memfd:cowshed-pack", 19) &&
		    !fstat(atoi(e->d_name), &st))
			bytes += st.st_blocks * 512.0;
	}
	closedir(d);
	return bytes;
}

/* ---- Many ---------------------------------------------------------------- */

static void receive_many(struct peer *p, int count)
{
	struct cow_channel *c;
	int got = 0, before = descriptors();

	must(cow_channel_new(p->data, NULL, COW_CHANNEL_JOIN, &c));
	byte_out(p->sync);
	while (got < count) {
		long n = cow_channel_receive(c, parcels + got,
		                             (size_t)(count - got), NULL, 0,
		                             NULL);

		must((int)n);
		got += (int)n;
	}
	byte_out(p->sync);
	for (int i = 0; i < count; i++)
		if (*(const int *)cow_storage_data(parcels[i].storage) != i)
			die("share: storage %d is wrong", i);
	if (descriptors() - before >= 64)
		die("share: %d descriptors", descriptors() - before);
	byte_in(p->sync); /* the sender has dropped its storages */
	for (int i = 1; i < count; i++)
		cow_storage_unref(parcels[i].storage);
	byte_out(p->sync);
	byte_in(p->sync);
	_exit(0);
}

static void many(int count, double *make_ns, double *send_ns, double *survivor)
{
	struct cow_group *g;
	struct cow_channel *c;
	struct peer p;
	double t0;
	int sent = 0;

	if (!peer_fork(&p))
		receive_many(&p, count);
	must(cow_group_new(&g));
	must(cow_channel_new(p.data, g, 0, &c));
	t0 = now_ns();
	for (int i = 0; i < count; i++) {
		int *q;

		must(cow_group_storage_new(g, PAGE, COW_SHARE_CLONE, &all[i]));
		must(cow_storage_data_mut(all[i], (void **)&q));
		*q = i;
		parcels[i] = (struct cow_parcel){
			.storage = all[i],
			.length = PAGE,
			.mode = COW_SHARE_CLONE,
		};
	}
	*make_ns = now_ns() - t0;
	byte_in(p.sync);
	t0 = now_ns();
	while (sent < count) {
		long n = cow_channel_send(c, parcels + sent,
		                          (size_t)(count - sent), NULL, 0);

		must((int)n);
		sent += (int)n;
	}
	byte_in(p.sync);
	*send_ns = now_ns() - t0;
	for (int i = 0; i < count; i++)
		cow_storage_unref(all[i]);
	byte_out(p.sync);
	byte_in(p.sync);
	*survivor = in_packs();
	byte_out(p.sync);
	peer_end(&p);
	cow_channel_free(c);
	cow_group_unref(g);
}

/* ---- The rival ----------------------------------------------------------- */

/* A descriptor is closed when it is mapped: no limit allows so many. */
static void rival_receive(struct peer *p, int count)
{
	byte_out(p->sync);
	for (int i = 0; i < count; i++) {
		int fd = receive_fd(p->data);
		void *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED,
		                fd, 0);

		if (at == MAP_FAILED)
			die("share: mmap: %s", strerror(errno));
		close(fd);
	}
	byte_out(p->sync);
	_exit(0);
}

static void rival(int count, double *make_ns, double *send_ns)
{
	static void *at[MANY];
	struct peer p;
	double t0, made = 0;

	if (!peer_fork(&p))
		rival_receive(&p, count);
	byte_in(p.sync);
	*send_ns = now_ns();
	for (int i = 0; i < count; i++) {
		char name[64];
		int fd;

		t0 = now_ns();
		snprintf(name, sizeof(name), "/cowshed-bench.%d.%d",
		         (int)getpid(), i);
		fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
		if (fd < 0 || shm_unlink(name) || ftruncate(fd, PAGE))
			die("share: shm_open: %s", strerror(errno));
		at[i] = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		             0);
		if (at[i] == MAP_FAILED)
			die("share: mmap: %s", strerror(errno));
		*(int *)at[i] = i;
		made += now_ns() - t0;
		send_fd(p.data, fd);
		close(fd);
	}
	byte_in(p.sync);
	*send_ns = now_ns() - *send_ns - made;
	*make_ns = made;
	for (int i = 0; i < count; i++)
		munmap(at[i], PAGE);
	peer_end(&p);
}

/* ---- Large --------------------------------------------------------------- */

static void receive_large(struct peer *p, int turns)
{
	struct cow_channel *c;

	must(cow_channel_new(p->data, NULL, COW_CHANNEL_JOIN, &c));
	for (int i = 0; i < turns; i++) {
		struct cow_parcel q;
		char *at;

		byte_in(p->sync);
		byte_out(p->sync);
		must((int)cow_channel_receive(c, &q, 1, NULL, 0, NULL));
		must(cow_storage_data_mut_range(q.storage, 3 * PAGE, 1,
		                                COW_WRITE_SPARSE, (void **)&at));
		at[0] = 1;
		byte_out(p->sync);
		cow_storage_unref(q.storage);
		byte_in(p->sync);
	}
	_exit(0);
}

struct large {
	struct series trips, joining, first, later; /* the last three include a trip */
};

static struct cow_storage *filled(struct cow_group *g, size_t bytes)
{
	struct cow_storage *s;
	void *at;

	must(cow_group_storage_new(g, bytes, COW_SHARE_CLONE, &s));
	must(cow_storage_data_mut_range(s, 0, bytes, COW_WRITE_ALL, &at));
	memset(at, 1, bytes);
	return s;
}

static void large(size_t bytes, int turns, struct large *l)
{
	struct cow_group *g;
	struct cow_channel *c;
	struct cow_storage *s[2];
	struct peer p;

	if (!peer_fork(&p))
		receive_large(&p, turns + 1);
	must(cow_group_new(&g));
	must(cow_channel_new(p.data, g, 0, &c));
	for (int i = 0; i < 2; i++)
		s[i] = filled(g, bytes);
	/* The other process joins the group by the first message, number -1. */
	for (int i = -1; i < turns; i++) {
		struct series *to = i < 0 ? &l->joining : i ? &l->later : &l->first;
		struct cow_parcel q = {
			.storage = s[i >= 0],
			.length = bytes,
			.mode = COW_SHARE_CLONE,
		};
		double t0 = now_ns();

		byte_out(p.sync);
		byte_in(p.sync);
		series_add(&l->trips, us_since(t0));
		t0 = now_ns();
		must((int)cow_channel_send(c, &q, 1, NULL, 0));
		byte_in(p.sync);
		series_add(to, us_since(t0));
		byte_out(p.sync);
	}
	peer_end(&p);
	cow_storage_unref(s[0]);
	cow_storage_unref(s[1]);
	cow_channel_free(c);
	cow_group_unref(g);
}

/* ---- multiprocessing ------------------------------------------------------ */

/* Runs bench/share.py, which prints two numbers. */
static void python(const char *arguments, double *a, double *b)
{
	char command[256];
	FILE *f;

	snprintf(command, sizeof(command), "exec python3 %s %s",
	         BENCH_SOURCES "/share.py", arguments);
	fflush(stdout);
	f = popen(command, "r");
	if (!f)
		die("share: popen: %s", strerror(errno));
	if (fscanf(f, "%lf %lf", a, b) != 2 || pclose(f))
		die("share: share.py %s failed", arguments);
}

static const char *const ways[] = { "handle", "dup" };

static void python_many(struct series make[2], struct series send[2])
{
	for (int i = 0; i < 2; i++) {
		double m, s;

		python(named("%d %s", i || quick() ? 1000 : 10000, ways[i]), &m, &s);
		series_add(&make[i], m);
		series_add(&send[i], s);
	}
}

static void beyond_trips(struct series *s, const struct series *trips)
{
	double trip = series_median(trips);

	for (int i = 0; i < s->n; i++)
		s->v[i] -= trip;
}

static void all_large(size_t bytes)
{
	static struct large l;
	const char *name;

	memset(&l, 0, sizeof(l));
	for (int i = 0; i < 5; i++) {
		warm_host(2 * bytes + bytes / 4);
		large(bytes, rounds(21), &l);
	}
	name = size_name(bytes);
	beyond_trips(&l.joining, &l.trips);
	beyond_trips(&l.first, &l.trips);
	beyond_trips(&l.later, &l.trips);
	report_ratio(named("round-trip-beside-%s", name), "us", &l.trips, NULL);
	report(named("clone-of-%s-one-page", name), "us", &l.later, NULL, BAR_OURS, 100);
	report(named("clone-of-%s-one-page/first", name), "us", &l.first, NULL, BAR_OURS, 100);
	report(named("clone-of-%s-one-page/joining", name), "us", &l.joining, NULL, BAR_OURS, 100);
}

/* ---- All of it ------------------------------------------------------------ */

static struct series ours_make, ours_send, rivals_make, rivals_send, left;
static struct series python_makes[2], python_sends[2];

static void all_many(int count, bool has_python)
{
	int rivals = count;

	/* The rival maps each storage, and the kernel limits its mappings. */
	if (count > 30000 && file_number("/proc/sys/vm", "max_map_count") < 2e5)
		rivals = 30000;
	for (int i = 0; i < rounds(5); i++) {
		double make, send, survivor;

		many(count, &make, &send, &survivor);
		series_add(&ours_make, make / count);
		series_add(&ours_send, send / count);
		series_add(&left, survivor / MIB);
		rival(rivals, &make, &send);
		series_add(&rivals_make, make / rivals);
		series_add(&rivals_send, send / rivals);
		if (has_python)
			python_many(python_makes, python_sends);
	}
}

static void report_many(bool has_python)
{
	report_faster("make-4KiB", "ns", &ours_make, &rivals_make);
	report("send-4KiB", "ns", &ours_send, &rivals_send, BAR_SPEEDUP, 20);
	if (!has_python)
		printf("  share: there is no python3 that runs bench/share.py\n");
	for (int i = 0; i < 2; i++) {
		report_faster(named("make-4KiB/multiprocessing-%s", ways[i]), "ns", &ours_make,
		              &python_makes[i]);
		report(named("send-4KiB/multiprocessing-%s", ways[i]), "ns", &ours_send,
		       &python_sends[i], BAR_SPEEDUP, 20);
	}
	report("one-survivor", "MiB", &left, NULL, BAR_OURS, 8);
}

int main(int argc, char **argv)
{
	bool has_python = system("command -v python3 >/dev/null") == 0;
	static const size_t sizes[] = { 4 * MIB, 64 * MIB, GIB };
	int count = quick() ? 20000 : MANY;

	/* share N: only ours, with N storages, for strace. */
	if (argc > 1) {
		double ns;

		count = atoi(argv[1]);
		many(count < MANY ? count : MANY, &ns, &ns, &ns);
		return 0;
	}
	all_many(count, has_python);
	report_many(has_python);
	for (size_t i = 0; i < COUNT_OF(sizes); i++)
		all_large(sized(sizes[i]));
	return 0;
}
