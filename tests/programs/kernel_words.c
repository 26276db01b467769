/* SPDX-License-Identifier: MIT */
/*
 * Words in a block that the kernel writes by itself, and no call at that moment names
 *
 *   rseq               the number of the processor, whenever the thread begins to run: also
 *                      while it waits, after a stop, and before any code of the program
 *   set_tid_address    0, when the thread ends
 *   clone              the number of the child: CLONE_PARENT_SETTID, CLONE_CHILD_SETTID; 0
 *                      when a child that shares the memory ends: CLONE_CHILD_CLEARTID
 *
 * An allocator may move the block's pages at any of these moments. (Robust mutexes and the
 * words of joiners are in robust.c.) Where the kernel has no rseq that part does nothing.
 */
#include "later.h"
#include "parked.h"

#include <linux/rseq.h>
#include <linux/sched.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#ifdef __GLIBC__
#include <ucontext.h>
#endif

enum { AREA = 32, SIGNATURE = 0x53053053, ROUNDS = 20, STACK = 64 * KIB };

/* ---- rseq -------------------------------------------------------------------- */

#ifdef __GLIBC__
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned __rseq_size __attribute__((weak));
#endif

/* libc has an area of its own, and a thread can have only one. */
static void leave_libc(void)
{
#ifdef __GLIBC__
	if (&__rseq_size && __rseq_size)
		(void)syscall(SYS_rseq, (char *)__builtin_thread_pointer() + __rseq_offset,
		              AREA, RSEQ_FLAG_UNREGISTER, SIGNATURE);
#endif
}

/* False: this kernel can't, or this libc keeps its own. */
static int area_begin(unsigned char *at)
{
	leave_libc();
	memset(at, 0, AREA);
	return syscall(SYS_rseq, at, AREA, 0, SIGNATURE) == 0;
}

static void area_end(unsigned char *at)
{
	check(syscall(SYS_rseq, at, AREA, RSEQ_FLAG_UNREGISTER, SIGNATURE) == 0);
}

/* What the kernel wrote last. A thread that moves between the looks is asked again. */
static void check_area(unsigned char *at)
{
	const struct rseq *area = (void *)at;
	unsigned now;
	int tries = 0;

	do {
		check(syscall(SYS_getcpu, &now, NULL, NULL) == 0);
		check(tries++ < 100);
	} while (__atomic_load_n(&area->cpu_id, __ATOMIC_RELAXED) != now);
}

static size_t by_read_with_area(unsigned char *at)
{
	char bytes[5];

	check(area_begin(at));
	check(read(quiet[0], bytes, 5) == 5);
	check_area(at);
	area_end(at);
	return AREA;
}

static const struct call with_area[] = {
	{ "rseq", by_read_with_area, wake_by_pipe },
};

/* In a child: libc's area stays where it is. */
static int can_have_area(void)
{
	static unsigned char at[AREA] __attribute__((aligned(AREA)));
	pid_t child = fork();
	int status;

	if (child == 0)
		_exit(area_begin(at) ? 0 : 77);
	check(waitpid(child, &status, 0) == child && WIFEXITED(status));
	return WEXITSTATUS(status) == 0;
}

/* The chunk with the area stays as it is, while the others come home. */
static void check_chunk_stays(const unsigned char *block, unsigned char *at)
{
	wait_until_copied(block, HUGE_PAGE, 0);
	wait_until_copied(block + 2 * HUGE_PAGE, BYTES - 2 * HUGE_PAGE, 0);
	for (int i = 0; i < 20; i++) {
		check(!library() ||
		      copied(block + HUGE_PAGE, HUGE_PAGE) == HUGE_PAGE / PAGE);
		check_area(at);
		rest();
	}
}

/* The thread that moves the pages may be the one that has the area. */
static void of_the_only_thread(void *arg)
{
	struct healing h = healing_begin(BYTES);
	unsigned char *at = h.block + IN_THE_MIDDLE;

	(void)arg;
	check(area_begin(at));
	healing_may_begin(&h);
	check_chunk_stays(h.block, at);
	area_end(at);
	check(holds(h.block, IN_THE_MIDDLE, 2));
	healing_end(&h);
}

struct inherited {
	unsigned char *block;
	int gate[2];
};

