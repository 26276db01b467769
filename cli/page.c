/* SPDX-License-Identifier: MIT */
/*
 * The page of `cowshed profile`: one file of HTML, which loads nothing
 *
 * From top to bottom: what the program was, five numbers, the memory over time, the
 * pauses of forks over time, what to try next, and the counters. The pictures are
 * SVG in the page. There is no script, so the page shows the same everywhere.
 */
#include "cli/profile.h"

#include <math.h>
#include <string.h>
#include <sys/wait.h>

const char cli_profile_help[] =
	"Usage: cowshed profile [OPTION...] [--] PROGRAM [ARGUMENT...]\n"
	"Runs a program as 'cowshed run' does, and writes a page about its memory.\n"
	"\n"
	"  --output FILE       where the page is written; without it:\n"
	"                      cowshed-profile.html in this directory\n"
	"  --threshold, --backing, --copies, -o\n"
	"                      as for 'cowshed run'\n"
	"  -h, --help          this help\n"
	"\n"
	"The page is one file of HTML and loads nothing. It has the memory over\n"
	"time, the pauses of forks, what was copied, what was done the slow way,\n"
	"and what to try next. The exit status is that of the program.\n";

enum { WIDE = 900, HIGH = 240, LEFT = 76, BELOW = 26, COLUMNS = 400 };

static const char style[] =
	"body{font:15px/1.5 system-ui,sans-serif;color:#1b1f24;background:#fff;"
	"max-width:1000px;margin:24px auto;padding:0 16px}"
	"h1{font-size:22px;margin:0}h2{font-size:17px;margin:28px 0 6px}"
	"p{margin:4px 0}code{background:#f1f3f5;padding:1px 5px;border-radius:4px}"
	".tiles{display:flex;flex-wrap:wrap;gap:12px;margin:16px 0}"
	".tile{flex:1;min-width:130px;border:1px solid #d8dee4;border-radius:8px;"
	"padding:10px 14px}.tile b{display:block;font-size:21px}"
	".tile span,.grey{color:#59636e;font-size:13px}"
	"table{border-collapse:collapse;width:100%}td,th{text-align:left;"
	"vertical-align:top;padding:5px 10px 5px 0;border-bottom:1px solid #e5e9ed}"
	"td.n{text-align:right;white-space:nowrap}"
	".try{border-left:4px solid #bf5a00;padding:6px 12px;margin:8px 0;"
	"background:#fff8f0}.fine{border-color:#1a7f37;background:#f1faf3}"
	".key{display:inline-block;width:12px;height:12px;border-radius:3px;"
	"margin:0 5px 0 14px;vertical-align:-1px}"
	"svg{width:100%;height:auto}svg text{font-size:12px;fill:#59636e}";

/* Text of the program's, which must not become markup. */
static void put_text(FILE *out, const char *text)
{
	for (; *text != 0; text++) {
		switch (*text) {
		case '<': fputs("&lt;", out); break;
		case '>': fputs("&gt;", out); break;
		case '&': fputs("&amp;", out); break;
		case '"': fputs("&quot;", out); break;
		default: fputc((unsigned char)*text < ' ' ? '?' : *text, out);
		}
	}
}

/* ---- Pictures ------------------------------------------------------------ */

struct axes {
	double seconds, most; /* at the right, at the top */
	enum cli_unit unit;
};

/* The next power of 2 MiB, or of 2 us. */
static double round_up(double x, enum cli_unit unit)
{
	double step = unit == CLI_BYTES ? 1 << 20 : 1000;

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

static void begin_picture(FILE *out, const char *name, const struct axes *axes)
{
	fprintf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">",
	        WIDE, HIGH, name);
	for (int i = 0; i <= 4; i++) {
		double value = axes->most * i / 4, y = at_y(axes, value);
		double seconds = axes->seconds * i / 4;
		const char *anchor = i == 4 ? "end" : i == 0 ? "start" : "middle";

		fprintf(out, "<path d=\"M%d %.1fH%d\" stroke=\"#e5e9ed\"/>"
		        "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>"
		        "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%.3g s</text>",
		        LEFT, y, WIDE - 10, LEFT - 6, y + 4,
		        cli_value((uint64_t)value, axes->unit).s,
		        at_x(axes, seconds), HIGH - 8, anchor, seconds);
	}
}

static uint64_t member(const struct cli_sample *s, size_t offset)
{
	return *(const uint64_t *)((const char *)s + offset);
}

/* The largest sample of each column, so that no peak is lost. */
static void put_line(FILE *out, const struct cli_page *p,
                     const struct axes *axes, size_t offset)
{
	size_t step = p->count / COLUMNS + 1;

	for (size_t i = 0; i < p->count; i += step) {
		size_t best = i;

		for (size_t j = i; j < i + step && j < p->count; j++)
			if (member(&p->samples[j], offset) >
			    member(&p->samples[best], offset))
				best = j;
		fprintf(out, "%s%.1f %.1f", i == 0 ? "M" : "L",
		        at_x(axes, (double)p->samples[best].ns / 1e9),
		        at_y(axes, (double)member(&p->samples[best], offset)));
	}
}

