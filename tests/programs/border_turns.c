/* SPDX-License-Identifier: MIT */
/*
 * Turns that a call which gives up privileges may take, and the border must not miss
 *
 *     border_turns CASE
 *
 *   filter     the process filters its system calls first. A child enters a sandbox later
 *   failed     the call fails, so capabilities stay; then the process enters a sandbox
 *   swept      the same, and what it had of the file is freed in between
 *   full       the same, and there is no descriptor left for the border
 *   thread     one thread gives them up alone; another one enters a sandbox
 *   handler    a handler of the calling thread forks in the middle of the call
 *   late       the same where there were no relatives before, and another thread never rests
 *   left       a handler leaves the call by siglongjmp(); a later clone() must give all memory
 *   hidden     the process makes itself not dumpable; the child, of the same user, keeps descriptors
 *   left_root  the process gives up root; its child stays root, but may trace nobody
 *   missed     a fork beside that of another thread, which takes longer than forks wait
 *   alias      the child is made by __clone(), the other name of clone()
 *   dontfork   memory is kept from children by process_madvise()
 *   wipeonfork the same
 *
 * In all cases an attacker writes to every file that it has, or can open by its mappings. It exits
 * with 1 if another process sees that, with 77 if the case can't be had here.
 */
#include "border.h"
#include "border_ways.h"

#include <linux/capability.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { BYTES = 4 << 20, SPOILED = 1, SKIPPED = 77 };

static volatile char *block;
static int gate[2], back[2];

static volatile char *block_new(void)
{
	char *p = aligned_alloc(PAGE, BYTES);

	check(p);
	memset(p, 'p', BYTES);
	return p;
}

static int spoiled(void)
{
	for (size_t at = 0; at < BYTES; at += PAGE)
		if (block[at] != 'p')
			return SPOILED;
	return 0;
}

static void needs_root(void)
{
	if (geteuid() != 0)
		_exit(SKIPPED);
}

/* ---- The attacker ---------------------------------------------------------- */

static void spoil(int fd)
{
	static char x[1 << 16];
	off_t at = 0, end;

	memset(x, 'X', sizeof(x));
	while ((at = lseek(fd, at, SEEK_DATA)) >= 0) {
		end = lseek(fd, at, SEEK_HOLE);
		for (; at < end; at += (off_t)sizeof(x))
			if (pwrite(fd, x, sizeof(x), at) < 0)
				return;
	}
}

static void spoil_mapped(const struct region *r)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/map_files/%lx-%lx", (unsigned long)r->start,
	         (unsigned long)r->end);
	fd = open(path, O_RDWR);
	if (fd < 0)
		return;
	spoil(fd);
	close(fd);
}

static void attack(void)
{
	play.proc = open("/proc", O_RDONLY | O_DIRECTORY);
	each_fd(spoil);
	each_region(spoil_mapped);
}

/* May the kernel's own rules let it trace the victim? Then there is no border. */
static void must_be_a_border(pid_t victim)
{
	char path[40];

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)victim);
	if (open(path, O_RDWR) >= 0)
		_exit(SKIPPED);
}

static int status_of(pid_t child)
{
	int status;

	check(waitpid(child, &status, 0) == child);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

static void enters_sandbox_and_attacks(void)
{
	if (by_landlock() != 0)
		_exit(SKIPPED);
	must_be_a_border(getppid());
	attack();
	_exit(0);
}

static int children_attack(void (*child)(void))
{
	pid_t pid = fork();
	int status;

	check(pid >= 0);
	if (pid == 0)
		child();
	status = status_of(pid);
	return status ? status : spoiled();
}

/* ---- Cases ------------------------------------------------------------------- */

static int filter_first(void)
{
	needs_root();
	check(by_filter() == 0);
	return children_attack(enters_sandbox_and_attacks);
}

/* A container's root may lack the capability. */
static void without_setuid(void)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2];

	check(syscall(SYS_capget, &head, data) == 0);
	data[0].effective &= ~(1u << CAP_SETUID);
	data[0].permitted &= ~(1u << CAP_SETUID);
	data[0].inheritable = 0;
	check(syscall(SYS_capset, &head, data) == 0);
}

static void keeps_only(uint32_t capabilities)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2] = { { 0 } };

	data[0].effective = data[0].permitted = capabilities;
	check(syscall(SYS_capset, &head, data) == 0);
}

