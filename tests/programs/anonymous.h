/* SPDX-License-Identifier: MIT */
/*
 * A block of malloc against anonymous memory, call by call
 *
 * Each call of a table is made on a block and on a mapping of the same size
 * that is known to be anonymous, in each of these states:
 *
 *   fresh    never touched
 *   filled   every page is written
 *   shared   filled, and a forked child lives that looks at the end
 *   written  the same, and every other page was written since
 *   left     filled, and the child has ended
 *   child    filled, and a forked child makes the call while its parent lives
 *
 * The result, errno, and the bytes of the pages then, on both sides of a fork, are
 * written as text. The two texts must be equal.
 *
 *     PROGRAM [KIB [CALL]]    size of the memory, 2048 unless told; only calls
 *                             with CALL in their name
 *
 * All states with LONG=1 in the environment; else those that differ most.
 */
#ifndef COWSHED_TESTS_ANONYMOUS_H
#define COWSHED_TESTS_ANONYMOUS_H

#include "pages.h"

#include <stdarg.h>

#define LOG_BYTES (64 * KIB)

/* The pages that most calls are made on. */
enum { FROM = 64, RUN = 64, TO = FROM + RUN };

enum state { FRESH, FILLED, SHARED, WRITTEN, LEFT, CHILD, STATES };

static const char *const state_names[] = { "fresh",   "filled", "shared",
	                                   "written", "left",   "child" };

struct log {
	size_t used;
	char text[LOG_BYTES];
};

static size_t bytes = 2 * MIB;
static unsigned char *p;
static struct log *text; /* shared with children */
static enum state state;

__attribute__((format(printf, 1, 2))) static inline void note(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	text->used += (size_t)vsnprintf(text->text + text->used,
	                                LOG_BYTES - text->used, format, ap);
	va_end(ap);
	check(text->used < LOG_BYTES);
}

static inline unsigned char *page(size_t number)
{
	return p + number * PAGE;
}

/* The result of a call, and why. */
static inline void result(const char *name, long r)
{
	note("%s %ld", name, r);
	if (r == -1)
		note(" errno %d", errno);
	note("\n");
}

#define CALL(call) (errno = 0, result(#call, (long)(call)))

/* ---- What is in the pages ------------------------------------------------ */

static const size_t samples[] = { 0,      1,       FROM - 1, FROM,
	                          FROM + 1, FROM + RUN / 2 - 1,
	                          FROM + RUN / 2, TO - 1, TO, TO + 1,
	                          200,    254 };

static inline void look_at(const unsigned char *q, size_t number)
{
	if (!readable(q))
		note("x");
	else if (holds(q, PAGE, number + 1))
		note("f");
	else if (holds(q, PAGE, number + 1001))
		note("r");
	else if (holds(q, PAGE, number + 2001))
		note("c");
	else
		note(all(q, PAGE, 0) ? "0" : "?");
	note(readable(q) && writable((void *)(uintptr_t)q) ? "w " : "  ");
}

static inline void look(const char *who)
{
	size_t i;

	note("%s: ", who);
	for (i = 0; i < COUNT(samples); i++)
		look_at(page(samples[i]), samples[i]);
	note("\n");
}

/* Every page is written, and those that are looked at are filled. */
static inline void fill_pages(uint64_t seed, size_t step)
{
	size_t i;

	for (i = 0; i < bytes / PAGE; i += step)
		*(volatile unsigned char *)page(i) = 1;
	for (i = 0; i < COUNT(samples); i++)
		if (samples[i] % step == 0)
			fill(page(samples[i]), PAGE, samples[i] + seed);
}

/* The flags of the mapping at `q` that a program may have asked for. */
static inline void flags_of(const void *q)
{
	FILE *maps = fopen("/proc/self/smaps", "re");
	static const char *const wanted[] = { " lo", " dd" };
	unsigned long from = 0, to = 0, a, b;
	char line[512];
	size_t i;

	while (readable(q) && maps && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx ", &a, &b) == 2) {
			from = a;
			to = b;
		}
		if (strncmp(line, "VmFlags:", 8) != 0 ||
		    (uintptr_t)q < from || (uintptr_t)q >= to)
			continue;
		for (i = 0; i < COUNT(wanted); i++) {
			note("%s", strstr(line, wanted[i]) ? wanted[i] : " -");
		}
	}
	note(" ");
	if (maps)
		fclose(maps);
}

