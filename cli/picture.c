/* SPDX-License-Identifier: MIT */
/*
 * The pictures of the page: memory over time, and the pauses of forks over time
 *
 * They are SVG in the page.
 */
#include "cli/profile.h"

#include <stddef.h>

#define PRIVATE "#f0a35e"
#define SHARED "#7fb3e6"
#define UNMAPPED "#c9d6e2"
#define COPIED "#b3261e"

enum { WIDE = 900, HIGH = 240, LEFT = 76, BELOW = 26, COLUMNS = 400 };

struct axes {
	double seconds, most; /* at the right, at the top */
	enum cli_unit unit;
};

/* 1, 2 or 5 times a power of ten, so that at most `most` steps make up the whole. */
static double step_of(double whole, int most)
{
	double step = 1e-6;

	for (int i = 0; step * most < whole; i++)
		step *= i % 3 == 1 ? 2.5 : 2;
	return step;
}

/* The next power of 2 MiB, or four round steps of time. */
static double round_up(double x, enum cli_unit unit)
{
	double step = 1 << 20;

	if (unit != CLI_BYTES)
		return 4 * step_of(x > 1000 ? x : 1000, 4);
	while (step < x)
		step *= 2;
	return step;
}

static double at_x(const struct axes *axes, double seconds)
{
	return LEFT + seconds / axes->seconds * (WIDE - LEFT - 10);
}

static double at_y(const struct axes *axes, double value)
{
	return 10 + (1 - value / axes->most) * (HIGH - 10 - BELOW);
}

static void put_seconds(FILE *out, const struct axes *axes)
{
	double step = step_of(axes->seconds, 6);

	for (int i = 0; i * step <= axes->seconds; i++) {
		double x = at_x(axes, i * step);

		fprintf(out, "<path d=\"M%.1f %d v5\" stroke=\"#59636e\"/>"
		        "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%g s</text>",
		        x, HIGH - BELOW, x, HIGH - 6,
		        i == 0 ? "start" : x > WIDE - 40 ? "end" : "middle", i * step);
	}
}

static void begin_picture(FILE *out, const char *name, const struct axes *axes)
{
	fprintf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">",
	        WIDE, HIGH, name);
	for (int i = 0; i <= 4; i++) {
		double value = axes->most * i / 4, y = at_y(axes, value);

		fprintf(out, "<path d=\"M%d %.1fH%d\" stroke=\"#e5e9ed\"/>"
		        "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>",
		        LEFT, y, WIDE - 10, LEFT - 6, y + 4,
		        cli_value((uint64_t)value, axes->unit).s);
	}
	put_seconds(out, axes);
}

/* The line of zero, over the areas. */
static void end_picture(FILE *out)
{
	fprintf(out, "<path d=\"M%d %dH%d\" stroke=\"#59636e\"/></svg>",
	        LEFT, HIGH - BELOW, WIDE - 10);
}

/* A picture draws one member of the samples, or the sum of several. */
static uint64_t sum_of(const struct cli_sample *s, const size_t *members, size_t n)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += *(const uint64_t *)((const char *)s + members[i]);
	return sum;
}

/* The largest sample of each column, so that no peak is lost. */
static void put_line(FILE *out, const struct cli_page *p, const struct axes *axes,
                     const size_t *members, size_t n)
{
	size_t step = p->count / COLUMNS + 1;

	for (size_t i = 0; i < p->count; i += step) {
		size_t best = i;

		for (size_t j = i; j < i + step && j < p->count; j++)
			if (sum_of(&p->samples[j], members, n) >
			    sum_of(&p->samples[best], members, n))
				best = j;
		fprintf(out, "%s%.1f %.1f", i == 0 ? "M" : "L",
		        at_x(axes, (double)p->samples[best].ns / 1e9),
		        at_y(axes, (double)sum_of(&p->samples[best], members, n)));
	}
}

