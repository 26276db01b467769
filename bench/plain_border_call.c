/* SPDX-License-Identifier: MIT */
/*
 * The call that gives up privileges
 *
 *      plain_border_call -m child|alone|toggle [-b BLOCK] [-t TOTAL] [-n TIMES] [-c] [-H]
 *
 * child   the program fills TOTAL bytes and forks TIMES children, one after another. Each
 *         makes setgroups(), setgid() and setuid(). The medians of the first of the three
 *         calls and of all three are printed, and the most by which memory grew.
 * alone   the same in TIMES processes of their own, which fill TOTAL bytes themselves and
 *         have no relative. again_ns is one more setgid() to the same group.
 * toggle  setfsuid() and seteuid() to another user and back, TIMES times, in a process that
 *         has TOTAL bytes: nanoseconds for each call. With -c a child lives meanwhile.
 *
 * It needs root, since others can't change their user.
 */
#include "bench/border.h"

#include <sys/fsuid.h>

static int times = 20;

struct calls {
	double first_us, all_us, again_ns, growth_mib;
};
static struct calls *calls; /* shared with the processes that make them */

static void make_calls(struct calls *c)
{
	struct series again = { { 0 }, 0 };
	double before = charge_mib(), t0 = now_ns();

	if (setgroups(0, NULL))
		_exit(120);
	c->first_us = us_since(t0);
	if (setgid(NOBODY) || setuid(NOBODY))
		_exit(120);
	c->all_us = us_since(t0);
	for (int piece = 0; piece < 20; piece++) {
		double t1 = now_ns();

		for (int i = 0; i < 50; i++)
			if (setgid(NOBODY))
				_exit(120);
		series_add(&again, (now_ns() - t1) / 50);
	}
	c->again_ns = series_median(&again);
	c->growth_mib = charge_mib() - before;
	_exit(blocks_are(1) ? 0 : 121);
}

static void children(void)
{
	blocks_fill(1);
	for (int i = 0; i < times; i++) {
		pid_t pid = fork();

		if (pid == 0)
			make_calls(&calls[i]);
		if (pid < 0)
			die("fork: %s", strerror(errno));
		reap(pid);
	}
}

/* A new program, which finds its figures by `number`. */
static pid_t another(const char *number)
{
	const char *block = named("%zu", block_bytes), *bytes = named("%zu", total);
	pid_t pid = vfork();

	if (pid == 0) {
		execl("/proc/self/exe", "plain_border_call", "-m", "one", "-b", block, "-t", bytes,
		      "-n", number, huge ? "-H" : (char *)NULL, (char *)NULL);
		_exit(127);
	}
	return pid;
}

/* A new program for each, so that not even a fork was before. */
static void alone(int fd)
{
	for (int i = 0; i < times; i++)
		reap(another(named("%d", fd * 1000 + i)));
}

static void calls_print(void)
{
	struct series first = { { 0 }, 0 }, all = first, again = first, growth = first;

	for (int i = 0; i < times; i++) {
		series_add(&first, calls[i].first_us);
		series_add(&all, calls[i].all_us);
		series_add(&again, calls[i].again_ns);
		series_add(&growth, calls[i].growth_mib);
	}
	printf("first_us=%.3f all_us=%.3f again_ns=%.2f growth_mib=%.3f\n",
	       series_median(&first), series_median(&all), series_median(&again),
	       series_at(&growth, 1));
}

static void fsuid(void)
{
	setfsuid(NOBODY);
	setfsuid(0);
}

static void euid(void)
{
	if (seteuid(NOBODY) || seteuid(0))
		die("seteuid: %s", strerror(errno));
}

/* The time of one of two calls is the median of pieces of the loop: others use the machine, too. */
static double toggled_ns(void (*both)(void))
{
	enum { PIECES = 50 };
	struct series pieces = { { 0 }, 0 };
	int n = times / PIECES + 1;

	for (int piece = 0; piece < PIECES; piece++) {
		double t0 = now_ns();

		for (int i = 0; i < n; i++)
			both();
		series_add(&pieces, (now_ns() - t0) / n / 2);
	}
	return series_median(&pieces);
}

static void toggle(void)
{
	pid_t child = 0;
	double first;

	blocks_fill(1);
	if (given['c'])
		worker_start(&child, false, 1);
	first = now_ns();
	fsuid();
	first = us_since(first);
	printf("first_us=%.3f ", first);
	printf("fsuid_ns=%.2f ", toggled_ns(fsuid));
	printf("euid_ns=%.2f\n", toggled_ns(euid));
	if (child)
		worker_end(child);
}

/* The file of the figures is inherited over exec. */
static void calls_map(int fd)
{
	calls = mmap(NULL, 256 * sizeof(*calls), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (calls == MAP_FAILED)
		die("no shared memory");
}

int main(int argc, char **argv)
{
	int fd;

	options(argc, argv, &times);
	if (!may_drop())
		die("plain_border_call: only root can change its user");
	if (!strcmp(mode, "toggle")) {
		toggle();
		return 0;
	}
	if (!strcmp(mode, "one")) {
		calls_map(times / 1000);
		blocks_fill(1);
		make_calls(&calls[times % 1000]);
	}
	fd = memfd_create("figures", 0);
	if (times < 1 || times > 256 || fd < 0 || ftruncate(fd, 256 * sizeof(*calls)))
		die("bad number, or no memfd");
	calls_map(fd);
	if (!strcmp(mode, "alone"))
		alone(fd);
	else
		children();
	calls_print();
	return 0;
}
