/* SPDX-License-Identifier: MIT */
/*
 * `cowshed profile` without memory for a look
 *
 * The process that looks wants memory for the list of processes, for what it knows of each,
 * and for the memfds that it has seen. Each of these requests fails in turn. A look that is
 * recorded is a whole one: it has the memory of the memfd, and each fork once.
 */
#include "cli/profile.h"
#include "tests/support/support.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 8 << 20, FORKS = 3, LOOKS = 3, REQUESTS = 12 };

void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);

/* Which request fails; 0: none. Each process counts its own. */
static int fails_at;

static bool refused(void)
{
	return fails_at > 0 && --fails_at == 0;
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return refused() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *p, size_t bytes)
{
	return refused() ? NULL : __real_realloc(p, bytes);
}

/* Of files of the command that do much else. */
int cli_read_line(const char *path, char *ret, size_t bytes)
{
	FILE *f = fopen(path, "re");
	char *line = f ? fgets(ret, (int)bytes, f) : NULL;

	if (f)
		fclose(f);
	return line ? 0 : -1;
}

uint64_t cli_now_ns(void)
{
	struct timespec now;

	must(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

struct program {
	struct gate ready, end;
};

static void ends(void *arg)
{
	(void)arg;
}

/* What is looked at: memory that no process maps, and some forks. */
static void runs(void *arg)
{
	struct program *p = arg;
	struct cow_storage *s = new_filled(64 * PAGE, 0, 1);
	int fd = memfd_create("unmapped", MFD_CLOEXEC);
	static char page[PAGE];

	must(fd >= 0);
	for (size_t i = 0; i < BYTES / PAGE; i++)
		must(pwrite(fd, page, PAGE, (off_t)(i * PAGE)) == (ssize_t)PAGE);
	for (int i = 0; i < FORKS; i++)
		in_child(ends, NULL);
	ck_assert_uint_ge(stats_now().forks, FORKS);
	gate_open(&p->ready);
	gate_wait(&p->end);
	close(fd);
	cow_storage_unref(s);
}

static bool has_looks(void *arg)
{
	const struct cli_sampler *s = arg;
	struct stat st;

	must(fstat(fileno(s->samples), &st) == 0);
	return st.st_size >= (off_t)(LOOKS * sizeof(struct cli_sample));
}

/* The sampler inherits what is to fail. *ret: the last sample. */
static void look_with(int n, struct cli_sample *ret)
{
	struct cli_sampler sampler;
	struct cli_sample *samples;
	ssize_t count;

	fails_at = n;
	ok(cli_sampler_start(&sampler));
	fails_at = 0;
	must(wait_until(has_looks, &sampler, 60));
	count = cli_sampler_stop(&sampler, &samples);
	ck_assert_int_ge(count, LOOKS);
	for (ssize_t i = 0; i < count; i++) {
		const struct cli_sample *s = &samples[i];

		ck_assert_msg(s->unmapped >= BYTES, "request %d, look %zd: only %lu bytes", n, i,
		              (unsigned long)s->unmapped);
		ck_assert_msg(!ret->ns || s->forks == ret->forks,
		              "request %d, look %zd: %lu forks, not %lu", n, i,
		              (unsigned long)s->forks, (unsigned long)ret->forks);
		ck_assert_msg(!ret->ns || s->processes == ret->processes,
		              "request %d, look %zd: %lu processes, not %lu", n, i,
		              (unsigned long)s->processes, (unsigned long)ret->processes);
	}
	*ret = samples[count - 1];
	free(samples);
}

START_TEST(looks_are_whole)
{
	struct program p;
	struct cli_sample last = { 0 };
	pid_t child;

	gate_make(&p.ready);
	gate_make(&p.end);
	child = child_start(runs, &p);
	gate_wait(&p.ready);
	look_with(0, &last);
	ck_assert_uint_eq(last.processes, 1);
	ck_assert_uint_ge(last.forks, FORKS);
	for (int n = 1; n <= REQUESTS; n++)
		look_with(n, &last);
	gate_open(&p.end);
	child_finish(child);
	gate_free(&p.ready);
	gate_free(&p.end);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_look");
	TCase *tcase = add_case(suite, "fault_look");

	tcase_add_test(tcase, looks_are_whole);
	return run_suite(suite);
}
