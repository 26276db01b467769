/* SPDX-License-Identifier: MIT */
/*
 * A program under a filter of system calls uses large memory as before
 *
 *   filters own ACTION             it sets the filter itself: allocated before, used afterwards
 *   filters own-threads ACTION     the same, beside a thread that allocates
 *   filters again ACTION           several filters, refused ones and questions among them
 *   filters vfork ACTION           a child with the memory of its parent was the first
 *   filters exec ACTION            the filter came with exec
 *   filters exec-without ACTION    the same for filters that forbid one call each
 *   filters exec-cores ACTION      of those that die then, nobody leaves a core file
 *   filters service FILE           the same for a filter that allows the numbers in FILE alone
 *
 * ACTION is what happens for a call that is not allowed: kill, trap or errno. The filters allow
 * what a plain program needs.
 */
#include "filters.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/resource.h>

static const size_t sizes[] = {
	5000, 100 * KIB, 200 * KIB, MIB + 5000, 3 * MIB
};

#define SIZES COUNT(sizes)

struct block {
	unsigned char *p;
	size_t bytes;
	uint64_t seed;
};

static struct block blocks[2 * SIZES];
static unsigned char *mapped;

static void get_block(struct block *b, size_t bytes, uint64_t seed)
{
	*b = (struct block){ get_filled(bytes, seed), bytes, seed };
}

static void check_block(const struct block *b)
{
	check(holds(b->p, b->bytes, b->seed));
}

static void rewrite_block(struct block *b)
{
	fill(b->p, b->bytes, ++b->seed);
}

static void drop_block(struct block *b)
{
	check_block(b);
	free(b->p);
	b->p = NULL;
	b->bytes = 0;
}

static void check_all(void)
{
	for (size_t i = 0; i < COUNT(blocks); i++)
		check_block(&blocks[i]);
}

static void sleeps(void *arg)
{
	char byte;

	check(read(*(int *)arg, &byte, 1) == 0);
}

/* Blocks as they are, frozen by a child that is gone, or by one that lives, and rewritten. */
static pid_t prepare(int end_of_child[2])
{
	pid_t child;

	gate_make(end_of_child);
	for (size_t i = 0; i < SIZES; i++)
		get_block(&blocks[i], sizes[i], i);
	fflush(NULL);
	child = fork();
	check(child >= 0);
	if (child == 0) {
		close(end_of_child[1]);
		sleeps(&end_of_child[0]);
		_exit(0);
	}
	for (size_t i = 0; i < SIZES; i += 2)
		rewrite_block(&blocks[i]);
	for (size_t i = SIZES; i < COUNT(blocks); i++)
		get_block(&blocks[i], sizes[i % SIZES], i);
	mapped = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(mapped != MAP_FAILED);
	fill(mapped, 4 * MIB, 77);
	return child;
}

static void uses_mapping(void)
{
	unsigned char *grown;

	check(holds(mapped, 4 * MIB, 77));
	check(madvise(mapped + MIB, MIB, MADV_DONTNEED) == 0);
	check(all(mapped + MIB, MIB, 0));
	memset(mapped + MIB, 1, MIB);
	check(madvise(mapped + MIB, MIB, MADV_DONTNEED) == 0);
	check(all(mapped + MIB, MIB, 0));
	check(mprotect(mapped, PAGE, PROT_READ) == 0);
	check(mprotect(mapped, PAGE, PROT_READ | PROT_WRITE) == 0);
	check(munmap(mapped + 3 * MIB, MIB) == 0);
	check(holds(mapped, MIB, 77));
	grown = mremap(mapped, 3 * MIB, 6 * MIB, MREMAP_MAYMOVE);
	check(grown != MAP_FAILED);
	check(holds(grown, MIB, 77) && all(grown + MIB, MIB, 0));
	check(all(grown + 3 * MIB, 3 * MIB, 0));
	check(munmap(grown, 6 * MIB) == 0);
}

/* What a child writes its parent does not see, and the other way round. */
static void forks(int depth)
{
	int go[2] = { -1, -1 }, status;
	static int gates[3][2];
	char byte;
	pid_t child;

	memcpy(go, gates[depth], sizeof(go));
	if (go[1] == 0) { /* made before the filter */
		for (int i = 0; i < 3; i++)
			gate_make(gates[i]);
		return;
	}
	child = fork();
	check(child >= 0);
	if (child == 0) {
		check(read(go[0], &byte, 1) == 1);
		for (size_t i = 0; i < COUNT(blocks); i++) {
			check_block(&blocks[i]);
			rewrite_block(&blocks[i]);
		}
		if (depth < 2)
			forks(depth + 1);
		drop_block(&blocks[2]);
		drop_block(&blocks[COUNT(blocks) - 1]);
		get_block(&blocks[2], 3 * MIB, 5);
		check_block(&blocks[2]);
		_exit(0);
	}
	for (size_t i = 0; i < COUNT(blocks); i += 3)
		rewrite_block(&blocks[i]);
	check(write(go[1], "!", 1) == 1);
	check(waitpid(child, &status, 0) == child && status == 0);
	check_all();
}

