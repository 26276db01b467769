/* SPDX-License-Identifier: MIT */
/*
 * Programs that give up privileges keep their memory, and so do their relatives
 *
 *     border_works [CASE [WAY]]
 *
 * After the call each process reads what it inherited, writes it, frees it, allocates, forks
 * and executes, and sees its own bytes alone. Nothing else of the program changes: its own
 * descriptors and shared memory stay. A way that this user or kernel can't do is left out.
 */
#include "border_lives.h"
#include "healing.h"

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

enum { KILLED = 40, CALLS = 200, TOGGLES = 12 };

static int gate[2];

/* ---- Cases --------------------------------------------------------------- */

static void dropped(void *arg)
{
	(void)arg;
	must_drop();
	if (way->strict) {
		check_items(1);
		fill_items(2);
		check_items(2);
		leave();
	}
	lives(1);
	free_items();
}

/* The parent goes on beside the child, and after it. */
static void a_child(void)
{
	pid_t child;

	make_items(1);
	child = start(dropped, NULL);
	lives(1);
	finish_or_skip(child);
	check_items(2);
	lives(2);
	free_items();
}

/* The parent drops. The child keeps its privileges. */
static void waits_and_lives(void *arg)
{
	(void)arg;
	gate_wait(gate);
	lives(1);
}

static void parent_drops(void *arg)
{
	pid_t child;

	(void)arg;
	gate_make(gate);
	make_items(1);
	child = start(waits_and_lives, NULL);
	must_drop();
	lives(1);
	gate_open(gate);
	finish(child);
	check_items(2);
	lives(2);
}

static void a_parent(void)
{
	if (!way->strict)
		finish_or_skip(start(parent_drops, NULL));
}

/* Without relatives nothing is given up. */
static void daemon_drops(void *arg)
{
	unsigned i;

	(void)arg;
	make_items(1);
	must_drop();
	for (i = 1; i < 4; i++)
		lives(i);
	free_items();
}

static void a_daemon(void)
{
	if (!way->strict)
		finish_or_skip(start(daemon_drops, NULL));
}

static void a_crowd(void)
{
	pid_t child[4];
	unsigned i;

	way = &ways[0];
	make_items(1);
	for (i = 0; i < COUNT(child); i++)
		child[i] = start(dropped, NULL);
	fill_items(7);
	for (i = 0; i < COUNT(child); i++)
		finish_or_skip(child[i]);
	lives(7);
	free_items();
}

/* A vforked child has its parent's memory. What it gives up is its own alone. */
static void a_vfork(void)
{
	int status;
	pid_t pid;

	make_items(1);
	pid = vfork();
	check(pid >= 0);
	if (pid == 0) {
		if (way->drop() != 0)
			_exit(77);
		if (way->strict)
			leave();
		execl("/proc/self/exe", "border_works", "executed", (char *)NULL);
		_exit(0);
	}
	check(waitpid(pid, &status, 0) == pid);
	lives(1);
	free_items();
}

/* Descriptors and shared memory of the program's own are the program's business. */
static void keeps_own(void *arg)
{
	unsigned char *shared = ((void **)arg)[0];
	int fd = *(int *)((void **)arg)[1];

	must_drop();
	shared[0]++;
	if (!way->strict)
		check(pwrite(fd, "own", 3, 0) == 3);
	else
		check(write(fd, "own", 3) == 3);
	leave();
}

static void own_things(void)
{
	char text[4] = "";
	int fd = memfd_create("own", MFD_CLOEXEC);
	void *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	void *args[] = { shared, &fd };

	check(fd >= 0 && shared != MAP_FAILED);
	make_items(1);
	finish_or_skip(start(keeps_own, args));
	if (*(unsigned char *)shared) {
		check(pread(fd, text, 3, 0) == 3 && strcmp(text, "own") == 0);
		check_items(1);
	}
	munmap(shared, PAGE);
	close(fd);
	free_items();
}

