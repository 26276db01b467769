/* SPDX-License-Identifier: MIT */
/*
 * Load and save of 1 GiB
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
	double t0, ms;

	if (fresh)
		cow_trim();
	t0 = now_ns();
	must(cow_storage_load(path, 0, COW_TO_END, flags, &s));
	ms = ms_since(t0);
	cow_storage_unref(s);
	return ms;
}

static double plain_load(void)
{
	double t0 = now_ns(), ms;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char *p = block_of(bytes, false, -1);

	if (fd < 0)
		die("%s", path);
	for (size_t at = 0; at < bytes;) {
		ssize_t n = read(fd, p + at, MIB);

		if (n <= 0)
			die("read");
		at += (size_t)n;
	}
	ms = ms_since(t0);
	free(p);
	close(fd);
	return ms;
}

static double save(struct cow_storage *s, uint32_t flags)
{
	double t0 = now_ns();

	must(cow_storage_save(s, path, 0, flags, NULL));
	return ms_since(t0);
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
	return ms_since(t0);
}

static struct series warm, plain_warm, cold, plain_cold, direct, recycled;
static struct series to_cache, plain_to_cache, to_disk, plain_to_disk;
static struct series direct_disk, ring_off;

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
	report("load/warm", "ms", &warm, &plain_warm, BAR_RATIO, 1);
	report_ratio("load/warm/no-ring", "ms", &ring_off, &plain_warm);
	report_ratio("load/warm/recycled", "ms", &recycled, &plain_warm);
	report("load/cold", "ms", &cold, &plain_cold, BAR_RATIO, 1.05);
	report_ratio("load/cold/direct", "ms", &direct, &plain_cold);
	report("save/cache", "ms", &to_cache, &plain_to_cache, BAR_RATIO, 1.1);
	report("save/disk", "ms", &to_disk, &plain_to_disk, BAR_RATIO, 1.1);
	report_ratio("save/disk/direct", "ms", &direct_disk, &plain_to_disk);
}

int main(void)
{
	struct cow_storage *s;
	char *rival;

	if (getenv("BENCH_FILE"))
		path = getenv("BENCH_FILE");
	bytes = sized(GIB);
	s = storage_filled(bytes, 0, 1, NULL);
	rival = block_of(bytes, false, 1);
	(void)save(s, COW_SAVE_SYNC);
	for (int i = 0; i < rounds(5); i++) {
		warm_host(bytes + bytes / 4);
		loads();
		saves(s, rival);
	}
	report_all();
	cow_storage_unref(s);
	free(rival);
	unlink(path);
	return 0;
}
