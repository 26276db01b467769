/* SPDX-License-Identifier: MIT */
/*
 * The call that gives up privileges
 *
 *      plain_border_call -m child|alone|toggle [-b BLOCK] [-t TOTAL] [-n TIMES] [-c] [-H]
 *
 * child   the program fills its memory and forks TIMES children, one after another. Each calls
 *         setgroups(), setgid() and setuid(). It prints the medians of the first of the three
 *         calls, of all three, and of one more setgid() to the same group (again_ns), and the
 *         most by which memory grew.
 * alone   the same in TIMES processes of their own, which have no relative. Each prints a line.
 * toggle  setfsuid() and seteuid() to another user and back, TIMES times: nanoseconds for each
 *         call. With -c a child lives meanwhile.
 *
 * It needs root, since others can't change their user.
 */
#include "bench/border.h"

#include <sys/fsuid.h>

static bool beside_child; /* -c */

enum { FIRST_US, ALL_US, AGAIN_NS, GROWTH_MIB, FIGURES };

#define LINE "first_us=%.3f all_us=%.3f again_ns=%.2f growth_mib=%.3f\n"

/* Drops, call by call. The figures are shared with the parent. */
static void make_calls(double *figures)
{
	struct series again = { { 0 }, 0 };
	double before = charge_mib(), t0 = now_ns();

	if (setgroups(0, NULL))
		_exit(120);
	figures[FIRST_US] = us_since(t0);
	if (setgid(NOBODY) || setuid(NOBODY))
		_exit(120);
	figures[ALL_US] = us_since(t0);
	for (int piece = 0; piece < 20; piece++) {
		double t1 = now_ns();

		for (int i = 0; i < 50; i++)
			if (setgid(NOBODY))
				_exit(120);
		series_add(&again, (now_ns() - t1) / 50);
	}
	figures[AGAIN_NS] = series_median(&again);
	figures[GROWTH_MIB] = charge_mib() - before;
	if (!blocks_are(1, 0, 0))
		_exit(121);
}

static void children(void)
{
	double *of = map_shared(FIGURES * sizeof(*of));
	struct series all[FIGURES] = { 0 };

	fill();
	for (int i = 0; i < times; i++) {
		pid_t pid = forked(NULL);

		if (pid == 0) {
			make_calls(of);
			_exit(0);
		}
		reap(pid);
		for (int k = 0; k < FIGURES; k++)
			series_add(&all[k], of[k]);
	}
	printf(LINE, series_median(&all[FIRST_US]), series_median(&all[ALL_US]),
	       series_median(&all[AGAIN_NS]), series_at(&all[GROWTH_MIB], 1));
}

/* Without relatives. With more times than one, each in a new program, so that not even a fork
 * was before. */
static void alone(int argc, char **argv)
{
	double of[FIGURES];
	char *again[32];

	if (times == 1) {
		fill();
		make_calls(of);
		printf(LINE, of[FIRST_US], of[ALL_US], of[AGAIN_NS], of[GROWTH_MIB]);
		return;
	}
	if (argc + 3 > (int)COUNT_OF(again))
		die("too many options");
	memcpy(again, argv, (size_t)argc * sizeof(*argv));
	again[argc] = (char *)"-n";
	again[argc + 1] = (char *)"1";
	again[argc + 2] = NULL;
	for (int i = 0; i < times; i++) {
		pid_t pid = vfork();

		if (pid == 0) {
			execv("/proc/self/exe", again);
			_exit(127);
		}
		reap(pid);
	}
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

	fill();
	if (beside_child)
		worker_start(&child, false, 1);
	fsuid(); /* the first call makes the border */
	printf("fsuid_ns=%.2f ", toggled_ns(fsuid));
	printf("euid_ns=%.2f\n", toggled_ns(euid));
	if (child)
		worker_end(child);
}

int main(int argc, char **argv)
{
	const char *mode = "";

	(void)charge_mib();
	OPTIONS(BORDER_OPTIONS, { 'm', .text = &mode }, { 'c', .flag = &beside_child });
	if (!may_drop() || times < 1)
		die("plain_border_call: a bad number, or not root, who alone can change its user");
	if (!strcmp(mode, "toggle"))
		toggle();
	else if (!strcmp(mode, "alone"))
		alone(argc, argv);
	else
		children();
	return 0;
}
