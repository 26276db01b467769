/* SPDX-License-Identifier: MIT */
/*
 * Load and save of 1 GiB, and how long a writer waits beside a save
 *
 * The rival is a simple program: it reads into malloc'ed memory, or writes from it,
 * with read(2) and write(2) of 1 MiB. Warm: the page cache has the file. Cold: the page
 * cache was told to forget the file. Direct: the transfer goes past the page cache.
 * A save goes to a file that exists, once to the page cache and once to the disk.
 *
 * BENCH_FILE names the file (/tmp/cowshed-bench-file); its directory should be on a disk.
 */
#include <cowshed-file.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "bench/common.h"

static const char *path = "/tmp/cowshed-bench-file";
static size_t bytes;

static void forget(void)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0 || fsync(fd) < 0 ||
	    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0)
		die("%s", path);
	close(fd);
}

/* Loads into fresh memory, as the rival does, or into the memory of the last storage. */
static double load(uint32_t flags, bool fresh)
{
	struct cow_storage *s;
	double t0, t1;

	if (fresh)
		cow_trim();
	t0 = now_ns();
	must(cow_storage_load(path, 0, COW_TO_END, flags, &s));
	t1 = now_ns();
	cow_storage_unref(s);
	return (t1 - t0) / 1e6;
}

static double plain_load(void)
{
	double t0 = now_ns(), t1;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *p = malloc(bytes);

	if (fd < 0 || !p)
		die("%s", path);
	for (size_t at = 0; at < bytes;) {
		ssize_t n = read(fd, p + at, MIB);

		if (n <= 0)
			die("read");
		at += (size_t)n;
	}
	t1 = now_ns();
	free(p);
	close(fd);
	return (t1 - t0) / 1e6;
}

static double save(struct cow_storage *s, uint32_t flags)
{
	double t0 = now_ns();

	must(cow_storage_save(s, path, 0, flags, NULL));
	return (now_ns() - t0) / 1e6;
}

static double plain_save(const char *p, bool sync)
{
	double t0 = now_ns();
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		die("%s", path);
	for (size_t at = 0; at < bytes;) {
		ssize_t n = write(fd, p + at, bytes - at < MIB ? bytes - at : MIB);

		if (n <= 0)
			die("write");
		at += (size_t)n;
	}
	if (sync && fsync(fd) < 0)
		die("fsync");
	close(fd);
	return (now_ns() - t0) / 1e6;
}

/* What the saving thread and the writer of the sibling share. */
struct saving {
	struct cow_storage *clone;
	int begun, done;
};

static void *saver(void *arg)
{
	struct saving *s = arg;

	__atomic_store_n(&s->begun, 1, __ATOMIC_RELEASE);
	save(s->clone, 0);
	__atomic_store_n(&s->done, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* The longest time that a writer waited for one page, in us. It writes one page in
 * eight: beside a save of the clone, or memory that was never shared. */
static double stall(struct cow_storage *s, bool saves)
{
	struct saving w = { NULL, 0, 0 };
	pthread_t thread;
	double worst = 0;
	void *p;

	if (saves) {
		must(cow_storage_lazy_clone(s, &w.clone));
		if (pthread_create(&thread, NULL, saver, &w) != 0)
			die("thread");
		while (!__atomic_load_n(&w.begun, __ATOMIC_ACQUIRE))
			;
	}
	for (size_t i = 0; i < bytes / 4096 / 8; i++) {
		double t0 = now_ns(), t;
		size_t at = i * 8 * 4096;

		must(cow_storage_data_mut_range(s, at, 1, COW_WRITE_BY_PAGE, &p));
		((volatile char *)p)[at]++;
		t = now_ns() - t0;
		worst = t > worst ? t : worst;
	}
	if (saves) {
		pthread_join(thread, NULL);
		cow_storage_unref(w.clone);
	}
	return worst / 1e3;
}

static struct series warm, plain_warm, cold, plain_cold, direct, recycled;
static struct series to_cache, plain_to_cache, to_disk, plain_to_disk;
static struct series direct_disk, stalls, quiet, ring_off;

static void loads(void)
{
	(void)plain_load(); /* the cache has the file then */
	series_add(&warm, load(0, true));
	series_add(&recycled, load(0, false));
	series_add(&plain_warm, plain_load());
	series_add(&ring_off, load(COW_IO_PLAIN, true));
	forget();
	series_add(&cold, load(0, true));
	forget();
	series_add(&plain_cold, plain_load());
	forget();
	series_add(&direct, load(COW_IO_DIRECT, true));
}

static void saves(struct cow_storage *s, const char *rival)
{
	(void)plain_save(rival, false); /* the cache has the file again */
	series_add(&to_cache, save(s, 0));
	series_add(&plain_to_cache, plain_save(rival, false));
	forget();
	series_add(&to_disk, save(s, COW_SAVE_SYNC));
	forget();
	series_add(&plain_to_disk, plain_save(rival, true));
	forget();
	series_add(&direct_disk, save(s, COW_SAVE_SYNC | COW_IO_DIRECT));
}

static void report_all(void)
{
	report("file", "load/warm", "ms", &warm, &plain_warm, BAR_RATIO, 1);
	report("file", "load/warm/no-ring", "ms", &ring_off, &plain_warm, BAR_NONE, 0);
	report("file", "load/warm/recycled", "ms", &recycled, &plain_warm, BAR_NONE, 0);
	report("file", "load/cold", "ms", &cold, &plain_cold, BAR_RATIO, 1.05);
	report("file", "load/cold/direct", "ms", &direct, &plain_cold, BAR_NONE, 0);
	report("file", "save/cache", "ms", &to_cache, &plain_to_cache, BAR_RATIO, 1.1);
	report("file", "save/disk", "ms", &to_disk, &plain_to_disk, BAR_RATIO, 1.1);
	report("file", "save/disk/direct", "ms", &direct_disk, &plain_to_disk,
	       BAR_NONE, 0);
	report("file", "longest-stall-beside-a-save", "us", &stalls, &quiet,
	       BAR_WORST, 1000);
}

static struct cow_storage *filled(void)
{
	struct cow_storage *s;
	void *p;

	must(cow_storage_new(bytes, NULL, &s));
	must(cow_storage_data_mut(s, &p));
	memset(p, 1, bytes);
	return s;
}

int main(void)
{
	struct cow_storage *s, *written, *alone;
	char *rival;

	if (getenv("BENCH_FILE"))
		path = getenv("BENCH_FILE");
	bytes = sized(GIB);
	s = filled();
	rival = malloc(bytes);
	if (!rival)
		die("malloc");
	memset(rival, 1, bytes);
	written = filled();
	alone = filled();
	(void)save(s, COW_SAVE_SYNC);
	for (int i = 0; i < rounds(5); i++) {
		warm_host(bytes + bytes / 4);
		loads();
		saves(s, rival);
		series_add(&quiet, stall(alone, false));
		series_add(&stalls, stall(written, true));
	}
	report_all();
	cow_storage_unref(alone);
	cow_storage_unref(written);
	cow_storage_unref(s);
	free(rival);
	unlink(path);
	return 0;
}
