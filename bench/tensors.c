/* SPDX-License-Identifier: MIT */
/*
 * Copies between tensors: one turn over the patterns of bench/tensors.txt
 *
 *      tensors THREADS <bench/tensors.txt
 *      tensors copy|memcpy TIMES <PATTERNS     for arm.sh, which counts instructions
 *
 * Prints a line for each pattern: its name, the nanoseconds of a cow_tensor_copy(), the
 * nanoseconds of memcpy() of the same bytes by as many threads, and the bytes read and
 * written. Each time is the median of five. bench/tensors.sh runs this program in turns
 * with bench/tensors.py, which knows the same patterns. All copies are between the same
 * two storages, which were touched before. The tensors are made before, too, as those
 * of NumPy and PyTorch are. In the second form it copies so many times, and prints nothing.
 */
#include <cowshed-tensor.h>

#include "bench/common.h"
#include "core/memory/workers.h"

struct pattern {
	char name[64];
	struct cow_tensor *from, *to;
	int64_t bytes; /* read and written */
};

static struct cow_storage *source, *target;
static char *from, *to;
static size_t most = 192 * MIB;

static enum cow_dtype type_of(const char *name)
{
	for (int t = 0; t < COW_QUINT8; t++)
		if (!strcmp(cow_dtype_name(t), name))
			return t;
	die("there is no type %s", name);
}

static int list(char *s, int64_t *ret)
{
	int n = 0;

	for (char *save, *p = strtok_r(s, ",", &save); p;
	     p = strtok_r(NULL, ",", &save))
		ret[n++] = strtoll(p, NULL, 10);
	return n;
}

static struct cow_tensor *with_bits(struct cow_tensor *t, const char *bits)
{
	struct cow_tensor *other = t;

	if (!strcmp(bits, "conj"))
		must(cow_tensor_conj(t, &other));
	else if (!strcmp(bits, "neg"))
		must(cow_tensor_neg(t, &other));
	if (other != t)
		cow_tensor_unref(t);
	return other;
}

static bool read_pattern(struct pattern *p)
{
	int64_t size[COW_DIMS_MAX], step[COW_DIMS_MAX], to_step[COW_DIMS_MAX];
	char f[32], t[32], sizes[200], fs[200], ts[200], bits[32];
	int dims;

	if (scanf("%63s %31s %31s %199s %199s %199s %31s", p->name, f, t, sizes,
	          fs, ts, bits) != 7)
		return false;
	dims = list(sizes, size);
	list(fs, step);
	list(ts, to_step);
	/* "offset": one element further than the destination. */
	must(cow_tensor_on(source, type_of(f), dims, size, step,
	                   !strcmp(bits, "offset"), &p->from));
	p->from = with_bits(p->from, bits);
	must(cow_tensor_on(target, type_of(t), dims, size, to_step, 0, &p->to));
	p->bytes = cow_dtype_bytes(type_of(f)) + cow_dtype_bytes(type_of(t));
	for (int d = 0; d < dims; d++)
		p->bytes *= size[d];
	return true;
}

static void memcpy_part(void *arg, int64_t first, int64_t last)
{
	(void)arg;
	memcpy(to + first, from + first, last - first);
}

static void by_memcpy(const struct pattern *p)
{
	int64_t n = p->bytes / 2, threads = cow__workers();

	if (threads == 1 || n < (int64_t)MIB)
		memcpy(to, from, n);
	else
		cow__workers_run(n, n / threads, memcpy_part, NULL);
}

/* With one thread, its processor time, since other programs may use the processor. With
 * several, wall time. */
static double clock_ns(void)
{
	struct timespec t;

	clock_gettime(cow__workers() == 1 ? CLOCK_THREAD_CPUTIME_ID :
	                                    CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static double time_of(const struct pattern *p, bool ours, int times)
{
	double start = clock_ns();

	for (int i = 0; i < times; i++) {
		if (ours)
			must(cow_tensor_copy(p->to, p->from, 0));
		else
			by_memcpy(p);
		use(to);
	}
	return (clock_ns() - start) / times;
}

static void measure(const struct pattern *p)
{
	struct series ours = { .n = 0 }, rival = { .n = 0 };
	int times = p->bytes < (int64_t)(4 * KIB) ? 40000 : p->bytes < (int64_t)MIB ? 2000 : 1;

	time_of(p, true, 1);
	for (int i = 0; i < 5; i++) {
		series_add(&ours, time_of(p, true, times));
		series_add(&rival, time_of(p, false, times));
	}
	printf("%s %.6g %.6g %lld\n", p->name, series_median(&ours), series_median(&rival),
	       (long long)p->bytes);
}

int main(int argc, char **argv)
{
	bool counted = argc == 3;
	struct pattern p;
	void *at[2];

	if (argc != 2 && !counted)
		die("usage: see the head of bench/tensors.c");
	if (counted)
		most = MIB;
	cow_threads_set(counted ? 1 : atoi(argv[1]));
	source = storage_filled(most, 0, 0, &at[0]); /* a value that every type can hold */
	target = storage_filled(most, 0, 0, &at[1]);
	from = at[0];
	to = at[1];
	while (read_pattern(&p)) {
		if (counted)
			time_of(&p, !strcmp(argv[1], "copy"), atoi(argv[2]));
		else
			measure(&p);
		cow_tensor_unref(p.from);
		cow_tensor_unref(p.to);
	}
	return 0;
}