/* A child that only lives, until `back` opens. */
static pid_t relative_new(void)
{
	pid_t pid = fork();

	check(pid >= 0);
	if (pid == 0) {
		gate_wait(back);
		_exit(0);
	}
	return pid;
}

static void fails_and_enters(void)
{
	check(setresuid(NOBODY, NOBODY, NOBODY) < 0);
	enters_sandbox_and_attacks();
}

static int failed_call(void)
{
	needs_root();
	without_setuid();
	block = block_new();
	return children_attack(fails_and_enters);
}

static void fails_frees_and_enters(void)
{
	unsigned char *other;

	check(setresuid(NOBODY, NOBODY, NOBODY) < 0);
	free((void *)block);
	other = get(2 * (size_t)BYTES); /* needs a file of its own */
	memset(other, 1, 2 * (size_t)BYTES);
	(void)malloc_trim(0); /* the library looks for files that it needs no more */
	enters_sandbox_and_attacks();
}

static int swept(void)
{
	needs_root();
	without_setuid();
	return children_attack(fails_frees_and_enters);
}

static void fails_and_has_no_descriptor(void)
{
	struct rlimit none = { 0, 0 }, before;
	uint64_t handled = 1 << 1 | 1 << 4 | 1 << 5;
	long rules = syscall(SYS_landlock_create_ruleset, &handled, sizeof(handled), 0);

	check(setresuid(NOBODY, NOBODY, NOBODY) < 0);
	if (rules < 0)
		_exit(SKIPPED);
	check(getrlimit(RLIMIT_NOFILE, &before) == 0);
	none.rlim_max = before.rlim_max;
	check(setrlimit(RLIMIT_NOFILE, &none) == 0);
	if (syscall(SYS_landlock_restrict_self, rules, 0) != 0)
		_exit(0); /* the call failed: there is no border to pass */
	check(setrlimit(RLIMIT_NOFILE, &before) == 0);
	must_be_a_border(getppid());
	attack();
	_exit(0);
}

static int full_table(void)
{
	needs_root();
	without_setuid();
	return children_attack(fails_and_has_no_descriptor);
}

static void *drops_alone(void *arg)
{
	check(syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY) == 0);
	return arg;
}

static int one_thread(void)
{
	pthread_t thread;
	pid_t victim;
	int status;

	needs_root();
	gate_make(gate);
	victim = fork();
	check(victim >= 0);
	if (victim == 0) {
		gate_wait(gate);
		_exit(spoiled());
	}
	check(pthread_create(&thread, NULL, drops_alone, NULL) == 0);
	check(pthread_join(thread, NULL) == 0);
	status = by_landlock() == 0 ? 0 : SKIPPED;
	if (!status) {
		must_be_a_border(victim);
		attack();
	}
	gate_open(gate);
	return status ? status : status_of(victim);
}

#include "border_turns_handlers.h"

static volatile pid_t forker_id;

static void *forks_slowly(void *arg)
{
	pid_t pid;

	forker_id = (pid_t)syscall(SYS_gettid);
	gate_wait(gate);
	pid = fork();
	if (pid == 0)
		_exit(0);
	check(status_of(pid) == 0);
	return arg;
}

/* Holds the thread in the kernel's fork, until the other fork is over. */
static void hold_fork(int seized[2], int over[2])
{
	int status;
	pid_t pid;

	if (ptrace(PTRACE_SEIZE, forker_id, 0, PTRACE_O_TRACEFORK | PTRACE_O_TRACECLONE) < 0)
		_exit(SKIPPED);
	gate_open(seized);
	while ((pid = waitpid(-1, &status, __WALL)) > 0) {
		if (!WIFSTOPPED(status))
			continue;
		if (pid == forker_id && status >> 16) {
			gate_open(seized);
			gate_wait(over);
		}
		ptrace(pid == forker_id ? PTRACE_CONT : PTRACE_DETACH, pid, 0, 0);
	}
	_exit(0);
}

/* Without the shim the child has the memory. Under it that is the child of the other thread's fork. */
static int missed_fork(void)
{
	int seized[2], over[2], status;
	pthread_t thread;
	pid_t tracer, pid;

	gate_make(gate);
	gate_make(seized);
	gate_make(over);
	check(pthread_create(&thread, NULL, forks_slowly, NULL) == 0);
	while (!forker_id)
		usleep(100);
	tracer = fork();
	check(tracer >= 0);
	if (tracer == 0)
		hold_fork(seized, over);
	gate_wait(seized);
	block = block_new();
	gate_open(gate);
	gate_wait(seized);
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); /* waits for a while, and goes on then */
	if (pid == 0) {
		play.proc = open("/proc", O_RDONLY | O_DIRECTORY);
		RAW3(SYS_exit_group, list_regions(regions) ? SPOILED : 0, 0, 0);
	}
	status = status_of(pid);
	gate_open(over);
	check(pthread_join(thread, NULL) == 0);
	kill(tracer, SIGKILL);
	(void)status_of(tracer);
	return status;
}

