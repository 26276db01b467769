/* SPDX-License-Identifier: MIT */
/*
 * Filling fresh memory, and the memory of a storage that stays sparse
 *
 * A round makes 1 GiB of fresh memory, memsets it, and gives it back. Filling and giving
 * back are timed apart. Rivals: malloc (4 KiB pages), and malloc with MADV_HUGEPAGE. Ours:
 * a tracked storage without a hint, one with COW_WRITE_ALL, and a transparent one, whose
 * writes the library does not see; cow_trim() runs before each. A fourth one gets recycled
 * memory. Bars for the first three: at most 0.2 and 0.8 times the rivals' times.
 *
 * The engine has seen then that this program fills such blocks. "first" is the transparent
 * one as the first fill of a process, which it can't know; each round is a process.
 *
 * If the machine is a guest, its free memory goes back to the host within seconds. The
 * next touch of that memory costs several times as much. So each side touches and
 * frees as much memory as it will need right before its round.
 *
 * A library could be fast by committing memory in advance. So the other half measures
 * a sparse storage of 16 GiB in which one byte of each GiB is touched. A second later
 * it may be charged at most twice what was touched, and 16 MiB: 16 huge pages twice,
 * and 16 MiB.
 */
#include <cowshed.h>
#include <sys/wait.h>

#include "bench/meter.h"

enum how { NO_HINT, WRITE_ALL, TRANSPARENT, RECYCLED, HOWS };

static const char *const how_name[HOWS] = { "no-hint", "write-all",
	                                    "transparent", "recycled" };
static size_t size;

struct times {
	struct series fill, cpu, give_back;
};

static struct cow_storage *make(size_t bytes, enum how how, char **ret)
{
	struct cow_storage_options o = {
		.size = sizeof(o),
		.flags = how == TRANSPARENT ? COW_STORAGE_TRANSPARENT : 0,
	};
	struct cow_storage *s;

	must(cow_storage_new(bytes, &o, &s));
	if (how == TRANSPARENT)
		must(cow_storage_expose(s, (void **)ret));
	else if (how == WRITE_ALL)
		must(cow_storage_data_mut_range(s, 0, bytes, COW_WRITE_ALL,
		                                (void **)ret));
	else
		must(cow_storage_data_mut(s, (void **)ret));
	return s;
}

static void add(struct times *t, double t0, double c0, double t1, double c1,
                double t2)
{
	series_add(&t->fill, (t1 - t0) / 1e6);
	series_add(&t->cpu, (c1 - c0) / 1e6);
	series_add(&t->give_back, (t2 - t1) / 1e6);
}

/* Gives each side as much free memory that the host backs. */
static void level(void)
{
	cow_trim();
	warm_host(size + size / 2);
}

static void ours(enum how how, struct times *t)
{
	double t0, t1, t2, c0, c1;
	struct cow_storage *s;
	char *p;

	level();
	if (how == RECYCLED)
		cow_storage_unref(make(size, WRITE_ALL, &p));
	t0 = now_ns();
	c0 = cpu_ns();
	s = make(size, how, &p);
	memset(p, 1, size);
	use(p);
	t1 = now_ns();
	c1 = cpu_ns();
	cow_storage_unref(s);
	if (how != RECYCLED)
		cow_trim();
	t2 = now_ns();
	add(t, t0, c0, t1, c1, t2);
}

static void rival(bool huge, struct times *t)
{
	double t0, c0, t1, t2, c1;
	char *p;

	level();
	t0 = now_ns();
	c0 = cpu_ns();
	p = malloc(size);
	if (!p)
		die("malloc");
	if (huge) {
		char *start = (char *)(((uintptr_t)p + PAGE - 1) & -PAGE);

		madvise(start, (p + size - start) & -PAGE, MADV_HUGEPAGE);
	}
	memset(p, 1, size);
	use(p);
	t1 = now_ns();
	c1 = cpu_ns();
	free(p);
	t2 = now_ns();
	add(t, t0, c0, t1, c1, t2);
}

