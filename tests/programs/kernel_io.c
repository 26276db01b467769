/* SPDX-License-Identifier: MIT */
/*
 * The kernel reads and writes blocks, before and after forks
 *
 * read() into a page that a fork left shared must copy it first, like a write
 * by the processor would. Direct and asynchronous I/O goes on while the
 * process forks: it belongs to the parent, whose buffer must get every byte.
 * Where asynchronous I/O is not allowed that part does nothing.
 */
#include "program.h"

#include <fcntl.h>
#include <linux/aio_abi.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static const size_t bytes = 2 * MIB;
static int file = -1;

static int open_file(int flags)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	fd = open(path, O_RDWR | O_CLOEXEC | flags);
	return fd >= 0 ? fd : dup(file);
}

static void make_file(void)
{
	const char *where = getenv("TMPDIR");
	unsigned char *p = get_filled(4 * bytes, 1);
	char name[4096];

	snprintf(name, sizeof(name), "%s/io-XXXXXX", where ? where : "/tmp");
	file = mkstemp(name);
	check(file >= 0 && unlink(name) == 0);
	check(write(file, p, 4 * bytes) == (ssize_t)(4 * bytes));
	check(fsync(file) == 0);
	free(p);
}

static unsigned char *p;
static int to_child[2];

static void still_old(void *arg)
{
	(void)arg;
	check(holds(p, bytes, 2));
	gate_wait(to_child);
	check(holds(p, bytes, 2));
	check(pread(file, p, bytes, 0) == (ssize_t)bytes);
	check(holds(p, bytes, 1));
	memset(p, 0, bytes);
}

static void read_after_a_fork(int flags)
{
	struct iovec parts[3];
	int fd = open_file(flags), n;
	pid_t child;

	for (n = 0; n < 4; n++) {
		fill(p, bytes, 2);
		child = start(still_old, NULL);
		if (n % 2) {
			check(pread(fd, p, bytes, 0) == (ssize_t)bytes);
		} else {
			parts[0].iov_base = p;
			parts[0].iov_len = bytes / 4;
			parts[1].iov_base = p + bytes / 4;
			parts[1].iov_len = bytes / 4;
			parts[2].iov_base = p + bytes / 2;
			parts[2].iov_len = bytes / 2;
			check(preadv(fd, parts, 3, 0) == (ssize_t)bytes);
		}
		check(holds(p, bytes, 1));
		gate_open(to_child);
		finish(child);
		check(holds(p, bytes, 1));
	}
	close(fd);
}

static void writes_it_out(void *arg)
{
	int fd = *(int *)arg;

	fill(p, bytes / 2, 4);
	check(pwrite(fd, p, bytes, (off_t)(3 * bytes)) == (ssize_t)bytes);
	memset(p, 0, bytes);
	check(pread(fd, p, bytes, (off_t)(3 * bytes)) == (ssize_t)bytes);
	check(holds(p, bytes / 2, 4));
}

static void write_after_a_fork(int flags)
{
	int fd = open_file(flags);

	fill(p, bytes, 3);
	in_child(writes_it_out, &fd);
	check(holds(p, bytes, 3));
	check(pwrite(fd, p, bytes, 0) == (ssize_t)bytes);
	memset(p, 0, bytes);
	check(pread(fd, p, bytes, 0) == (ssize_t)bytes);
	check(holds(p, bytes, 3));
	fill(p, bytes, 1);
	check(pwrite(fd, p, bytes, 0) == (ssize_t)bytes);
	close(fd);
}

enum { NOT_ALLOWED = 77 };

/* Another process reads and writes our memory by its address. */
static void meddles(void *arg)
{
	unsigned char *mine = get(bytes);
	struct iovec here = { mine, bytes }, there = { p, bytes };
	ssize_t n;

	(void)arg;
	n = process_vm_readv(getppid(), &here, 1, &there, 1, 0);
	if (n < 0)
		_exit(NOT_ALLOWED);
	check(n == (ssize_t)bytes && holds(mine, bytes, 5));
	check(holds(p, bytes, 5));
	fill(mine, bytes, 6);
	n = process_vm_writev(getppid(), &here, 1, &there, 1, 0);
	check(n == (ssize_t)bytes);
	check(holds(p, bytes, 5));
	_exit(0);
}

static void other_processes(void)
{
	int status;
	pid_t child;

	fill(p, bytes, 5);
	child = start(meddles, NULL);
	check(waitpid(child, &status, 0) == child && WIFEXITED(status));
	check(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == NOT_ALLOWED);
	check(holds(p, bytes, WEXITSTATUS(status) == 0 ? 6 : 5));
	fill(p, bytes, 5);
	check(holds(p, bytes, 5));
}

/* ---- In flight ----------------------------------------------------------- */

enum { PIECES = 16 };