static const struct {
	const char *name;
	void (*run)(void);
} by_way[] = {
	{ "child", a_child }, { "parent", a_parent }, { "daemon", a_daemon },
	{ "vfork", a_vfork }, { "own", own_things },
};

static void run_way(void *arg)
{
	(void)arg;
	if (way->before)
		way->before();
	for (size_t i = 0; i < COUNT(by_way); i++)
		by_way[i].run();
}

/* ---- Stories without a way of their own ---------------------------------- */

static volatile sig_atomic_t calls;

static void toggles(int sig)
{
	int saved = errno;

	(void)sig;
	check(seteuid(NOBODY) == 0 && seteuid(0) == 0);
	calls++;
	errno = saved;
}

/* The call may interrupt the allocator. */
static void in_handlers(void *arg)
{
	struct itimerval every = { { 0, 2000 }, { 0, 2000 } };
	struct sigaction act = { .sa_handler = toggles, .sa_flags = SA_RESTART };

	(void)arg;
	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
	for (unsigned i = 0; calls < CALLS; i++)
		free(get_filled((1 + i % 5) * MIB, i));
	memset(&every, 0, sizeof(every));
	setitimer(ITIMER_REAL, &every, NULL);
	lives(1);
}

static void handlers(void)
{
	make_items(1);
	in_child(in_handlers, NULL);
	lives(1);
	free_items();
}

static void drops_forever(void *arg)
{
	(void)arg;
	gate_open(gate);
	for (;;)
		check(seteuid(NOBODY) == 0 && seteuid(0) == 0);
}

static void drops_at_once(void *arg)
{
	(void)arg;
	gate_open(gate);
	(void)!by_ids();
	check_items(1);
	for (;;)
		pause();
}

/* Children that are killed somewhere in their calls. */
static void kills(void)
{
	uint64_t random = 46;
	pid_t pid;

	gate_make(gate);
	make_items(1);
	for (int i = 0; i < KILLED; i++) {
		pid = start(i % 2 ? drops_forever : drops_at_once, NULL);
		gate_wait(gate);
		usleep((useconds_t)below(&random, 400));
		kill(pid, SIGKILL);
		check(waitpid(pid, NULL, 0) == pid);
		check_items(1);
		if (i % 8 == 0)
			fill_items(1);
	}
	lives(1);
	free_items();
}

/* A call that fails gives up nothing that the program can see. */
static void denied_call(void *arg)
{
	(void)arg;
	check(by_ids() == 0);
	for (int i = 0; i < 100; i++) {
		check(setuid(0) == -1 && errno == EPERM);
		check(chroot("/") == -1 && errno == EPERM);
		check(setgroups(0, NULL) == -1 && errno == EPERM);
		check(syscall(SYS_setresuid, 0, 0, 0) == -1 && errno == EPERM);
		check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0) == -1);
	}
	lives(1);
}

static void denied_calls(void)
{
	make_items(1);
	in_child(denied_call, NULL);
	lives(1);
	free_items();
}

/* Each generation gives up a little more. */
static void generation(void *arg)
{
	static int (*const steps[])(void) = { by_bound, by_groups, by_no_new, by_ids, by_filter };
	unsigned n = *(unsigned *)arg;

	if (n == COUNT(steps))
		return;
	check(steps[n]() == 0);
	check_items(1 + n);
	n++;
	fill_items(1 + n);
	in_child(generation, &n);
	check_items(1 + n);
	lives(1 + n);
}

static void generations(void)
{
	unsigned first = 0;

	make_items(1);
	in_child(generation, &first);
	lives(1);
	free_items();
}

/* ---- Threads beside the call --------------------------------------------- */

static volatile int over;

static void *allocates(void *arg)
{
	for (unsigned i = 0; !over; i++) {
		unsigned char *p = get_filled((1 + i % 3) * MIB, i);

		check(holds(p, (1 + i % 3) * MIB, i));
		free(p);
	}
	return arg;
}

