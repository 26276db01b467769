/* SPDX-License-Identifier: MIT */
/*
 * Memory that is still charged after its users freed it, or were killed
 *
 *      plain_memory [-p SHIM] [-n KILLS]
 *
 * A driver, which is not preloaded itself, starts a worker: this program again, under
 * the shim if -p names it. The worker runs in a fresh memory cgroup. The driver sends it
 * letters by a pipe; the worker answers when it has done what the letter says. Between
 * letters the driver reads what the cgroup is charged. It prints the least charge within
 * five seconds, and the time until the charge came within 8 MiB of the aim. S are 512 MiB.
 *
 *   freed      a worker fills S bytes, forks a child that reads, rewrites
 *              all, frees everything. Then it sleeps (freed) or goes on with
 *              small mallocs (freed-busy). Aim: the charge before.
 *   shadow     fill, fork a child that stays, rewrite all, child exits. Aim:
 *              the charge before the fork.
 *   orphan     fill, fork a child that stays; the parent is killed with -9;
 *              the child rewrites all and sleeps (orphan-rewrites, aim: S),
 *              does a little work for a second (orphan-works, aim: S), then
 *              frees (orphan-frees, aim: nothing). orphan-silent: the child
 *              rewrites again and again, and makes no call at all (aim: S).
 *   killed     worker trees fork, rewrite, free and allocate without end. At
 *              a random moment all of them are killed at once, or the parent
 *              first and the children later. Aim: nothing. KILLS times; the
 *              worst is printed.
 *
 * Without cgroups the charge is the growth of AnonPages + Shmem of the whole system. The
 * lines have by=system then, else by=cgroup.
 */
#include "bench/meter.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>

enum { DECAY_MS = 5000 };
static const char *shim;
static size_t size;

/* ---- The worker ---------------------------------------------------------- */

enum { BLOCKS = 32 };
static char *block[BLOCKS];
static size_t block_bytes;
static int from_driver, to_driver;
static atomic_int *rounds_done; /* shared with the driver: of a child without calls */

static void fill(int value)
{
	for (int i = 0; i < BLOCKS; i++) {
		if (!block[i])
			block[i] = block_of(block_bytes, false, -1);
		memset(block[i], value, block_bytes);
	}
}

static void free_all(void)
{
	for (int i = 0; i < BLOCKS; i++) {
		free(block[i]);
		block[i] = NULL;
	}
}

static void little_work(int ms)
{
	for (int i = 0; i < ms / 10; i++) {
		char *p = block_of(512 * KIB, false, 1);

		use(p);
		free(p);
		sleep_ms(10);
	}
}

static char hear(void)
{
	char c;

	return read(from_driver, &c, 1) == 1 ? c : 'q';
}

static void tell(char c)
{
	if (write(to_driver, &c, 1) != 1)
		_exit(1);
}

/* Rewrites everything for ever. Only the shared counter says so. */
static void rewrite_silently(void)
{
	for (int value = 9;; value++) {
		for (int i = 0; i < BLOCKS; i++)
			for (size_t k = 0; k < block_bytes; k += 64)
				((volatile char *)block[i])[k] = (char)value;
		atomic_fetch_add(rounds_done, 1);
	}
}

/* A child that stays: 'r' rewrites, 's' does so for ever, 'b' works a little, 'f' frees.
 * It reads the pipe of its parent, so the parent must not read meanwhile. */
static void child_stay(void)
{
	tell('k');
	for (;;)
		switch (hear()) {
		case 'r': fill(9); tell('k'); break;
		case 's': rewrite_silently(); break;
		case 'b': little_work(1000); tell('k'); break;
		case 'f': free_all(); little_work(100); tell('k'); break;
		default: _exit(0);
		}
}