/* All but the area: the kernel reads it, too. */
static void fill_around(unsigned char *block, uint64_t seed)
{
	fill(block, IN_THE_MIDDLE, seed);
	memset(block + IN_THE_MIDDLE + AREA, (int)seed, BYTES - IN_THE_MIDDLE - AREA);
}

static void has_the_area(void *arg)
{
	struct inherited *i = arg;

	fill_around(i->block, 2);
	gate_wait(i->gate);
	check_chunk_stays(i->block, i->block + IN_THE_MIDDLE);
	area_end(i->block + IN_THE_MIDDLE);
	check(holds(i->block, IN_THE_MIDDLE, 2));
	wait_until_copied(i->block, BYTES, 0);
	check(holds(i->block, IN_THE_MIDDLE, 2));
}

/* A child has its parent's area, too. Its parent ends before it brings pages home. */
static void inherited_area(void *arg)
{
	struct inherited i;
	pid_t child;
	void *p;

	(void)arg;
	check(posix_memalign(&p, HUGE_PAGE, BYTES) == 0);
	i.block = p;
	check(area_begin(i.block + IN_THE_MIDDLE));
	fill_around(i.block, 1);
	gate_make(i.gate);
	child = start(has_the_area, &i);
	area_end(i.block + IN_THE_MIDDLE);
	free(i.block);
	gate_open(i.gate);
	finish(child);
}

/* ---- A thread whose data lie in the block, but not its stack ------------------------- */

#ifdef __GLIBC__
static ucontext_t of_thread, of_task;

static void task_waits(void)
{
	char bytes[5];

	__atomic_store_n(&caller, gettid(), __ATOMIC_RELEASE);
	check(read(quiet[0], bytes, 5) == 5);
	errno = 77;
	check(read(-1, bytes, 5) == -1 && errno == EBADF);
}

/* As coroutines do. */
static void *runs_task(void *arg)
{
	static char stack[STACK];

	check(getcontext(&of_task) == 0);
	of_task.uc_stack = (stack_t){ .ss_sp = stack, .ss_size = STACK };
	of_task.uc_link = &of_thread;
	makecontext(&of_task, task_waits, 0);
	check(swapcontext(&of_thread, &of_task) == 0);
	return arg;
}

/* libc has errno there, and its rseq area. */
static void data_in_block(void)
{
	struct healing h = healing_begin(BYTES);
	pthread_attr_t how;
	pthread_t thread;

	caller = 0;
	check(pthread_attr_init(&how) == 0);
	check(pthread_attr_setstack(&how, h.block + HUGE_PAGE, HUGE_PAGE / 2) == 0);
	check(pthread_create(&thread, &how, runs_task, NULL) == 0);
	wait_until_it_sleeps();
	healing_may_begin(&h);
	for (int i = 0; i < 30; i++) {
		check(!library() || copied(h.block + HUGE_PAGE, HUGE_PAGE) > 0);
		rest();
	}
	wake_by_pipe();
	check(pthread_join(thread, NULL) == 0);
	wait_until_copied(h.block, BYTES, 0);
	check(holds(h.block, HUGE_PAGE, 2));
	pthread_attr_destroy(&how);
	healing_end(&h);
}
#endif

/* ---- A number that is cleared ---------------------------------------------------- */

static int *word;

static void *ends(void *arg)
{
	check(syscall(SYS_set_tid_address, word) > 0);
	__atomic_store_n(&ended, 1, __ATOMIC_RELEASE);
	usleep((useconds_t)(uintptr_t)arg);
	return NULL; /* nobody joins it: libc would wait for its own word */
}

static void wait_for_zero(void)
{
	for (int looks = 0; __atomic_load_n(word, __ATOMIC_ACQUIRE); looks++) {
		check(looks < 20000);
		rest();
	}
}

static void a_thread_ends(uint64_t *random)
{
	struct healing h = healing_begin(BYTES);
	pthread_attr_t how;
	pthread_t thread;

	word = (void *)(h.block + IN_THE_MIDDLE);
	*word = 1;
	ended = 0;
	check(pthread_attr_init(&how) == 0);
	check(pthread_attr_setdetachstate(&how, PTHREAD_CREATE_DETACHED) == 0);
	check(pthread_attr_setstacksize(&how, STACK) == 0);
	check(pthread_create(&thread, &how, ends,
	                     (void *)(uintptr_t)below(random, 3000)) == 0);
	while (!__atomic_load_n(&ended, __ATOMIC_ACQUIRE))
		rest();
	healing_may_begin(&h);
	wait_for_zero();
	wait_until_copied(h.block, BYTES, 0);
	check(*word == 0);
	check(holds(h.block, IN_THE_MIDDLE, 2));
	pthread_attr_destroy(&how);
	healing_end(&h);
}