static void resizes(struct block *b, size_t bytes)
{
	size_t least = bytes < b->bytes ? bytes : b->bytes;
	unsigned char *p = realloc(b->p, bytes);

	check(p != NULL && holds(p, least, b->seed));
	*b = (struct block){ p, bytes, b->seed };
	rewrite_block(b);
}

static void lives(void)
{
	struct block fresh[SIZES];
	unsigned char *zeros;

	check_all();
	for (size_t i = 0; i < COUNT(blocks); i += 3)
		rewrite_block(&blocks[i]);
	check_all();
	for (size_t i = 0; i < SIZES; i++)
		get_block(&fresh[i], sizes[i], 100 + i);
	forks(0);
	uses_mapping();
	for (size_t i = 0; i < SIZES; i++)
		resizes(&blocks[i], sizes[i] * 2);
	for (size_t i = SIZES; i < 2 * SIZES; i++)
		resizes(&blocks[i], sizes[i % SIZES] / 3);
	for (size_t i = 0; i < SIZES; i++)
		resizes(&blocks[i], sizes[i] - 1000);
	zeros = calloc(1, 5 * MIB);
	check(zeros != NULL && all(zeros, 5 * MIB, 0));
	free(zeros);
	forks(0);
	for (size_t i = 0; i < SIZES; i++)
		drop_block(&fresh[i]);
	for (size_t i = 0; i < COUNT(blocks); i++)
		drop_block(&blocks[i]);
}

static void own(void *action)
{
	int end_of_child[2];

	forks(0);
	(void)prepare(end_of_child);
	allow_libc(action);
	lives();
}

static int stop;

static void *allocates(void *arg)
{
	for (uint64_t i = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++) {
		struct block b;

		get_block(&b, sizes[i % SIZES], i);
		resizes(&b, sizes[(i + 3) % SIZES]);
		drop_block(&b);
	}
	return arg;
}

/* The filter is for the calling thread alone, or for both. */
static void beside_thread(void *action)
{
	int end_of_child[2];
	pthread_t thread;

	forks(0);
	(void)prepare(end_of_child);
	check(pthread_create(&thread, NULL, allocates, NULL) == 0);
	allow_libc(action);
	lives();
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	check(pthread_join(thread, NULL) == 0);
}

/* Questions and refused filters change nothing; a second filter comes under the first. */
static void again(void *action)
{
	struct sock_filter allow[] = { ANSWER(SECCOMP_RET_ALLOW) };
	struct sock_filter wrong[] = { BPF_STMT(0xffff, 0) };
	struct sock_fprog refused = { COUNT(wrong), wrong };
	int end_of_child[2];
	struct block b;

	forks(0);
	(void)prepare(end_of_child);
	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) < 0 && errno == EFAULT);
	check(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL) < 0 && errno == EFAULT);
	check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &refused) < 0 && errno == EINVAL);
	check(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0x8000, &refused) < 0);
	check_all();
	get_block(&b, 2 * MIB, 3);
	in_child((void (*)(void *))check_block, &b);
	drop_block(&b);
	set_filter(allow, COUNT(allow));
	allow_libc(action);
	lives();
}

/* A child that has the memory of its parent, for a moment. */
static void in_vfork(void *action)
{
	int end_of_child[2], status;
	struct block b;
	pid_t child;

	forks(0);
	(void)prepare(end_of_child);
	child = vfork();
	if (child == 0) {
		allow_libc(action);
		_exit(0);
	}
	check(waitpid(child, &status, 0) == child && status == 0);
	get_block(&b, 2 * MIB, 3);
	in_child((void (*)(void *))check_block, &b);
	drop_block(&b);
	allow_libc(action);
	lives();
}

static void inherited(void *arg)
{
	int end_of_child[2];

	(void)arg;
	forks(0);
	(void)prepare(end_of_child);
	lives();
}

struct forbidden {
	const char *name;
	int call, argument;
	uint32_t value;
};

#define CALL(name) { #name, SYS_##name, -1, 0 }
#define FORM(name, n, value) { #name " " #value, SYS_##name, n, value }