static void put_area(FILE *out, const struct cli_page *p,
                     const struct axes *axes, size_t offset, const char *color)
{
	fputs("<path d=\"", out);
	put_line(out, p, axes, offset);
	fprintf(out, "L%.1f %.1fL%.1f %.1fZ\" fill=\"%s\"/>",
	        at_x(axes, (double)p->samples[p->count - 1].ns / 1e9),
	        at_y(axes, 0), at_x(axes, (double)p->samples[0].ns / 1e9),
	        at_y(axes, 0), color);
}

static uint64_t largest(const struct cli_page *p, size_t offset)
{
	uint64_t most = 0;

	for (size_t i = 0; i < p->count; i++)
		if (most < member(&p->samples[i], offset))
			most = member(&p->samples[i], offset);
	return most;
}

#define MEMBER(name) offsetof(struct cli_sample, name)

static void put_memory(FILE *out, const struct cli_page *p)
{
	double all = (double)largest(p, MEMBER(all));
	double copied = (double)largest(p, MEMBER(copied));
	struct axes axes = {
		(double)p->samples[p->count - 1].ns / 1e9 + 1e-9,
		round_up(all > copied ? all : copied, CLI_BYTES),
		CLI_BYTES};

	fputs("<h2>Memory over time</h2><p class=\"grey\">All processes of the "
	      "program together."
	      "<span class=\"key\" style=\"background:#f0a35e\"></span>anonymous "
	      "(what forked processes still share counts in each)<span class=\"key\" style=\"background:#7fb3e6\"></span>"
	      "in memory that processes share<span class=\"key\" "
	      "style=\"background:#b3261e\"></span>copied so far by cowshed</p>", out);
	begin_picture(out, "Memory over time", &axes);
	put_area(out, p, &axes, MEMBER(all), "#7fb3e6");
	put_area(out, p, &axes, MEMBER(own), "#f0a35e");
	fputs("<path fill=\"none\" stroke=\"#b3261e\" stroke-width=\"2\" d=\"",
	      out);
	put_line(out, p, &axes, MEMBER(copied));
	fputs("\"/></svg>", out);
}

static void put_forks(FILE *out, const struct cli_page *p)
{
	struct axes axes = {
		(double)p->samples[p->count - 1].ns / 1e9 + 1e-9,
		round_up((double)largest(p, MEMBER(fork_ns)), CLI_NS), CLI_NS};
	uint64_t before = 0;

	if (largest(p, MEMBER(forks)) == 0)
		return;
	fputs("<h2>Forks and their pauses</h2><p class=\"grey\">A bar is the last "
	      "fork before a look: how long the forking thread stood still.</p>",
	      out);
	begin_picture(out, "Pauses of forks", &axes);
	for (size_t i = 0; i < p->count; i++) {
		const struct cli_sample *s = &p->samples[i];
		double y = at_y(&axes, (double)s->fork_ns);

		if (s->forks > before)
			fprintf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"4\" "
			        "height=\"%.1f\" fill=\"#6639ba\"><title>%s"
			        "</title></rect>",
			        at_x(&axes, (double)s->ns / 1e9) - 2, y,
			        at_y(&axes, 0) - y, cli_duration(s->fork_ns).s);
		before = s->forks;
	}
	fputs("</svg>", out);
}

/* ---- Words --------------------------------------------------------------- */

static void put_tile(FILE *out, const char *value, const char *name)
{
	fprintf(out, "<div class=\"tile\"><b>%s</b><span>%s</span></div>", value,
	        name);
}

static void put_head(FILE *out, const struct cli_page *p)
{
	const struct cow_stats *s = &p->sum;

	fputs("<h1>cowshed profile</h1><p><code>", out);
	for (int i = 0; p->argv[i] != NULL; i++) {
		put_text(out, i > 0 ? " " : "");
		put_text(out, p->argv[i]);
	}
	fputs("</code></p><p class=\"grey\">", out);
	if (WIFSIGNALED(p->status))
		fprintf(out, "Ended by signal %d", WTERMSIG(p->status));
	else
		fprintf(out, "Exit status %d", WEXITSTATUS(p->status));
	fprintf(out, " after %s", cli_duration(p->wall_ns).s);
	if (p->count > 0)
		fprintf(out, ", %llu processes at most at once",
		        (unsigned long long)largest(p, MEMBER(processes)));
	fputs(".</p><div class=\"tiles\">", out);
	put_tile(out, p->count > 0 ? cli_bytes(largest(p, MEMBER(all))).s : "-",
	         "most memory at once");
	put_tile(out, cli_count(s->forks).s, "forks");
	put_tile(out, s->forks > 0 ? cli_duration(s->fork_ns_max).s : "-",
	         "longest pause of a fork");
	put_tile(out, cli_bytes(s->bytes_copied).s, "copied by the library");
	put_tile(out, cli_bytes(s->bytes_not_copied).s,
	         "not copied, thanks to sharing");
	fputs("</div>", out);
}