static inline void flags_after_a_fork(void *arg)
{
	(void)arg;
	flags_of(page(FROM));
	flags_of(page(TO));
}

/* ---- The comparison ------------------------------------------------------ */

struct call {
	const char *name;
	void (*call)(int);
	int value;
};

#define WITH(function, value) { #function " " #value, function, value }

static int to_child[2], to_parent[2];

/* The other side of the fork. */
static inline void looks_at_the_end(void *arg)
{
	(void)arg;
	gate_wait(to_child);
	look("child");
}

static inline void looks_again(void *arg)
{
	(void)arg;
	look("later child");
	flags_after_a_fork(NULL);
}

/* The call, and everything that can be seen of it. */
static inline void make_call(const struct call *c)
{
	size_t i;

	c->call(c->value);
	look("caller");
	in_child(looks_again, NULL);
	look("caller");
	for (i = 0; i < COUNT(samples); i++)
		if (writable(page(samples[i])))
			fill(page(samples[i]), PAGE, samples[i] + 2001);
	look("written");
	in_child(looks_again, NULL);
}

static inline void calls_in_a_child(void *call)
{
	make_call(call);
	gate_open(to_parent);
	gate_wait(to_child);
	look("child");
}

static inline void ends(void *arg)
{
	(void)arg;
}

static inline void in_state(const struct call *c)
{
	pid_t child = 0;

	if (state != FRESH)
		fill_pages(1, 1);
	if (state == SHARED || state == WRITTEN)
		child = start(looks_at_the_end, NULL);
	if (state == WRITTEN)
		fill_pages(1001, 2);
	if (state == LEFT)
		in_child(ends, NULL);
	if (state == CHILD) {
		child = start(calls_in_a_child, (void *)(uintptr_t)c);
		gate_wait(to_parent);
		look("parent");
		fill_pages(1001, 2);
	} else {
		make_call(c);
	}
	if (child) {
		gate_open(to_child);
		finish(child);
	}
	look("at the end");
}

/* The memory that is handed out next has nothing of it. */
static inline void next_is_clean(void)
{
	unsigned char *q = calloc(1, bytes);

	check(q != NULL && all(q, bytes, 0));
	memset(q, 3, bytes);
	check(all(q, bytes, 3));
	free(q);
}

static inline int differs(const struct call *c, struct log *logs)
{
	void *block;
	size_t i;

	text = &logs[0];
	text->used = 0;
	p = map_anonymous(NULL, bytes);
	in_state(c);
	check(munmap(p, bytes) == 0);

	text = &logs[1];
	text->used = 0;
	block = calloc(1, bytes + PAGE);
	check(block != NULL);
	p = (unsigned char *)block + -(uintptr_t)block % PAGE;
	in_state(c);
	free(block);
	next_is_clean();

	if (strcmp(logs[0].text, logs[1].text) == 0)
		return 0;
	for (i = 0; logs[0].text[i] == logs[1].text[i];)
		i++;
	while (i > 0 && logs[0].text[i - 1] != '\n')
		i--;
	printf("%s, %s:\n  anonymous %.*s\n  malloc    %.*s\n", c->name,
	       state_names[state], (int)strcspn(logs[0].text + i, "\n"),
	       logs[0].text + i, (int)strcspn(logs[1].text + i, "\n"),
	       logs[1].text + i);
	return 1;
}

static inline int compare(const struct call *calls, size_t n, int argc,
                          char **argv)
{
	const char *only = argc > 2 ? argv[2] : "";
	int all_states = getenv("LONG") != NULL;
	struct log *logs;
	int different = 0;
	size_t i;

	if (argc > 1)
		bytes = strtoul(argv[1], NULL, 0) * KIB;
	check(bytes >= MIB && bytes % PAGE == 0);
	pages_init();
	gate_make(to_child);
	gate_make(to_parent);
	logs = mmap(NULL, 2 * sizeof(*logs), PROT_READ | PROT_WRITE,
	            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(logs != MAP_FAILED);
	for (i = 0; i < n; i++)
		for (state = FRESH; state < STATES; state++)
			if (strstr(calls[i].name, only) &&
			    (all_states || state == FILLED ||
			     state == WRITTEN || state == CHILD))
				different += differs(&calls[i], logs);
	printf("%zu calls, %d differences\n", n, different);
	return different != 0;
}

#endif
