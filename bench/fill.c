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

#include "bench/meter.h"

enum how { NO_HINT, WRITE_ALL, TRANSPARENT, RECYCLED, HOWS };

static const char *const how_name[HOWS] = { "no-hint", "write-all", "transparent", "recycled" };
static size_t size;

/* One round, in ms. */
struct round {
	double fill, cpu, give_back;
};

struct sides {
	struct series fill, cpu, give_back;
};

static void add(struct sides *to, struct round r)
{
	series_add(&to->fill, r.fill);
	series_add(&to->cpu, r.cpu);
	series_add(&to->give_back, r.give_back);
}

static struct cow_storage *make(size_t bytes, enum how how, void **ret)
{
	struct cow_storage_options o = {
		.size = sizeof(o),
		.flags = how == TRANSPARENT ? COW_STORAGE_TRANSPARENT : 0,
	};
	struct cow_storage *s;

	must(cow_storage_new(bytes, &o, &s));
	if (how == TRANSPARENT)
		must(cow_storage_expose(s, ret));
	else if (how == WRITE_ALL)
		must(cow_storage_data_mut_range(s, 0, bytes, COW_WRITE_ALL, ret));
	else
		must(cow_storage_data_mut(s, ret));
	return s;
}

/* Gives each side as much free memory that the host backs. */
static void level(void)
{
	cow_trim();
	warm_host(size + size / 2);
}

/* Fills the memory that was made since `begin`. */
static struct round filled(char *p, struct moment begin)
{
	struct moment end;

	memset(p, 1, size);
	use(p);
	end = moment_now();
	return (struct round){ (end.wall - begin.wall) / 1e6, (end.cpu - begin.cpu) / 1e6, 0 };
}

static struct round ours(enum how how)
{
	struct moment begin;
	struct cow_storage *s;
	struct round r;
	double t0;
	void *p;

	level();
	if (how == RECYCLED)
		cow_storage_unref(make(size, WRITE_ALL, &p));
	begin = moment_now();
	s = make(size, how, &p);
	r = filled(p, begin);
	t0 = now_ns();
	cow_storage_unref(s);
	if (how != RECYCLED)
		cow_trim();
	r.give_back = ms_since(t0);
	return r;
}

static struct round rival(bool huge)
{
	struct moment begin;
	struct round r;
	double t0;
	char *p;

	level();
	begin = moment_now();
	p = block_of(size, huge, -1);
	r = filled(p, begin);
	t0 = now_ns();
	free(p);
	r.give_back = ms_since(t0);
	return r;
}

/* Runs one round of a side in a process of its own. */
static void first(bool mine, bool huge, struct sides *to)
{
	struct round r;
	int fd[2];
	pid_t child;

	pipe_open(fd);
	child = forked(NULL);
	if (!child) {
		r = mine ? ours(TRANSPARENT) : rival(huge);
		_exit(write(fd[1], &r, sizeof(r)) != sizeof(r));
	}
	if (read(fd[0], &r, sizeof(r)) != sizeof(r))
		die("a first fill");
	reap(child);
	close(fd[0]);
	close(fd[1]);
	add(to, r);
}

static void first_fills(void)
{
	static struct sides mine, small, huge;

	for (int i = 0; i < rounds(9); i++) {
		first(false, false, &small);
		first(true, false, &mine);
		first(false, true, &huge);
	}
	report_ratio("first/4KiB-pages", "ms", &mine.fill, &small.fill);
	report_ratio("first/huge-pages", "ms", &mine.fill, &huge.fill);
	report_ratio("first/huge-pages/cpu", "ms", &mine.cpu, &huge.cpu);
	report_ratio("first/give-back", "ms", &mine.give_back, &huge.give_back);
}

static void sparse(enum how how)
{
	size_t bytes = 16 * GIB;
	double before, bar = 2 * 16 * 2 + 16;
	struct series charged = { .n = 0 };
	struct cow_storage *s;
	struct meter m;
	void *p;

	cow_trim();
	meter_open(&m);
	meter_put(&m, getpid());
	before = meter_now(&m);
	s = make(bytes, how, &p);
	for (size_t i = 0; i < bytes; i += GIB)
		((char *)p)[i] = 1;
	sleep_ms(1000);
	series_add(&charged, (meter_now(&m) - before) / MIB);
	report_by(named("sparse-16GiB-16-touches/%s", how_name[how]), "MiB", &charged, NULL,
	          BAR_OURS, bar, meter_by(&m));
	cow_storage_unref(s);
	cow_trim();
	meter_close(&m);
}

int main(void)
{
	static struct sides mine[HOWS], small, huge;

	size = sized(GIB);
	warm_host(4 * size);
	first_fills(); /* before this process uses the engine */
	for (int i = 0; i < rounds(9) + 1; i++) {
		warming_up = !i;
		add(&small, rival(false));
		add(&mine[NO_HINT], ours(NO_HINT));
		add(&mine[WRITE_ALL], ours(WRITE_ALL));
		add(&huge, rival(true));
		add(&mine[TRANSPARENT], ours(TRANSPARENT));
		add(&mine[RECYCLED], ours(RECYCLED));
	}
	for (int h = 0; h < HOWS; h++) {
		enum bar_on on = h == RECYCLED ? BAR_NONE : BAR_RATIO;
		const struct sides *t = &mine[h];
		const char *how = how_name[h];

		report(named("%s/4KiB-pages", how), "ms", &t->fill, &small.fill, on, 0.2);
		report(named("%s/huge-pages", how), "ms", &t->fill, &huge.fill, on, 0.8);
		report_ratio(named("%s/huge-pages/cpu", how), "ms", &t->cpu, &huge.cpu);
		report_ratio(named("%s/give-back", how), "ms", &t->give_back, &huge.give_back);
	}
	sparse(NO_HINT);
	sparse(TRANSPARENT);
	return 0;
}