/* Runs one round of a side in a process of its own. */
static void first(bool mine, bool huge, struct times *all)
{
	struct times t = { .fill.n = 0 };
	double v[3] = { 0 };
	int fd[2], status;
	pid_t child;

	if (pipe(fd) < 0 || (child = fork()) < 0)
		die("a process for the first fill");
	if (!child) {
		if (mine)
			ours(TRANSPARENT, &t);
		else
			rival(huge, &t);
		v[0] = t.fill.v[0];
		v[1] = t.cpu.v[0];
		v[2] = t.give_back.v[0];
		_exit(write(fd[1], v, sizeof(v)) != sizeof(v));
	}
	if (read(fd[0], v, sizeof(v)) != sizeof(v) || waitpid(child, &status, 0) != child ||
	    status)
		die("a first fill");
	close(fd[0]);
	close(fd[1]);
	series_add(&all->fill, v[0]);
	series_add(&all->cpu, v[1]);
	series_add(&all->give_back, v[2]);
}

static void first_fills(void)
{
	static struct times mine, small, huge;

	for (int i = 0; i < rounds(9); i++) {
		first(false, false, &small);
		first(true, false, &mine);
		first(false, true, &huge);
	}
	report("fill", "first/4KiB-pages", "ms", &mine.fill, &small.fill, BAR_NONE, 0);
	report("fill", "first/huge-pages", "ms", &mine.fill, &huge.fill, BAR_NONE, 0);
	report("fill", "first/huge-pages/cpu", "ms", &mine.cpu, &huge.cpu, BAR_NONE, 0);
	report("fill", "first/give-back", "ms", &mine.give_back, &huge.give_back, BAR_NONE, 0);
}

static void sparse(enum how how)
{
	size_t bytes = 16 * GIB;
	double before, after, bar = 2 * 16 * 2 + 16;
	struct series charged = { .n = 0 };
	struct cow_storage *s;
	struct meter m;
	char what[64];
	char *p;

	cow_trim();
	meter_open(&m);
	meter_put(&m, getpid());
	before = meter_now(&m);
	s = make(bytes, how, &p);
	for (size_t i = 0; i < bytes; i += GIB)
		p[i] = 1;
	sleep_ms(1000);
	after = meter_now(&m);
	snprintf(what, sizeof(what), "sparse-16GiB-16-touches/%s",
	         how_name[how]);
	series_add(&charged, (after - before) / MIB);
	report_by("fill", what, "MiB", &charged, NULL, BAR_OURS, bar,
	          meter_by(&m));
	cow_storage_unref(s);
	cow_trim();
	meter_close(&m);
}

int main(void)
{
	static struct times mine[HOWS], small, huge;
	char what[80];

	size = sized(GIB);
	warm_host(4 * size);
	first_fills(); /* before this process uses the engine */
	for (int i = 0; i < rounds(9) + 1; i++) {
		rival(false, &small);
		ours(NO_HINT, &mine[NO_HINT]);
		ours(WRITE_ALL, &mine[WRITE_ALL]);
		rival(true, &huge);
		ours(TRANSPARENT, &mine[TRANSPARENT]);
		ours(RECYCLED, &mine[RECYCLED]);
		if (!i) {
			memset(mine, 0, sizeof(mine));
			memset(&small, 0, sizeof(small));
			memset(&huge, 0, sizeof(huge));
		}
	}
	for (int h = 0; h < HOWS; h++) {
		enum bar_on on = h == RECYCLED ? BAR_NONE : BAR_RATIO;
		struct times *t = &mine[h];

		snprintf(what, sizeof(what), "%s/4KiB-pages", how_name[h]);
		report("fill", what, "ms", &t->fill, &small.fill, on, 0.2);
		snprintf(what, sizeof(what), "%s/huge-pages", how_name[h]);
		report("fill", what, "ms", &t->fill, &huge.fill, on, 0.8);
		snprintf(what, sizeof(what), "%s/huge-pages/cpu", how_name[h]);
		report("fill", what, "ms", &t->cpu, &huge.cpu, BAR_NONE, 0);
		snprintf(what, sizeof(what), "%s/give-back", how_name[h]);
		report("fill", what, "ms", &t->give_back, &huge.give_back,
		       BAR_NONE, 0);
	}
	for (int h = 0; h < RECYCLED; h++)
		if (h != WRITE_ALL)
			sparse(h);
	return 0;
}
