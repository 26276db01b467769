/* SPDX-License-Identifier: MIT */
/*
 * What every benchmark needs: clocks, medians, one line a measurement
 *
 * Every bench/NAME.c is a program of its own. So the code that they share is static
 * functions in this header. A program that includes cowshed.h first also gets must(),
 * which ends the program with the library's error message if a call fails, and
 * storage_filled(). The lines of a program have its file's name as their `bench`.
 *
 * The programs keep these rules of measuring, and this file serves them:
 *
 *  - Rivals run in turns in one process or one script (A B A B ...), never all
 *    of one and then all of the other. A slow moment of the machine hits both.
 *  - A *series* holds one number a round. A report prints its median, its spread
 *    (min..max), and the ratio of the medians. While warming_up is set, no number counts.
 *  - The first touch of memory that the host never gave to this guest costs several
 *    times more. warm_host() touches as much memory as will be used, once.
 *  - CPU time is the time of the process, its threads and its dead children.
 *  - Memory is what a memory cgroup was charged (bench/meter.h). VmRSS would hide
 *    the frozen pages that no process maps any more.
 *
 * A measurement is one line that machines read, then one line that people read:
 *
 *      bench=page case=1GiB-1page unit=us ours=9.1 ours_min=.. ours_max=..
 *          rival=810000 rival_min=.. rival_max=.. ratio=89011 bar=>=10000
 *          on=speedup met=yes n=7
 *
 * (on one line). `on` says what the bar judges: `ours` alone, the `worst` of ours, the
 * `ratio` ours / rival, or the `speedup` rival / ours. Without a bar, `bar` and `met` are
 * `-`. If rounds gave no figure, `failed` counts the rival's and `ours_failed` ours. A
 * line with `ours_failed` has met=failed, and so has a bar against a rival of which no
 * round is left. Programs in C and scripts in sh then exit with 1.
 * Lines of memory have by=cgroup, or say how else the memory was measured. In the second
 * case a bar has failed, since it is meant for a cgroup.
 */
#ifndef BENCH_COMMON_H
#define BENCH_COMMON_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define PAGE ((size_t)4096)
#define HUGE ((size_t)2 << 20)
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