/* ---- Numbers of children -------------------------------------------------------- */

static int number_is_there(void *arg)
{
	(void)arg;
	return *word == (int)syscall(SYS_getpid) ? 0 : 1;
}

static pid_t numbered_by_number(void)
{
#if defined(__x86_64__)
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD | CLONE_CHILD_SETTID | CLONE_PARENT_SETTID,
	                           0, word + 1, word, 0);
#else
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD | CLONE_CHILD_SETTID | CLONE_PARENT_SETTID,
	                           0, word + 1, 0, word);
#endif

	if (pid == 0)
		_exit(number_is_there(NULL));
	return pid;
}

static pid_t numbered_by_clone3(void)
{
	struct clone_args args = { .flags = CLONE_CHILD_SETTID | CLONE_PARENT_SETTID,
		                   .child_tid = (uintptr_t)word,
		                   .parent_tid = (uintptr_t)(word + 1),
		                   .exit_signal = SIGCHLD };
	pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));

	if (pid < 0) /* may be forbidden */
		return numbered_by_number();
	if (pid == 0)
		_exit(number_is_there(NULL));
	return pid;
}

static pid_t numbered_by_name(void)
{
	static char stack[STACK] __attribute__((aligned(16)));

	return clone(number_is_there, stack + STACK,
	             SIGCHLD | CLONE_CHILD_SETTID | CLONE_PARENT_SETTID, NULL, word + 1, NULL,
	             word);
}

/* With a descriptor beside which a child gets a copy of the block, and without one. */
static void children_have_numbers(int direct)
{
	pid_t (*const ways[])(void) = { numbered_by_number, numbered_by_clone3,
		                      numbered_by_name };
	int fd = direct ? open("/proc/self/exe", O_RDONLY | O_DIRECT | O_CLOEXEC) : -1, status;
	unsigned char *block = get_filled(BYTES, 3);
	pid_t child;

	word = (void *)(block + IN_THE_MIDDLE);
	for (unsigned i = 0; i < 2 * COUNT(ways); i++) {
		word[0] = word[1] = 0;
		child = ways[i % COUNT(ways)]();
		check(child > 0);
		check(word[0] == 0 && word[1] == child);
		check(waitpid(child, &status, 0) == child && status == 0);
		check(word[0] == 0);
	}
	if (fd >= 0)
		close(fd);
	free(block);
}

/* ---- A process that shares the memory ---------------------------------------------- */

static int sleeps(void *arg)
{
	syscall(SYS_nanosleep, &(struct timespec){ .tv_nsec = (long)(uintptr_t)arg * 1000 }, NULL);
	return 0;
}

static void a_process_ends(uint64_t *random)
{
	static char stack[STACK] __attribute__((aligned(16)));
	struct healing h = healing_begin(BYTES);
	int status;
	pid_t child;

	word = (void *)(h.block + IN_THE_MIDDLE);
	*word = 1;
	child = clone(sleeps, stack + STACK, CLONE_VM | CLONE_CHILD_CLEARTID | SIGCHLD,
	              (void *)(uintptr_t)below(random, 3000), NULL, NULL, word);
	check(child > 0);
	gate_open(h.gate);
	finish(h.child);
	check(waitpid(child, &status, 0) == child && status == 0);
	check(*word == 0 && holds(h.block, IN_THE_MIDDLE, 2));
	close(h.gate[0]);
	close(h.gate[1]);
	free(h.block);
}

int main(void)
{
	uint64_t random = 5;

	alarm(100); /* a word that is lost may be waited for without end */
	gate_make(quiet);
	if (can_have_area()) {
		run_calls(with_area, 1, NULL);
		in_child(of_the_only_thread, NULL);
		in_child(inherited_area, NULL);
	}
#ifdef __GLIBC__
	data_in_block();
#endif
	for (int i = 0; i < ROUNDS; i++)
		a_thread_ends(&random);
	children_have_numbers(0);
	children_have_numbers(1);
	/* The last: pages may stay where they are from now on. */
	for (int i = 0; i < ROUNDS; i++)
		a_process_ends(&random);
	puts("kernel_words: done");
	return 0;
}