static void worker(void)
{
	volatile char sum = 0;
	int value = 1;
	pid_t pid;

	for (;;) {
		char c = hear();

		switch (c) {
		case 'F': /* fill */
			fill(value++);
			break;
		case 'R': /* fork a child that reads all; wait for it */
			pid = fork();
			if (pid == 0) {
				for (int i = 0; i < BLOCKS; i++)
					for (size_t k = 0; k < block_bytes;
					     k += PAGE)
						sum += block[i][k];
				_exit(0);
			}
			waitpid(pid, NULL, 0);
			break;
		case 'S': /* fork a child that takes letters until it ends */
			pid = fork();
			if (pid == 0)
				child_stay();
			waitpid(pid, NULL, 0);
			break;
		case 'W': /* fork a child that stays while the parent rewrites */
			pid = fork();
			if (pid == 0) {
				pause();
				_exit(0);
			}
			fill(value++);
			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
			break;
		case 'X': free_all(); break;
		case 'B': little_work(1000); break;
		default: _exit(0);
		}
		tell('k');
	}
}

/* Forks, writes and frees until it is killed, as its descendants do. */
static void chaos(unsigned seed)
{
	int depth = 0;

	srandom(seed);
	fill(seed);
	tell('k');
	for (;;) {
		int i = random() % BLOCKS;

		switch (random() % 6) {
		case 0:
			if (depth < 2 && fork() == 0) {
				depth++;
				signal(SIGCHLD, SIG_IGN);
				srandom(seed = seed * 31 + depth);
				fill(seed);
			}
			break;
		case 1:
			free(block[i]);
			block[i] = malloc(block_bytes);
			break;
		case 2:
			if (depth && random() % 4 == 0)
				_exit(0);
			break;
		default:
			if (block[i])
				memset(block[i], i, block_bytes);
		}
	}
}

/* ---- The driver ---------------------------------------------------------- */

static int rounds_fd;

struct job {
	struct meter meter;
	int to, from;
	pid_t pid;
};

static void job_start(struct job *j, const char *how, unsigned seed)
{
	int down[2], up[2];

	meter_open(&j->meter);
	pipe_open(down);
	pipe_open(up);
	j->pid = forked(NULL);
	if (j->pid == 0) {
		const char *bytes = named("%zu", size), *number = named("%u", seed);
		char go;

		dup2(down[0], 10);
		dup2(up[1], 11);
		dup2(rounds_fd, 12);
		close(down[0]);
		close(down[1]);
		close(up[0]);
		close(up[1]);
		setpgid(0, 0);
		if (read(10, &go, 1) != 1)
			_exit(1);
		if (shim)
			setenv("LD_PRELOAD", shim, 1);
		execl("/proc/self/exe", "plain_memory", how, bytes, number, (char *)NULL);
		_exit(127);
	}
	setpgid(j->pid, j->pid);
	close(down[0]);
	close(up[1]);
	j->to = down[1];
	j->from = up[0];
	meter_put(&j->meter, j->pid);
	if (write(j->to, "g", 1) != 1)
		die("plain_memory: the worker died");
}

static void job_do(struct job *j, char command)
{
	if (write(j->to, &command, 1) != 1)
		die("plain_memory: the worker died");
	byte_in(j->from);
}

/* Starts a worker without blocks; returns what it is charged then. */
static double worker_start(struct job *j)
{
	job_start(j, "worker", 0);
	job_do(j, 'X');
	return meter_now(&j->meter);
}

static void parent_kill(struct job *j)
{
	kill(j->pid, SIGKILL);
	waitpid(j->pid, NULL, 0);
}

/* Waits for the charge to come near the aim. Returns the least that it was. */
static double settle(struct meter *m, double aim, double *ret_ms)
{
	double t0 = now_ns(), least = 1e18, now;

	do {
		now = meter_now(m);
		least = now < least ? now : least;
		*ret_ms = ms_since(t0);
		if (now <= aim + 8 * MIB)
			break;
		sleep_ms(20);
	} while (*ret_ms < DECAY_MS);
	return least;
}

/* Kills the processes that are left, reaps them (the driver is the subreaper) and removes
 * the cgroup. Returns the charge that stayed after the last one was dead. */