__attribute__((noreturn, format(printf, 1, 2))) static inline void
die(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vfprintf(stderr, format, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

#ifdef COWSHED_H
/* Ends the program if a call into the library failed. */
#define must(call)                                                            \
	do {                                                                  \
		int must_rc = (call);                                         \
		if (must_rc < 0)                                              \
			die("%s:%d: %s: %s (%s)", __FILE__, __LINE__, #call,  \
			    strerror(-must_rc), cow_last_error());            \
	} while (0)
#endif

/* ---- Clocks -------------------------------------------------------------- */

static inline double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static inline double cpu_ns_of(int who)
{
	struct rusage r;

	getrusage(who, &r);
	return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1e9 +
	       (r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e3;
}

static inline double cpu_ns(void)
{
	return cpu_ns_of(RUSAGE_SELF) + cpu_ns_of(RUSAGE_CHILDREN);
}

static inline double us_since(double t0)
{
	return (now_ns() - t0) / 1e3;
}

static inline double ms_since(double t0)
{
	return (now_ns() - t0) / 1e6;
}

static inline void sleep_ms(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };

	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

/* ---- Settings ------------------------------------------------------------ */

static inline bool quick(void)
{
	const char *s = getenv("BENCH_QUICK");

	return s && *s && strcmp(s, "0");
}

/* BENCH_QUICK=1: sizes of 16 MiB and more shrink to an eighth. */
static inline size_t sized(size_t bytes)
{
	return quick() && bytes >= 16 * MIB ? bytes / 8 : bytes;
}

static inline int rounds(int full)
{
	return quick() && full > 7 ? 7 : full;
}

/* The name of a case: a text in one of eight buffers that take turns. */
__attribute__((format(printf, 1, 2))) static inline const char *named(const char *format, ...)
{
	static char name[8][96];
	static int turn;
	char *s = name[turn++ & 7];
	va_list ap;

	va_start(ap, format);
	vsnprintf(s, sizeof(name[0]), format, ap);
	va_end(ap);
	return s;
}

/* "64MiB" */
static inline const char *size_name(size_t bytes)
{
	if (bytes >= GIB && bytes % GIB == 0)
		return named("%zuGiB", bytes / GIB);
	if (bytes >= MIB && bytes % MIB == 0)
		return named("%zuMiB", bytes / MIB);
	if (bytes >= KIB && bytes % KIB == 0)
		return named("%zuKiB", bytes / KIB);
	return named("%zuB", bytes);
}

/* "4096", "64K", "1M", "4G". */
static inline size_t size_parse(const char *s)
{
	char *end;
	double v = strtod(s, &end);

	switch (*end) {
	case 'k': case 'K': v *= KIB; break;
	case 'm': case 'M': v *= MIB; break;
	case 'g': case 'G': v *= GIB; break;
	}
	if (v < 0 || end == s)
		die("not a size: %s", s);
	return v;
}

/* An option of a program: its letter, and where its value goes. */
struct setting {
	char letter;
	size_t *size;
	int *count;
	double *number;
	const char **text;
	bool *flag; /* of an option without a value */
};

#define OPTIONS(...) options_read(argc, argv, (const struct setting[]){ __VA_ARGS__, { 0 } })

/* Up to the first word that is no option; optind is its place. */
static inline void options_read(int argc, char **argv, const struct setting *all)
{
	char letters[64] = "+";
	const struct setting *s;
	int c;

	for (s = all; s->letter; s++)
		sprintf(letters + strlen(letters), "%c%s", s->letter, s->flag ? "" : ":");
	while ((c = getopt(argc, argv, letters)) != -1) {
		for (s = all; s->letter != c; s++)
			if (!s->letter)
				die("usage: see the head of bench/%s.c",
				    program_invocation_short_name);
		if (s->size)
			*s->size = size_parse(optarg);
		else if (s->count)
			*s->count = atoi(optarg);
		else if (s->number)
			*s->number = atof(optarg);
		else if (s->text)
			*s->text = optarg;
		else
			*s->flag = true;
	}
}

/* ---- Numbers that look random ---------------------------------------------- */

#define RANDOM_START 88172645463325252u

static inline uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* ---- Series -------------------------------------------------------------- */

struct series {
	double v[256];
	int n;
};

static bool warming_up;

static inline void series_add(struct series *s, double value)
{
	if (!warming_up && s->n < 256)
		s->v[s->n++] = value;
}

static inline int series_order(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The q-quantile of n numbers, which it sorts: 0 the least, 0.5 the median, 1 the greatest. */
static inline double quantile(double *v, size_t n, double q)
{
	if (!n)
		return 0;
	qsort(v, n, sizeof(*v), series_order);
	return v[(size_t)(q * (double)(n - 1) + 0.5)];
}

static inline double series_at(const struct series *s, double q)
{
	struct series t = *s;
	double at = quantile(t.v, t.n, q);

	return q == 0.5 && t.n && t.n % 2 == 0 ? (t.v[t.n / 2 - 1] + t.v[t.n / 2]) / 2 : at;
}

static inline double series_median(const struct series *s)
{
	return series_at(s, 0.5);
}

/* Wall and CPU time of the same work, in ms. */
struct times {
	struct series wall, cpu;
};

struct moment {
	double wall, cpu;
};

static inline struct moment moment_now(void)
{
	return (struct moment){ now_ns(), cpu_ns() };
}

static inline void times_add(struct times *t, struct moment from)
{
	series_add(&t->wall, ms_since(from.wall));
	series_add(&t->cpu, (cpu_ns() - from.cpu) / 1e6);
}

/* ---- Reports ------------------------------------------------------------- */

enum bar_on {
	BAR_NONE,    /* reported only; ratio = ours / rival */
	BAR_OURS,    /* ours at most bar */
	BAR_WORST,   /* ours at most bar in each round */
	BAR_RATIO,   /* ours / rival at most bar */
	BAR_SPEEDUP, /* rival / ours at least bar */
	BAR_FASTER,  /* no bar; ratio = rival / ours */
};

static inline void report_failure(void)
{
	fflush(NULL);
	_exit(1);
}

/* A line without numbers. The program goes on; when it ends, it exits with 1. */
static inline void report_failed(const char *what, const char *unit, const char *why)
{
	const char *bench = program_invocation_short_name;
	static bool known;

	printf("bench=%s case=%s unit=%s ours=- rival=- ratio=- bar=- on=- "
	       "met=failed n=0\n  %s, %s: %s\n", bench, what, unit, bench,
	       what, why);
	fflush(stdout);
	if (!known)
		atexit(report_failure);
	known = true;
}

/* The part of a line for machines that has the bar and whether it was met. */
static inline void line_bar(enum bar_on on, double bar, bool met)
{
	printf(" bar=%s%g on=%s met=%s", on == BAR_SPEEDUP ? ">=" : "<=", bar,
	       on == BAR_WORST ? "worst" : on == BAR_OURS ? "ours" :
	       on == BAR_SPEEDUP ? "speedup" : "ratio", met ? "yes" : "no");
}

/* The part of a line for people that tells the bar and whether it was met. */
static inline void report_bar(const char *unit, enum bar_on on, double bar, bool met)
{
	bool alone = on == BAR_OURS || on == BAR_WORST;

	printf("; bar %s %g%s%s: %s",
	       on == BAR_SPEEDUP ? "at least" : "at most", bar,
	       alone ? " " : " x", alone ? unit : "", met ? "met" : "NOT MET");
}

/* One measurement. `rival` may be NULL. An empty series has failed. `by` says how memory
 * was measured; it is NULL for other figures. */
static inline void report_by(const char *what, const char *unit, const struct series *ours,
                             const struct series *rival, enum bar_on on, double bar,
                             const char *by)
{
	const char *bench = program_invocation_short_name;
	bool faster = on == BAR_SPEEDUP || on == BAR_FASTER;
	double o = series_median(ours);
	double r = rival ? series_median(rival) : 0;
	double ratio = !rival ? 0 : faster ? r / (o > 0 ? o : 1e-9) :
	                                     o / (r > 0 ? r : 1e-9);
	bool alone = on == BAR_OURS || on == BAR_WORST;
	double judged = on == BAR_WORST ? series_at(ours, 1) : alone ? o : ratio;
	bool has_bar = on != BAR_NONE && on != BAR_FASTER;
	bool met = on == BAR_SPEEDUP ? judged >= bar : judged <= bar;

	if (!ours->n || (rival && !rival->n)) {
		report_failed(what, unit, ours->n ? "the rival was not measured" :
		                                    "ours was not measured");
		return;
	}
	if (has_bar && by && strcmp(by, "cgroup")) {
		printf("  %s, %s: %.4g %s by %s\n", bench, what, o, unit, by);
		report_failed(what, unit, "memory was not measured by a cgroup");
		return;
	}
	printf("bench=%s case=%s unit=%s ours=%.6g ours_min=%.6g ours_max=%.6g", bench, what,
	       unit, o, series_at(ours, 0), series_at(ours, 1));
	if (rival)
		printf(" rival=%.6g rival_min=%.6g rival_max=%.6g ratio=%.4g",
		       r, series_at(rival, 0), series_at(rival, 1), ratio);
	else
		printf(" rival=- ratio=-");
	if (has_bar)
		line_bar(on, bar, met);
	else
		printf(" bar=- on=%s met=-", faster ? "speedup" : "ratio");
	printf(" n=%d%s%s\n", ours->n, by ? " by=" : "", by ? by : "");

	printf("  %s, %s: %.4g %s (%.4g..%.4g)", bench, what, o, unit, series_at(ours, 0),
	       series_at(ours, 1));
	if (rival)
		printf("; rival %.4g (%.4g..%.4g): %.4g x%s", r, series_at(rival, 0),
		       series_at(rival, 1), ratio, faster ? " faster" : "");
	if (has_bar)
		report_bar(unit, on, bar, met);
	putchar('\n');
	fflush(stdout);
}

static inline void report(const char *what, const char *unit, const struct series *ours,
                          const struct series *rival, enum bar_on on, double bar)
{
	report_by(what, unit, ours, rival, on, bar, NULL);
}

/* Without a bar: ours / rival. */
static inline void report_ratio(const char *what, const char *unit, const struct series *ours,
                                const struct series *rival)
{
	report(what, unit, ours, rival, BAR_NONE, 0);
}

/* Without a bar: rival / ours. */
static inline void report_faster(const char *what, const char *unit, const struct series *ours,
                                 const struct series *rival)
{
	report(what, unit, ours, rival, BAR_FASTER, 0);
}

/* A single number, without rounds. */
static inline void report_one(const char *what, const char *unit, double ours, enum bar_on on,
                              double bar)
{
	struct series s = { { ours }, 1 };

	report(what, unit, &s, NULL, on, bar);
}

/* ---- Other processes ----------------------------------------------------- */

/* Forks. The pause of the parent in microseconds goes to *us, unless that is NULL. */
static inline pid_t forked(double *us)
{
	double t0 = now_ns();
	pid_t pid = fork();

	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (pid && us)
		*us = us_since(t0);
	return pid;
}

static inline void pipe_open(int fd[2])
{
	if (pipe(fd))
		die("pipe: %s", strerror(errno));
}

/* Memory that this process will share with its children. */
static inline void *map_shared(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		die("no shared memory: %s", strerror(errno));
	return p;
}

/* Waits for a child, which must have ended well. */
static inline void reap(pid_t pid)
{
	int status;

	if (waitpid(pid, &status, 0) != pid || status)
		die("a child saw wrong bytes, or crashed (status %#x)", status);
}

static inline void byte_out(int fd)
{
	if (write(fd, "", 1) != 1)
		die("write: %s", strerror(errno));
}

static inline void byte_in(int fd)
{
	char c;

	if (read(fd, &c, 1) != 1)
		die("the other process is gone");
}

#include "bench/memory.h"

#endif