static const struct forbidden calls[] = {
	CALL(memfd_create), CALL(userfaultfd), CALL(unshare), CALL(membarrier),
	CALL(ftruncate), CALL(fallocate), CALL(fcntl), CALL(getpid), CALL(gettid),
	CALL(rt_sigaction), CALL(rt_sigprocmask), CALL(sigaltstack), CALL(prctl),
	CALL(tgkill), CALL(capget), CALL(fchmod),
	CALL(getdents64), CALL(readlinkat), CALL(ioctl), CALL(lseek), CALL(sched_yield),
	CALL(sched_getaffinity), CALL(mincore), CALL(geteuid), CALL(eventfd2),
	FORM(fcntl, 1, F_OFD_SETLK), FORM(fcntl, 1, F_OFD_GETLK), FORM(fcntl, 1, F_ADD_SEALS),
	FORM(fcntl, 1, F_DUPFD_CLOEXEC), FORM(madvise, 2, MADV_DONTFORK),
	FORM(madvise, 2, MADV_DOFORK), FORM(madvise, 2, MADV_REMOVE),
	FORM(madvise, 2, MADV_DONTDUMP), FORM(madvise, 2, MADV_HUGEPAGE),
	FORM(madvise, 2, 25), FORM(madvise, 2, 23), FORM(mremap, 3, 3), FORM(mremap, 3, 7),
	FORM(prctl, 0, 68),
};

static struct {
	const struct forbidden *call;
	char **argv;
} without;

static void run_inherited(const char *program)
{
	/* Filters that allow a list may forbid prctl(), too. */
	const char *forbidden = without.call ? without.call->name : "prctl";
	char *const arguments[] = { (char *)program, "inherited", (char *)forbidden, NULL };

	execv(program, arguments);
	check(!"the program can be run");
}

static void exec_under(void *arg)
{
	char **argv = arg;

	allow_libc_and_exec(argv[2]);
	run_inherited(argv[0]);
}

static void exec_as_service(void *arg)
{
	static struct sock_filter code[2000] = { LOAD(nr) };
	char **argv = arg;
	FILE *list = fopen(argv[2], "r");
	unsigned number;
	size_t n = 1;

	check(list != NULL);
	while (fscanf(list, "%u", &number) == 1) {
		check(n + 3 < COUNT(code));
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1);
		code[n++] = (struct sock_filter)ANSWER(SECCOMP_RET_ALLOW);
	}
	check(n > 200 && fclose(list) == 0);
	code[n++] = (struct sock_filter)ANSWER(SECCOMP_RET_KILL_PROCESS);
	set_filter(code, n);
	run_inherited(argv[0]);
}

static void exec_without(void *arg)
{
	(void)arg;
	forbid(without.call->call, without.call->argument, without.call->value, without.argv[2]);
	run_inherited(without.argv[0]);
}

static void exec_without_each(char **argv)
{
	without.argv = argv;
	for (size_t i = 0; i < COUNT(calls); i++) {
		without.call = &calls[i];
		printf("filters: without %s\n", calls[i].name);
		in_child(exec_without, NULL);
	}
}

/* Two calls that this program does not make. */
static void exec_without_two(void *arg)
{
	const struct rlimit any = { RLIM_INFINITY, RLIM_INFINITY };
	char **argv = arg;

	without.call = &calls[0];
	(void)setrlimit(RLIMIT_CORE, &any);
	forbid(SYS_mincore, -1, 0, argv[2]);
	forbid(SYS_userfaultfd, -1, 0, argv[2]);
	run_inherited(argv[0]);
}

/* The kernel writes core files here, unless the administrator has them elsewhere. */
static void exec_beside_cores(char **argv)
{
	char folder[] = "/tmp/cowshed-cores-XXXXXX", *program = realpath(argv[0], NULL);
	const struct dirent *entry;
	DIR *dir;

	check(program && mkdtemp(folder) && chdir(folder) == 0);
	argv[0] = program;
	in_child(exec_without_two, argv);
	dir = opendir(".");
	check(dir != NULL);
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.') {
			printf("filters: left %.4s\n", entry->d_name);
			check(unlink(entry->d_name) == 0);
		}
	check(closedir(dir) == 0 && rmdir(folder) == 0);
	free(program);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*body)(void *);
	} ways[] = {
		{ "own", own },
		{ "own-threads", beside_thread },
		{ "again", again },
		{ "vfork", in_vfork },
	};

	check(argc == 3);
	if (strcmp(argv[1], "inherited") == 0) {
		if (strcmp(argv[2], "prctl") != 0)
			check(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 1);
		inherited(NULL);
		check(waitpid(-1, NULL, WNOHANG | __WALL) == 0); /* its own one */
		_exit(0);
	}
	for (size_t i = 0; i < COUNT(ways); i++)
		if (strcmp(argv[1], ways[i].name) == 0)
			in_child(ways[i].body, argv[2]);
	if (strcmp(argv[1], "exec") == 0)
		in_child(exec_under, argv);
	if (strcmp(argv[1], "exec-without") == 0)
		exec_without_each(argv);
	if (strcmp(argv[1], "exec-cores") == 0)
		exec_beside_cores(argv);
	if (strcmp(argv[1], "service") == 0)
		in_child(exec_as_service, argv);
	printf("filters: %s %s\n", argv[1], argv[2]);
	return 0;
}
