/* SPDX-License-Identifier: MIT */
/*
 * A CUDA program that registers malloc()ed memory, and forks while a copy is under way
 *
 * The program knows nothing of cowshed. It loads the driver that its first argument names,
 * registers a block with it, and starts a copy to the block that runs late. Meanwhile there
 * are a fork whose child lives on, a clone, writes to the block, and neighbours that come and
 * go. A device writes to the pages that the block had when it was registered, even if the
 * block's addresses lead to other pages later. So the copy here goes through a second mapping
 * of the same pages, made at that moment. Anonymous memory has no second mapping, so the copy
 * goes to its addresses. There is no fork then: after one, the process that writes first gets
 * other pages.
 *
 * cuda_registered DRIVER [DEVICE-FILE]: a file that a real driver keeps open.
 * Prints what it sees; 0 if the bytes are right.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 4 << 20, AT = 100 * 4096, COUNT = 3 * 4096 };

static void die(const char *what)
{
	printf("%s\n", what);
	exit(3);
}

static void *call(void *driver, const char *name)
{
	void *f = dlsym(driver, name);

	if (!f)
		die(name);
	return f;
}

static void works(int result, const char *what)
{
	if (result)
		die(what);
}

/* Another mapping of the file pages that are at `p`; NULL: they are in no file that
 * this process has open. */
static char *same_pages(char *p)
{
	unsigned long start, end, offset, ino;
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512], path[64], rights[8];
	struct stat st;
	void *m;

	while (maps && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx %7s %lx %*s %lu", &start, &end, rights, &offset,
		           &ino) != 5 ||
		    (uintptr_t)p < start || (uintptr_t)p >= end)
			continue;
		fclose(maps);
		if (!ino || rights[3] != 's' || (uintptr_t)p + BYTES > end)
			return NULL;
		for (int fd = 0; fd < 4096; fd++) {
			if (fstat(fd, &st) < 0 || st.st_ino != ino)
				continue;
			snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
			m = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			         (off_t)(offset + ((uintptr_t)p - start)));
			return m == MAP_FAILED ? NULL : m;
		}
		return NULL;
	}
	return NULL;
}

static void device_writes(void *to)
{
	memset((char *)to + AT, 9, COUNT);
}

/* A child that has the block, until it is told. */
static pid_t child_with(const char *p, int *tell)
{
	int ends[2], ready[2];
	char byte;
	pid_t pid;

	if (pipe(ends) || pipe(ready))
		die("pipe");
	pid = fork();
	if (pid == 0) {
		close(ends[1]);
		byte = p[AT] == 7 && p[BYTES - 1] == 7;
		if (write(ready[1], &byte, 1) != 1 || read(ends[0], &byte, 1) < 0)
			_exit(2);
		_exit(p[AT] == 7 ? 0 : 1);
	}
	close(ends[0]);
	*tell = ends[1];
	if (read(ready[0], &byte, 1) != 1 || !byte)
		die("the child sees other bytes");
	close(ready[0]);
	close(ready[1]);
	return pid;
}

/* A lazy clone of the block, where the library is there to be asked for one. */
static void *clone_of(char *p)
{
	int (*from)(const void *, size_t *, void **) =
		(int (*)(const void *, size_t *, void **))dlsym(RTLD_DEFAULT,
	                                                        "cow_storage_from_ptr");
	int (*clone)(void *, void **) =
		(int (*)(void *, void **))dlsym(RTLD_DEFAULT, "cow_storage_lazy_clone");
	void *s, *c = NULL;

	if (from && clone && from(p, NULL, &s) == 0 && clone(s, &c) < 0)
		die("no clone");
	return c;
}

static int clone_is(void *c)
{
	const char *(*data)(void *) =
		(const char *(*)(void *))dlsym(RTLD_DEFAULT, "cow_storage_data");

	return !c || (data(c)[AT] == 7 && data(c)[AT + 1] == 7);
}

static void *new_stream(void *driver)
{
	void *context, *stream;

	works(((int (*)(unsigned))call(driver, "cuInit"))(0), "cuInit");
	works(((int (*)(void **, int))call(driver, "cuDevicePrimaryCtxRetain"))(&context, 0),
	      "context");
	works(((int (*)(void *))call(driver, "cuCtxSetCurrent"))(context), "current");
	works(((int (*)(void **, unsigned, int))call(
	              driver, "cuStreamCreateWithPriority"))(&stream, 1, 0), "stream");
	return stream;
}

static int copy_is(const char *p)
{
	int good = p[AT - 1] == 7 && p[AT + COUNT] == 7;

	for (int i = 0; i < COUNT; i++)
		good &= p[AT + i] == 9;
	return good;
}

int main(int argc, char **argv)
{
	void *driver = dlopen(argc > 1 ? argv[1] : "libcuda.so.1", RTLD_NOW);
	int tell = -1, status = 0, good;
	char *p, *pages, *near;
	void *stream, *clone;
	pid_t pid = 0;

	if (!driver)
		die("no driver");
	if (argc > 2 && open(argv[2], O_RDWR | O_CLOEXEC) < 0)
		die("no device file");
	stream = new_stream(driver);
	p = malloc(BYTES);
	near = malloc(BYTES);
	if (!p || !near)
		die("malloc");
	memset(p, 7, BYTES);
	memset(near, 6, BYTES);
	works(((int (*)(void *, size_t, unsigned))call(driver, "cuMemHostRegister_v2"))(
	              p, BYTES, 0), "register");
	pages = same_pages(p);
	/* Nothing runs before the program waits for it. */
	((void (*)(int, long))call(driver, "cow_ref_set"))(6, 1);
	works(((int (*)(void *, void (*)(void *), void *))call(driver, "cuLaunchHostFunc"))(
	              stream, device_writes, pages ? pages : p), "queue");
	if (pages)
		pid = child_with(p, &tell);
	clone = clone_of(p);
	p[AT + 1] = 8;
	p[AT + 5000] = 8;
	free(near);
	near = malloc(BYTES);
	memset(near, 5, BYTES);
	works(((int (*)(void *))call(driver, "cuStreamSynchronize"))(stream), "wait");
	good = copy_is(p);
	good &= clone_is(clone);
	if (pid) {
		close(tell);
		waitpid(pid, &status, 0);
	}
	works(((int (*)(void *))call(driver, "cuMemHostUnregister"))(p), "unregister");
	free(p);
	free(near);
	fprintf(stderr, "%s\n", pages ? "in a file" : "anonymous");
	printf("%s, %s\n", good ? "the copy is there" : "the copy is lost",
	       status ? "the child saw it" : "the child did not see it");
	return good && !status ? 0 : 1;
}