static void does_something(void *arg)
{
	memset(arg, 0, bytes);
	free(get_filled(MIB, 7));
}

static void fork_with_reads_in_flight(void)
{
	struct iocb requests[PIECES], *pointers[PIECES];
	struct io_event events[PIECES];
	size_t piece = bytes / PIECES, i;
	aio_context_t context = 0;
	int fd = open_file(O_DIRECT), n;
	long got;

	if (syscall(SYS_io_setup, PIECES, &context) != 0) {
		puts("skip kernel_io: reads in flight: the kernel refuses io_setup");
		close(fd);
		return;
	}
	for (n = 0; n < 30; n++) {
		memset(p, 0xee, bytes);
		in_child(does_something, p);
		memset(requests, 0, sizeof(requests));
		for (i = 0; i < PIECES; i++) {
			requests[i].aio_lio_opcode = IOCB_CMD_PREAD;
			requests[i].aio_fildes = (uint32_t)fd;
			requests[i].aio_buf = (uintptr_t)(p + i * piece);
			requests[i].aio_nbytes = piece;
			requests[i].aio_offset = (int64_t)(i * piece);
			pointers[i] = &requests[i];
		}
		check(syscall(SYS_io_submit, context, PIECES, pointers) ==
		      PIECES);
		in_child(does_something, p);
		for (got = 0; got < PIECES;) {
			long r = syscall(SYS_io_getevents, context, 1,
			                 PIECES - got, events + got, NULL);

			check(r > 0);
			got += r;
		}
		for (i = 0; i < PIECES; i++)
			check(events[i].res == (int64_t)piece);
		check(holds(p, bytes, 1));
	}
	check(syscall(SYS_io_destroy, context) == 0);
	close(fd);
}

static void waits(void *arg)
{
	(void)arg;
	gate_wait(to_child);
}

/* A pipe has the pages as they were, once a fork or free() came between. */
static void lent_to_a_pipe(void)
{
	static unsigned char found[PAGE];
	struct iovec page;
	int ends[2];
	pid_t child;

	check(pipe(ends) == 0);
	free(p);
	p = get_pages(bytes);
	page = (struct iovec){ p, PAGE };
	fill(p, bytes, 11);
	check(vmsplice(ends[1], &page, 1, 0) == (ssize_t)PAGE);
	child = start(waits, NULL);
	fill(p, PAGE, 12);
	gate_open(to_child);
	finish(child);
	check(read(ends[0], found, PAGE) == (ssize_t)PAGE);
	check(holds(found, PAGE, 11) && holds(p, PAGE, 12));

	free(p);
	p = get_pages(bytes);
	page.iov_base = p;
	fill(p, bytes, 13);
	check(vmsplice(ends[1], &page, 1, SPLICE_F_GIFT) == (ssize_t)PAGE);
	free(p);
	p = get_pages(bytes);
	memset(p, 14, bytes);
	check(read(ends[0], found, PAGE) == (ssize_t)PAGE);
	check(holds(found, PAGE, 13) && all(p, bytes, 14));
	close(ends[0]);
	close(ends[1]);
}

/* Beside a file that is open for direct I/O, and with a guard page. */
static void sees_the_guard(void *arg)
{
	int ends[2];

	(void)arg;
	check(holds(p, PAGE, 8));
	check(pipe(ends) == 0);
	check(write(ends[1], p + PAGE, 1) == -1 && errno == EFAULT);
	check(mprotect(p + PAGE, PAGE, PROT_READ) == 0);
	check(holds(p + PAGE, bytes - PAGE, 9));
}

static void fork_with_a_guard_page(void)
{
	int fd = open_file(O_DIRECT);

	fill(p, PAGE, 8);
	fill(p + PAGE, bytes - PAGE, 9);
	check(mprotect(p + PAGE, PAGE, PROT_NONE) == 0);
	in_child(sees_the_guard, NULL);
	check(mprotect(p + PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
	check(holds(p + PAGE, bytes - PAGE, 9));
	close(fd);
}

int main(void)
{
	/* Blocks are mappings of their own, and so they stay. */
	check(mallopt(M_MMAP_THRESHOLD, 64 * 1024) == 1);
	gate_make(to_child);
	make_file();
	p = get_pages(bytes);
	read_after_a_fork(0);
	read_after_a_fork(O_DIRECT);
	write_after_a_fork(0);
	write_after_a_fork(O_DIRECT);
	other_processes();
	lent_to_a_pipe();
	fork_with_reads_in_flight();
	fork_with_a_guard_page();
	/* The same with a block that was born after that. */
	free(p);
	p = get_pages(bytes);
	fork_with_a_guard_page();
	read_after_a_fork(0);
	fork_with_reads_in_flight();
	free(p);
	puts("kernel_io: done");
	return 0;
}