static double job_end(struct job *j)
{
	double left, ms;

	close(j->to);
	close(j->from);
	kill(-j->pid, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
	left = settle(&j->meter, 0, &ms);
	meter_close(&j->meter);
	return left;
}

static void print(const char *what, double bytes, double aim, double ms,
                  const char *by)
{
	printf("case=%s over_mib=%.2f aim_mib=%.1f settled_ms=%.0f by=%s\n", what,
	       (bytes - aim) / MIB, aim / MIB, ms, by);
	fflush(stdout);
}

static void settled(struct job *j, const char *what, double aim)
{
	double ms, left = settle(&j->meter, aim, &ms);

	print(what, left, aim, ms, meter_by(&j->meter));
}

static void freed(bool busy)
{
	struct job j;
	double aim = worker_start(&j), left, ms, t0;

	job_do(&j, 'F');
	job_do(&j, 'R');
	job_do(&j, 'F');
	job_do(&j, 'X');
	t0 = now_ns();
	left = settle(&j.meter, aim, &ms);
	while (busy && left > aim + 8 * MIB && ms < DECAY_MS) {
		job_do(&j, 'B');
		left = meter_now(&j.meter);
		ms = ms_since(t0);
	}
	print(busy ? "freed-busy" : "freed", left, aim, ms, meter_by(&j.meter));
	job_end(&j);
}

static void shadow(void)
{
	struct job j;
	double aim;

	job_start(&j, "worker", 0);
	job_do(&j, 'F');
	aim = meter_now(&j.meter);
	job_do(&j, 'W');
	settled(&j, "shadow", aim);
	job_end(&j);
}

static void orphan(void)
{
	struct job j;
	double aim = worker_start(&j);

	job_do(&j, 'F');
	job_do(&j, 'S'); /* the child answers, and takes the next letters */
	parent_kill(&j);
	job_do(&j, 'r');
	settled(&j, "orphan-rewrites", aim + size);
	job_do(&j, 'b');
	settled(&j, "orphan-works", aim + size);
	job_do(&j, 'f');
	settled(&j, "orphan-frees", aim);
	job_end(&j);
}

static void orphan_silent(void)
{
	struct job j;
	double aim;

	atomic_store(rounds_done, 0);
	aim = worker_start(&j);
	job_do(&j, 'F');
	job_do(&j, 'S');
	parent_kill(&j);
	if (write(j.to, "s", 1) != 1)
		die("plain_memory: the child died");
	while (!atomic_load(rounds_done)) {
		if (waitpid(-1, NULL, WNOHANG) > 0)
			die("plain_memory: the child died");
		sleep_ms(1);
	}
	settled(&j, "orphan-silent", aim + size);
	job_end(&j);
}

static void killed(int times)
{
	const char *by = "cgroup";
	double worst = 0;

	for (int i = 0; i < times; i++) {
		struct job j;
		double left;

		job_start(&j, "chaos", i + 1);
		byte_in(j.from);
		sleep_ms(1 + random() % 150);
		if (i % 2) { /* the parent first; its children go on for a while */
			kill(j.pid, SIGKILL);
			sleep_ms(random() % 50);
		}
		if (strcmp(meter_by(&j.meter), by))
			by = meter_by(&j.meter);
		left = job_end(&j);
		worst = left > worst ? left : worst;
	}
	print("killed", worst, 0, 0, by);
}

static void rounds_map(int fd)
{
	rounds_done = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (rounds_done == MAP_FAILED)
		die("the shared counter: %s", strerror(errno));
}

int main(int argc, char **argv)
{
	int kills = 20;

	if (argc == 4 && argv[1][0] != '-') {
		from_driver = 10;
		to_driver = 11;
		rounds_map(12);
		size = size_parse(argv[2]);
		block_bytes = size / BLOCKS;
		if (!strcmp(argv[1], "chaos"))
			chaos(atoi(argv[3]));
		worker();
	}
	size = sized(512 * MIB);
	OPTIONS({ 'p', .text = &shim }, { 'n', .count = &kills });
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	rounds_fd = memfd_create("rounds", MFD_CLOEXEC);
	if (rounds_fd < 0 || ftruncate(rounds_fd, PAGE))
		die("memfd_create: %s", strerror(errno));
	rounds_map(rounds_fd);
	warm_host(3 * size);
	freed(false);
	freed(true);
	shadow();
	orphan();
	orphan_silent();
	killed(kills);
	return 0;
}
