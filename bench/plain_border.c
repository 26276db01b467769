/* SPDX-License-Identifier: MIT */
/*
 * Programs whose children give up privileges, as those of servers do
 *
 *      plain_border -m MODE [-t TOTAL] [-b BLOCK] [-n TIMES] [-s SECONDS] [-p PERCENT] [-d] [-H]
 *
 * The head of bench/border.h says what the modes have in common.
 *
 * master  The master forks eight workers, which drop. TIMES times (3) it rewrites all, waits
 *         SECONDS, and forks a child that exits at once (a checkpoint). Then it forks one more
 *         worker, in place of the one of the time before. So at most three versions of the
 *         memory are alive. It prints the time of the rewrite, the pauses of both forks, the
 *         time until the checkpoint's child is gone, and the memory after the wait.
 * daemon  For each of TIMES (3) connections to its socket it forks a child, which drops, reads
 *         a request, reads 256 scattered pages, answers and exits. The daemon writes 64
 *         scattered pages, and waits for children that have ended. A client, which was forked
 *         before there was any memory, makes one connection after another. Printed are the
 *         client's median and 99th percentile, from connect() to the end of the connection; the
 *         median of fork(); the memory after the last connection (end) and SECONDS later.
 * free    Two workers, which dropped, free nine blocks of ten. Then the master frees nine of
 *         ten, too. All keep the same blocks; with -d each keeps others. Printed is the memory
 *         before, SECONDS after the workers freed, and SECONDS after the master freed.
 * orphan  A parent, itself a child, fills its memory, forks and exits. The child begins a
 *         session; with -d it drops. Then it rewrites PERCENT (100) of each block. Printed are
 *         the memory SECONDS later and the time of the rewrite. At the end it checks its bytes.
 */
#include "bench/border.h"

#include <sys/socket.h>
#include <sys/un.h>

enum { WORKERS = 8, FREERS = 2, PAGES_READ = 256, PAGES_WRITTEN = 64 };

static double percent = 100;
static bool differs; /* -d */

/* ---- master -------------------------------------------------------------- */

static void one_round(int n, pid_t *last)
{
	double t0 = now_ns(), rewrite, mib, pause_us, gone, worker;
	pid_t pid;

	for (size_t i = 0; i < block_count; i++)
		memset(blocks[i], n + 1, block_bytes);
	rewrite = ms_since(t0);
	mib = charge_later();
	t0 = now_ns();
	pid = forked(&pause_us); /* the checkpoint */
	if (pid == 0)
		_exit(0);
	reap(pid);
	gone = us_since(t0);
	if (*last)
		worker_end(*last);
	worker = worker_start(last, true, n + 1);
	printf("round=%d rewrite_ms=%.2f checkpoint_us=%.2f gone_us=%.2f "
	       "worker_us=%.2f memory_mib=%.2f", n, rewrite, pause_us, gone, worker, mib);
	print_drop();
}

static void run_master(void)
{
	pid_t pids[WORKERS], last = 0;

	fill();
	printf("first_us=%.2f\n", worker_start(&pids[0], true, 1));
	for (int i = 1; i < WORKERS; i++)
		worker_start(&pids[i], true, 1);
	for (int n = 1; n <= times; n++)
		one_round(n, &last);
	for (int i = 0; i < WORKERS; i++)
		worker_end(pids[i]);
	if (last)
		worker_end(last);
}

/* ---- daemon -------------------------------------------------------------- */

static struct sockaddr_un address = { .sun_family = AF_UNIX };
static socklen_t address_len;

static void request(void)
{
	int s = socket(AF_UNIX, SOCK_STREAM, 0);
	char byte = 'x';

	if (s < 0 || connect(s, (void *)&address, address_len) ||
	    write(s, "", 1) != 1 || read(s, &byte, 1) != 1 || byte != 'k')
		die("a request failed: %s", strerror(errno));
	/* The end of the connection is the end of the child. */
	if (read(s, &byte, 1) != 0)
		die("a connection did not end");
	close(s);
}

static void client_start(double *us, int go)
{
	if (forked(NULL))
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	byte_in(go);
	for (int i = 0; i < times; i++) {
		double t0 = now_ns();

		request();
		us[i] = us_since(t0);
	}
	_exit(0);
}

/* Other pages for each connection: steps of a prime number of pages. */
static char *scattered(int connection, int i, int per)
{
	return page_at(((size_t)connection * (size_t)per + (size_t)i) * 7919);
}

static void serve(int s, int n)
{
	drop();
	byte_in(s);
	for (int i = 0; i < PAGES_READ; i++)
		if (*scattered(n, i, PAGES_READ) == 0)
			_exit(121);
	_exit(write(s, "k", 1) != 1);
}

/* Waits for children that have ended, or for all. */
static void children_reap(int how)
{
	int status;

	while (waitpid(-1, &status, how) > 0)
		if (status)
			die("a child failed (status %x)", status);
}