static void put_area(FILE *out, const struct cli_page *p, const struct axes *axes,
                     const size_t *members, size_t n, const char *color)
{
	fputs("<path d=\"", out);
	put_line(out, p, axes, members, n);
	fprintf(out, "L%.1f %.1fL%.1f %.1fZ\" fill=\"%s\"/>",
	        at_x(axes, (double)p->samples[p->count - 1].ns / 1e9),
	        at_y(axes, 0), at_x(axes, (double)p->samples[0].ns / 1e9),
	        at_y(axes, 0), color);
}

#define MEMBER(name) offsetof(struct cli_sample, name)

static void put_key(FILE *out, const char *color, const char *name)
{
	fprintf(out, " <span class=\"legend\"><span class=\"key\" style=\"background:%s\">"
	        "</span>%s</span>", color, name);
}

/* Each area is drawn over the one before, so it has the sum of what lies under it. */
void cli_page_memory(FILE *out, const struct cli_page *p)
{
	double all = (double)CLI_MOST(p, all);
	double copied = (double)CLI_MOST(p, copied);
	struct axes axes = {
		(double)p->samples[p->count - 1].ns / 1e9 + 1e-9,
		round_up(all > copied ? all : copied, CLI_BYTES), CLI_BYTES};
	static const size_t private[] = {MEMBER(alone)};
	static const size_t resident[] = {MEMBER(alone), MEMBER(shared)};
	static const size_t total[] = {MEMBER(all)};
	static const size_t line[] = {MEMBER(copied)};

	fputs("<h2>Memory over time</h2><p class=\"grey\">All processes of the "
	      "program together; the two lower areas are resident.", out);
	put_key(out, PRIVATE, "private: one process maps it");
	put_key(out, SHARED, "shared: several map it, counted once");
	put_key(out, UNMAPPED, "in memory, in no page table now: kept for reuse, or not touched since a fork");
	put_key(out, COPIED, "copied so far, by the library and as forks counted");
	fputs("</p>", out);
	begin_picture(out, "Memory over time", &axes);
	put_area(out, p, &axes, total, 1, UNMAPPED);
	put_area(out, p, &axes, resident, 2, SHARED);
	put_area(out, p, &axes, private, 1, PRIVATE);
	fputs("<path fill=\"none\" stroke=\"" COPIED "\" stroke-width=\"2\" d=\"",
	      out);
	put_line(out, p, &axes, line, 1);
	fputs("\"/>", out);
	end_picture(out);
}

/* The looks that found new forks, and how many each. */
static void put_bars(FILE *out, const struct cli_page *p, const struct axes *axes)
{
	uint64_t before = 0;

	for (size_t i = 0; i < p->count; i++) {
		const struct cli_sample *s = &p->samples[i];
		double y = at_y(axes, (double)s->fork_ns);

		if (s->forks > before)
			fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"4\" "
			        "height=\"%.1f\" fill=\"#6639ba\"><title>forks: %s, "
			        "%s</title></rect>",
			        at_x(axes, (double)s->ns / 1e9) - 2, y,
			        at_y(axes, 0) - y, cli_count(s->forks - before).s,
			        cli_duration(s->fork_ns).s);
		before = s->forks;
	}
}

void cli_page_forks(FILE *out, const struct cli_page *p)
{
	struct axes axes = {
		(double)p->samples[p->count - 1].ns / 1e9 + 1e-9,
		round_up((double)CLI_MOST(p, fork_ns), CLI_NS), CLI_NS};
	uint64_t seen = CLI_MOST(p, forks);

	if (seen == 0)
		return;
	fputs("<h2>Forks and their pauses</h2><p class=\"grey\">A bar is all forks "
	      "between two looks: the longest time that a forking thread stood "
	      "still.", out);
	if (p->sum.forks > seen)
		fprintf(out, " Forks in no bar: %s, by processes that ended before the "
		        "next look.", cli_count(p->sum.forks - seen).s);
	fprintf(out, " A look reads page tables, and a fork may wait for it: for "
	        "%s at most.</p>", cli_duration(CLI_MOST(p, walk_ns)).s);
	begin_picture(out, "Pauses of forks", &axes);
	put_bars(out, p, &axes);
	end_picture(out);
}