static void advise(FILE *out, int *count, const char *text)
{
	(*count)++;
	fprintf(out, "<div class=\"try\">%s</div>", text);
}

static void put_advice(FILE *out, const struct cli_page *p)
{
	const struct cow_stats *s = &p->sum;
	uint64_t clones = s->clones_lazy + s->clones_paged + s->clones_eager;
	int count = 0;

	fputs("<h2>What to try next</h2>", out);
	if (p->records == 0)
		advise(out, &count, "No process left a record, so the counters are "
		       "missing. The program did not load the shim, or a signal "
		       "ended it. Run <code>cowshed help run</code>.");
	else if (s->blocks_served == 0)
		advise(out, &count, "The program asked for no block as large as the "
		       "threshold. Lower it: <code>--threshold 64K</code>.");
	if (s->forks > 0 && s->fork_ns_max > 10000000)
		advise(out, &count, "A fork took more than 10 ms. Memory that the "
		       "program maps itself is not cowshed's: try "
		       "<code>-o mmap=1M</code>.");
	if (clones > 0 && s->clones_eager * 2 > clones)
		advise(out, &count, "Most clones were copied at once. They were of "
		       "small or foreign memory, or were rewritten: clone memory "
		       "that cowshed made, or announce the rewrite "
		       "(<code>write_intent()</code>).");
	if (s->pages_private > (256 << 20) / 4096 && s->forks > 0)
		advise(out, &count, "Many pages were copied when they were written. "
		       "If these are reference counts of Python, call "
		       "<code>cowshed.freeze_objects()</code> before the fork.");
	if (s->bytes_copied > s->bytes_served / 4 && s->bytes_copied > 64 << 20)
		advise(out, &count, "The library copied much. The table of fallbacks "
		       "below says why; <code>--copies auto</code> makes large "
		       "copies lazy.");
	if (count == 0 && cli_fallbacks_total(s) > 0)
		advise(out, &count, "Look at what was done the slow way, below. The "
		       "last column says how to change it.");
	if (count == 0)
		fputs("<div class=\"try fine\">Nothing: the program got what cowshed "
		      "offers.</div>", out);
}

static void put_fallbacks(FILE *out, const struct cow_stats *s)
{
	const char *means, *change;

	fputs("<h2>Done the slow way</h2>", out);
	if (cli_fallbacks_total(s) == 0) {
		fputs("<p>Nothing.</p>", out);
		return;
	}
	fputs("<table><tr><th>times</th><th>what</th><th>why</th>"
	      "<th>to change</th></tr>", out);
	for (int i = 0; i < COW_FALLBACKS; i++) {
		if (s->fallbacks[i] == 0)
			continue;
		cli_fallback_advice(i, &means, &change);
		fprintf(out, "<tr><td class=\"n\">%s</td><td>%s</td><td>",
		        cli_count(s->fallbacks[i]).s, cli_fallback_name(i));
		put_text(out, means);
		fputs("</td><td>", out);
		put_text(out, change != NULL ? change : "nothing: it is as it "
		         "should be");
		fputs("</td></tr>", out);
	}
	fputs("</table>", out);
}

static void put_counters(FILE *out, const struct cli_page *p)
{
	fputs("<h2>All counters</h2><p class=\"grey\">A forked process counts the "
	      "memory that it inherited as its own.</p><table><tr><th></th>"
	      "<th>the program</th><th>its other processes</th><th></th></tr>",
	      out);
	for (size_t i = 0; i < cli_counters_count; i++) {
		const struct cli_counter *c = &cli_counters[i];

		if (c->group != NULL)
			fprintf(out, "<tr><th colspan=\"4\">%s</th></tr>", c->group);
		fprintf(out, "<tr><td>%s</td><td class=\"n\">%s</td>"
		        "<td class=\"n\">%s</td><td>", c->name,
		        cli_value(cli_counter_get(c, &p->own), c->unit).s,
		        cli_value(cli_counter_get(c, &p->others), c->unit).s);
		put_text(out, c->says);
		fputs("</td></tr>", out);
	}
	fputs("</table>", out);
}

void cli_page_print(FILE *out, struct cli_page *p)
{
	p->sum = p->others;
	cli_stats_add(&p->sum, &p->own);
	fputs("<!DOCTYPE html><html lang=\"en\"><meta charset=\"utf-8\">"
	      "<meta name=\"viewport\" content=\"width=device-width\">"
	      "<title>cowshed profile: ", out);
	put_text(out, p->argv[0]);
	fprintf(out, "</title><style>%s</style><body>", style);
	put_head(out, p);
	if (p->count > 1) {
		put_memory(out, p);
		put_forks(out, p);
	} else {
		fputs("<p>The program ended before its memory could be looked at, "
		      "or there is no /proc.</p>", out);
	}
	put_advice(out, p);
	put_fallbacks(out, &p->sum);
	put_counters(out, p);
	fputs("</body></html>\n", out);
}