static void only_checks(void *arg)
{
	(void)arg;
	check_items(1);
}

static void *forks(void *arg)
{
	while (!over)
		in_child(only_checks, NULL);
	return arg;
}

static void with_threads(void *arg)
{
	pthread_t a, b;

	(void)arg;
	check(pthread_create(&a, NULL, allocates, NULL) == 0);
	check(pthread_create(&b, NULL, forks, NULL) == 0);
	for (int i = 0; i < TOGGLES; i++) {
		usleep(2000);
		check(seteuid(NOBODY) == 0 && seteuid(0) == 0);
	}
	check(by_ids() == 0);
	usleep(2000);
	over = 1;
	check(pthread_join(a, NULL) == 0 && pthread_join(b, NULL) == 0);
	lives(1);
}

static void threads(void)
{
	make_items(1);
	in_child(with_threads, NULL);
	lives(1);
	free_items();
}

/* A relative shares words with its family; a stranger has only private mappings. */
static void is_of_the_family(void *arg)
{
	int shared = 0, n = list_regions(regions);

	(void)arg;
	for (int i = 0; i < n; i++)
		shared += regions[i].perms[3] == 's';
	check(!library() || shared);
}

/* Calls that change nothing make nobody a stranger, beside threads, too. */
static void probes(void)
{
	pthread_t a;

	play.proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	check(play.proc >= 0);
	make_items(1);
	over = 0;
	check(pthread_create(&a, NULL, allocates, NULL) == 0);
	for (int i = 0; i < TOGGLES; i++) {
		check(setresuid((uid_t)-1, (uid_t)-1, (uid_t)-1) == 0);
		check(setgid(getgid()) == 0 && setuid(getuid()) == 0);
		check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL, 0, 0) == -1);
		check(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0);
		in_child(is_of_the_family, NULL);
	}
	over = 1;
	check(pthread_join(a, NULL) == 0);
	free_items();
	close(play.proc);
}

/* ---- Shared tables of descriptors ---------------------------------------- */

static char stack[256 * KIB] __attribute__((aligned(16)));

static int drops_in_clone(void *arg)
{
	dropped(arg);
	return 0;
}

/* The child gives up its own descriptors. Its parent keeps all. */
static void shared_files(void)
{
	int fd = memfd_create("own", MFD_CLOEXEC);
	pid_t pid;

	way = &ways[0];
	make_items(1);
	pid = clone(drops_in_clone, stack + sizeof(stack), CLONE_FILES | SIGCHLD, NULL);
	check(pid > 0);
	finish(pid);
	check(fcntl(fd, F_GETFD) >= 0);
	close(fd);
	for (unsigned i = 1; i < 4; i++)
		lives(i);
	free_items();
}

static const struct {
	const char *name;
	void (*run)(void);
} stories[] = {
	{ "handlers", handlers },     { "kills", kills },     { "denied", denied_calls },
	{ "generations", generations }, { "threads", threads }, { "files", shared_files },
	{ "crowd", a_crowd },         { "probes", probes },
};

static void run_story(void *arg) { stories[*(size_t *)arg].run(); }

int main(int argc, char **argv)
{
	const char *only = argc > 1 ? argv[1] : NULL;
	size_t i;

	if (only && strcmp(only, "executed") == 0) {
		free(get_filled(4 * MIB, 1));
		return 0;
	}
	for (i = 0; i < COUNT(ways) - 3; i++) {
		way = &ways[i];
		if ((only && strcmp(only, way->name) != 0) || (way->root && geteuid() != 0))
			continue;
		in_child(run_way, NULL);
		printf("border_works: %s\n", way->name);
	}
	for (i = 0; i < COUNT(stories); i++) {
		if ((only && strcmp(only, stories[i].name) != 0) || geteuid() != 0)
			continue;
		in_child(run_story, &i);
		printf("border_works: %s\n", stories[i].name);
	}
	return 0;
}