static double one_connection(int listener, int n)
{
	int s = accept(listener, NULL, NULL);
	double us;

	if (s < 0)
		die("connection %d: %s", n, strerror(errno));
	if (forked(&us) == 0)
		serve(s, n);
	close(s);
	for (int i = 0; i < PAGES_WRITTEN; i++)
		*scattered(n, i, PAGES_WRITTEN) = (char)(1 + n % 100);
	children_reap(WNOHANG);
	return us;
}

static int listen_here(void)
{
	int s = socket(AF_UNIX, SOCK_STREAM, 0);

	/* A name without a file. */
	snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "cowshed-bench-border-%d",
	         (int)getpid());
	address_len = (socklen_t)(sizeof(sa_family_t) + 1 + strlen(address.sun_path + 1));
	if (s < 0 || bind(s, (void *)&address, address_len) || listen(s, 64))
		die("no socket: %s", strerror(errno));
	return s;
}

static void run_daemon(void)
{
	size_t n = (size_t)times;
	double *us = map_shared(n * sizeof(*us)), end, settled;
	double *forks = calloc(n, sizeof(*forks));
	int listener = listen_here(), go[2];

	if (!forks)
		die("no memory");
	pipe_open(go);
	client_start(us, go[0]);
	fill();
	byte_out(go[1]);
	for (int i = 0; i < times; i++)
		forks[i] = one_connection(listener, i);
	children_reap(0);
	end = charge_mib();
	settled = charge_later();
	printf("p50_us=%.2f p99_us=%.2f fork_us=%.2f end_mib=%.2f settled_mib=%.2f",
	       quantile(us, n, 0.5), quantile(us, n, 0.99), quantile(forks, n, 0.5), end, settled);
	print_drop();
}

/* ---- free ---------------------------------------------------------------- */

static void free_most(int who)
{
	for (size_t i = 0; i < block_count; i++)
		if (i % 10 != (size_t)(differs ? who : 0)) {
			free(blocks[i]);
			blocks[i] = NULL;
		}
}

static void run_free(void)
{
	double before, after_workers;
	int go[2], done[2];
	pid_t pids[FREERS];

	fill();
	pipe_open(go);
	pipe_open(done);
	sigterm_block();
	for (int i = 0; i < FREERS; i++)
		if ((pids[i] = forked(NULL)) == 0) {
			drop();
			byte_in(go[0]);
			free_most(i + 1);
			byte_out(done[1]);
			worker_stay(1);
		}
	before = charge_mib();
	for (int i = 0; i < FREERS; i++) {
		byte_out(go[1]);
		byte_in(done[0]);
	}
	after_workers = charge_later();
	free_most(0);
	printf("before_mib=%.2f workers_mib=%.2f all_mib=%.2f", before, after_workers,
	       charge_later());
	print_drop();
	for (int i = 0; i < FREERS; i++)
		worker_end(pids[i]);
}

/* ---- orphan -------------------------------------------------------------- */

/* Waits for the parent's end, works, tells the time, and waits until the pipe is closed. */
static void orphan(int parent, int stop, int tell)
{
	size_t part = (size_t)((double)block_bytes * percent / 100) & -PAGE;
	double t0;
	char byte;

	if (read(parent, &byte, 1) != 0 || setsid() < 0)
		_exit(1);
	if (differs)
		drop();
	t0 = now_ns();
	for (size_t i = 0; i < block_count; i++)
		memset(blocks[i], 2, part);
	t0 = ms_since(t0);
	if (write(tell, &t0, sizeof(t0)) != sizeof(t0) || read(stop, &byte, 1) != 0)
		_exit(1);
	_exit(blocks_are(1, part, 2) ? 0 : 121);
}

static void run_orphan(void)
{
	int stop[2], tell[2], alive[2];
	double rewrite;
	pid_t pid;

	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	pipe_open(stop);
	pipe_open(tell);
	pid = forked(NULL);
	if (pid == 0) {
		close(stop[1]);
		pipe_open(alive);
		fill();
		if (forked(NULL))
			_exit(0);
		close(alive[1]);
		orphan(alive[0], stop[0], tell[1]);
	}
	close(tell[1]);
	reap(pid);
	if (read(tell[0], &rewrite, sizeof(rewrite)) != sizeof(rewrite))
		die("the orphan ended early");
	printf("memory_mib=%.2f rewrite_ms=%.2f", charge_later(), rewrite);
	if (differs)
		print_drop();
	else
		putchar('\n');
	close(stop[1]);
	children_reap(0);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} modes[] = { { "master", run_master }, { "daemon", run_daemon }, { "free", run_free },
		      { "orphan", run_orphan } };
	const char *mode = "";

	(void)charge_mib(); /* notes what memory was used before */
	OPTIONS(BORDER_OPTIONS, { 'm', .text = &mode }, { 'p', .number = &percent },
	        { 'd', .flag = &differs });
	for (size_t i = 0; i < COUNT_OF(modes); i++)
		if (!strcmp(mode, modes[i].name) && times > 0) {
			modes[i].run();
			return 0;
		}
	die("no such mode, or a bad number: %s %d", mode, times);
}
