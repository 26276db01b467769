/* SPDX-License-Identifier: MIT */
/*
 * The page of `cowshed profile`: one file of HTML, which loads nothing
 *
 * From top to bottom: what the program was, five numbers, the memory over time, the
 * pauses of forks over time, what to try next, call sites, what was done the slow way,
 * and the counters. There is no script, so the page shows the same everywhere.
 */
#include "cli/profile.h"

#include <stdlib.h>
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
	"time, the pauses of forks, clones and copies by line of Python, what was\n"
	"done the slow way and what that cost, and what to try next. The exit\n"
	"status is that of the program.\n";

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
	"td.n,th.n{text-align:right;white-space:nowrap}"
	".try{border-left:4px solid #bf5a00;padding:6px 12px;margin:8px 0;"
	"background:#fff8f0}.fine{border-color:#1a7f37;background:#f1faf3}"
	".key{display:inline-block;width:12px;height:12px;border-radius:3px;"
	"margin:0 5px 0 0;vertical-align:-1px}"
	/* The box stays with its first word; an option is in one piece. */
	".legend{display:inline-block;margin-right:14px}.w{white-space:nowrap}"
	"@media(max-width:600px){table{display:block;overflow-x:auto}}"
	"svg{width:100%;height:auto}svg text{font-size:12px;fill:#59636e}";

/* Text of the program's, which must not become markup, and may be no text. */
void cli_page_text(FILE *out, const char *text)
{
	char *copy = strdup(text);

	if (copy != NULL)
		cli_tame(copy);
	for (const char *at = copy != NULL ? copy : ""; *at != 0; at++) {
		switch (*at) {
		case '<': fputs("&lt;", out); break;
		case '>': fputs("&gt;", out); break;
		case '&': fputs("&amp;", out); break;
		case '"': fputs("&quot;", out); break;
		default: fputc(*at, out);
		}
	}
	free(copy);
}

uint64_t cli_page_most(const struct cli_page *p, size_t offset)
{
	uint64_t most = 0;

	for (size_t i = 0; i < p->count; i++) {
		const char *sample = (const char *)&p->samples[i];
		uint64_t value = *(const uint64_t *)(sample + offset);

		if (most < value)
			most = value;
	}
	return most;
}

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
		cli_page_text(out, i > 0 ? " " : "");
		cli_page_text(out, p->argv[i]);
	}
	fputs("</code></p><p class=\"grey\">", out);
	if (WIFSIGNALED(p->status))
		fprintf(out, "Ended by signal %d", WTERMSIG(p->status));
	else
		fprintf(out, "Exit status %d", WEXITSTATUS(p->status));
	fprintf(out, " after %s", cli_duration(p->wall_ns).s);
	if (p->count > 0)
		fprintf(out, ", at most %llu process%s at once",
		        (unsigned long long)CLI_MOST(p, processes),
		        CLI_MOST(p, processes) == 1 ? "" : "es");
	fputs(".</p><div class=\"tiles\">", out);
	put_tile(out, p->count > 0 ? cli_bytes(CLI_MOST(p, all)).s : "-",
	         "most memory at once");
	put_tile(out, cli_count(s->forks).s, "forks");
	put_tile(out, s->forks > 0 ? cli_duration(s->fork_ns_max).s : "-",
	         "longest pause of a fork");
	put_tile(out, cli_bytes(s->bytes_copied).s, "copied by the library");
	put_tile(out, cli_bytes(s->bytes_not_copied).s,
	         "not copied, thanks to sharing");
	fputs("</div>", out);
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
		cli_page_text(out, c->says);
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
	cli_page_text(out, p->argv[0]);
	fprintf(out, "</title><style>%s</style><body>", style);
	put_head(out, p);
	if (p->count > 1) {
		cli_page_memory(out, p);
		cli_page_forks(out, p);
	} else {
		fputs("<p>The program ended before its memory could be looked at, "
		      "or there is no /proc.</p>", out);
	}
	cli_page_advice(out, p);
	cli_page_sites(out, p);
	cli_page_fallbacks(out, p);
	put_counters(out, p);
	fputs("</body></html>\n", out);
}
