/* SPDX-License-Identifier: MIT */
/*
 * Copies between tensors: one turn over the patterns of bench/tensors.txt
 *
 *      tensors THREADS [NAME...] <bench/tensors.txt
 *
 * A line for each: its name, the nanoseconds of a copy (the median of some), those of
 * memcpy() of the same bytes by as many threads, and the bytes read and written.
 * bench/tensors.sh runs this in turns with others that know the same patterns. Memory
 * is touched before, in huge pages.
 */
#include "bench/common.h"
#include "tensor/strided.h"
#include "tensor/workers.h"

struct pattern {
	char name[64];
	struct cow__strided job;
	int64_t bytes; /* read and written */
};

static char *from, *to;
static size_t most = 192 * MIB;

static enum cow_dtype type_of(const char *name)
{
	for (int t = 0; t < COW_QUINT8; t++)
		if (!strcmp(cow_dtype_name(t), name))
			return t;
	die("no such type: %s", name);
}

static int list(char *s, int64_t *ret, int64_t scale)
{
	int n = 0;

	for (char *save, *p = strtok_r(s, ",", &save); p;
	     p = strtok_r(NULL, ",", &save))
		ret[n++] = strtoll(p, NULL, 10) * scale;
	return n;
}

static bool read_pattern(struct pattern *p)
{
	char f[32], t[32], sizes[200], fs[200], ts[200], bits[32];
	struct cow__strided *j = &p->job;

	memset(p, 0, sizeof(*p));
	if (scanf("%63s %31s %31s %199s %199s %199s %31s", p->name, f, t, sizes,
	          fs, ts, bits) != 7)
		return false;
	j->from.dtype = type_of(f);
	j->to.dtype = type_of(t);
	j->dims = list(sizes, j->sizes, 1);
	list(fs, j->from.strides, cow_dtype_bytes(j->from.dtype));
	list(ts, j->to.strides, cow_dtype_bytes(j->to.dtype));
	j->conj = !strcmp(bits, "conj");
	j->neg = !strcmp(bits, "neg");
	/* One element further than the destination. */
	j->from.data = from + (strcmp(bits, "offset") ? 0 :
	                       cow_dtype_bytes(j->from.dtype));
	j->to.data = to;
	p->bytes = cow_dtype_bytes(j->from.dtype) + cow_dtype_bytes(j->to.dtype);
	for (int d = 0; d < j->dims; d++)
		p->bytes *= j->sizes[d];
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

/* Of one thread the time that it ran: others may want the processor. */
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
			cow__strided_copy(&p->job);
		else
			by_memcpy(p);
		use(to);
	}
	return (clock_ns() - start) / times;
}

int main(int argc, char **argv)
{
	struct pattern p;

	if (argc < 2)
		die("tensors THREADS [NAME...] <PATTERNS");
	cow_threads_set(atoi(argv[1]));
	from = map_anonymous(most, true);
	to = map_anonymous(most, true);
	/* Values that every type can hold. */
	memset(from, 0, most);
	memset(to, 0, most);
	while (read_pattern(&p)) {
		struct series ours = { .n = 0 }, rival = { .n = 0 };
		int times = p.bytes < (int64_t)(4 * KIB) ? 40000 :
		            p.bytes < (int64_t)MIB ? 2000 : 1;
		bool wanted = argc == 2;

		for (int i = 2; i < argc; i++)
			wanted |= !strcmp(argv[i], p.name);
		if (!wanted)
			continue;
		time_of(&p, true, 1);
		for (int i = 0; i < 5; i++) {
			series_add(&ours, time_of(&p, true, times));
			series_add(&rival, time_of(&p, false, times));
		}
		printf("%s %.6g %.6g %lld\n", p.name, series_median(&ours),
		       series_median(&rival), (long long)p.bytes);
	}
	return 0;
}