/* A child that attacks when the gate opens. */
static pid_t attacker_new(void)
{
	pid_t pid = fork();

	check(pid >= 0);
	if (pid == 0) {
		gate_wait(gate);
		must_be_a_border(getppid());
		attack();
		_exit(0);
	}
	return pid;
}

/* It has no capability to trace, as root of most containers. */
static int left_root(void)
{
	pid_t pid;

	needs_root();
	gate_make(gate);
	keeps_only(1u << CAP_SETUID | 1u << CAP_SETGID);
	block = block_new();
	pid = attacker_new();
	check(by_ids() == 0);
	gate_open(gate);
	return status_of(pid) ? SKIPPED : spoiled();
}

/* The child attacks. Both are nobody, so only the missing dumps keep it from tracing. */
static int hidden(void)
{
	pid_t relative, pid;

	gate_make(gate);
	gate_make(back);
	relative = relative_new();
	if (geteuid() == 0)
		check(by_ids() == 0);
	check(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0);
	block = block_new(); /* in a file of its own, which this user made */
	pid = attacker_new();
	check(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
	gate_open(gate);
	gate_open(back);
	check(status_of(relative) == 0);
	return status_of(pid) ? SKIPPED : spoiled();
}

extern int __clone(int (*)(void *), void *, int, void *, ...) __attribute__((weak));

static int drops_and_attacks(void *arg)
{
	(void)arg;
	if (by_ids() != 0)
		_exit(99);
	attack();
	_exit(0);
}

static int other_name(void)
{
	static char stack[1 << 18] __attribute__((aligned(16)));
	int status;

	needs_root();
	if (!__clone)
		return SKIPPED;
	status = status_of(__clone(drops_and_attacks, stack + sizeof(stack), SIGCHLD, NULL));
	return status ? status : spoiled();
}

static int advise(void *memory, size_t bytes, int advice)
{
	struct iovec part = { memory, bytes };
	long self = syscall(SYS_pidfd_open, getpid(), 0);

	return self < 0 || syscall(SYS_process_madvise, self, &part, 1, advice, 0) < 0 ? -1 : 0;
}

/* The child grows its mapping over the memory that it was denied. */
static int denied(int advice)
{
	struct iovec part = { (void *)(block + BYTES / 2), BYTES / 4 };
	void *small = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pid_t pid;

	if (advise(small, PAGE, advice) < 0)
		return SKIPPED; /* Linux before 6.13 */
	check(advise(part.iov_base, part.iov_len, advice) == 0);
	for (size_t at = 0; at < part.iov_len; at += PAGE)
		memcpy((char *)part.iov_base + at, key(), key_bytes());
	pid = fork();
	check(pid >= 0);
	if (pid == 0) {
		long all = raw(SYS_mremap, (long)block, PAGE, BYTES, MREMAP_MAYMOVE, 0, 0);

		_exit(all < 0 && all > -4096 ? 0 : has_key((void *)all, BYTES));
	}
	return status_of(pid) == SPOILED;
}

static int dontfork(void) { return denied(MADV_DONTFORK); }
static int wipeonfork(void) { return denied(MADV_WIPEONFORK); }

static const struct {
	const char *name;
	int (*run)(void);
} cases[] = {
	{ "filter", filter_first }, { "failed", failed_call },   { "swept", swept },
	{ "full", full_table },     { "thread", one_thread },
	{ "handler", handler_forks }, { "late", late_border },
	{ "left", left_call },	      { "hidden", hidden },     { "left_root", left_root },
	{ "missed", missed_fork }, { "alias", other_name },
	{ "dontfork", dontfork },   { "wipeonfork", wipeonfork },
};

int main(int argc, char **argv)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (argc != 2)
			puts(cases[i].name);
		else if (strcmp(argv[1], cases[i].name) == 0) {
			block = block_new();
			return cases[i].run();
		}
	}
	return argc == 2 ? 2 : 0;
}
