/* SPDX-License-Identifier: MIT */
/*
 * The words of the page: what to try next, call sites, what was done the slow way
 *
 * Advice is given only where a counter says that it applies, and the dearest call site is
 * named.
 */
#include "cli/profile.h"

#include <string.h>

enum { SITES_SHOWN = 30 };

#define MIB (1024.0 * 1024.0)

/* ---- What to try next ---------------------------------------------------------- */

static void advise(FILE *out, int *count, const char *text)
{
	(*count)++;
	fprintf(out, "<div class=\"try\">%s</div>", text);
}

static void advise_on_start(FILE *out, const struct cli_page *p, int *count)
{
	if (p->records == 0)
		advise(out, count, "No process left a record, so the counters are "
		       "missing. The program did not load the shim, or a signal "
		       "ended it. Run <code>cowshed help run</code>.");
	else if (cli_blocks_served(&p->sum) == 0)
		advise(out, count, "The program asked for no block as large as the "
		       "threshold. Lower it: <code class=\"w\">--threshold 64K</code>.");
}

static void advise_on_forks(FILE *out, const struct cli_page *p, int *count)
{
	const struct cow_stats *s = &p->sum;

	if (s->forks > 0 && s->fork_ns_max > 10000000)
		advise(out, count, s->fallbacks[COW_FALLBACK_BACKING] > 0 ?
		       "A fork took more than 10 ms. Blocks are anonymous by policy, so "
		       "it copied their page tables: try "
		       "<code class=\"w\">--backing memfd</code>." :
		       "A fork took more than 10 ms. Memory that the "
		       "program maps itself is not cowshed's: try "
		       "<code class=\"w\">-o mmap=1M</code>.");
	if (s->forks > 0 && s->pages_private > 256 * MIB / 4096)
		advise(out, count, "Many pages were copied when they were written. "
		       "If these are reference counts of Python, call "
		       "<code>cowshed.freeze_objects()</code> before the fork.");
	if (CLI_MOST(p, processes) > 2 && CLI_MOST(p, alone) > 256 * MIB &&
	    CLI_MOST(p, alone) > 4 * CLI_MOST(p, shared))
		advise(out, count, "Several processes ran, and shared little. If they "
		       "load the same data, load it once before they start: "
		       "<code>cowshed.pack()</code>, or a template "
		       "(<code>get_context(\"template\")</code>).");
}

/* The remedy for the greatest cause. */
static const char *of_copies(const struct cow_stats *s)
{
	uint64_t rewritten = s->fallback_bytes[COW_FALLBACK_REWRITTEN];

	if (s->fallback_bytes[COW_FALLBACK_BACKING] * 2 > s->bytes_copied)
		return "The memory is anonymous by policy: "
		       "<code class=\"w\">--backing memfd</code>.";
	if (rewritten * 2 > s->bytes_copied)
		return "The memory was mostly rewritten since an earlier clone, so pages can't "
		       "be shared: announce the rewrite (<code class=\"w\">write_intent(x, "
		       "overwrite=True)</code>), or drop the earlier clone first.";
	return "Allocate what is cloned by cowshed (<code>cowshed.empty()</code>, or under "
	       "the shim), or keep one clone instead of many.";
}

/* One sentence, of the dearest call site if there is one. */
static void advise_on_copies(FILE *out, const struct cli_page *p, int *count)
{
	const struct cow_stats *s = &p->sum;
	uint64_t clones = s->clones_lazy + s->clones_paged + s->clones_eager;

	/* The sites are sorted: the first one copied most. */
	if (p->sites_count > 0 && (double)p->sites[0].copied > 64 * MIB) {
		(*count)++;
		fprintf(out, "<div class=\"try\"><code>");
		cli_page_text(out, p->sites[0].text);
		fprintf(out, "</code> copied %s at once. %s</div>",
		        cli_bytes(p->sites[0].copied).s, of_copies(s));
	} else if (clones > 0 && s->clones_eager * 2 > clones) {
		(*count)++;
		fprintf(out, "<div class=\"try\">Most clones were copied at once. %s</div>",
		        of_copies(s));
	} else if ((double)s->bytes_copied > 64 * MIB &&
	           s->bytes_copied > cli_bytes_served(s) / 4) {
		advise(out, count, "The library copied much: pages of clones when they were "
		       "written, or what the table of fallbacks below names.");
	}
}

void cli_page_advice(FILE *out, const struct cli_page *p)
{
	int count = 0;

	fputs("<h2>What to try next</h2>", out);
	advise_on_start(out, p, &count);
	advise_on_forks(out, p, &count);
	advise_on_copies(out, p, &count);
	if (count == 0 && cli_fallbacks_total(&p->sum) > 0)
		advise(out, &count, "Look at what was done the slow way, below. The "
		       "last column says how to change it.");
	if (count == 0)
		fputs("<div class=\"try fine\">Nothing: the program got what cowshed "
		      "offers.</div>", out);
}

/* ---- Call sites ------------------------------------------------------------------ */

static void put_site(FILE *out, const struct cli_site *site)
{
	fputs("<tr><td><code>", out);
	cli_page_text(out, site->text);
	fprintf(out, "</code></td><td class=\"n\">%s</td><td class=\"n\">%s</td>"
	        "<td class=\"n\">%s</td><td class=\"n\">%s</td></tr>",
	        cli_count(site->calls).s, cli_bytes(site->shared).s,
	        cli_bytes(site->copied).s, cli_duration(site->ns).s);
}

void cli_page_sites(FILE *out, const struct cli_page *p)
{
	size_t shown = p->sites_count < SITES_SHOWN ? p->sites_count : SITES_SHOWN;

	fputs("<h2>Clones and copies by call site</h2>", out);
	if (p->sites_count == 0) {
		fputs("<p>None. Only the Python package knows call sites: programs in "
		      "other languages, and <code>memcpy</code>, have none here.</p>",
		      out);
		return;
	}
	fputs("<p class=\"grey\">The lines of the program that called cowshed, in all "
	      "processes. Pages that a clone copies later, when they are written, "
	      "have no call site.</p><table><tr><th>where</th>"
	      "<th class=\"n\">calls</th><th class=\"n\">shared</th>"
	      "<th class=\"n\">copied</th><th class=\"n\">time in the calls</th></tr>", out);
	for (size_t i = 0; i < shown; i++)
		put_site(out, &p->sites[i]);
	fputs("</table>", out);
	if (shown < p->sites_count)
		fprintf(out, "<p class=\"grey\">%s more sites copied less.</p>",
		        cli_count(p->sites_count - shown).s);
}

/* ---- Fallbacks -------------------------------------------------------------------- */

/* Their price: what was copied at once, or page faults later. */
static void put_cost(FILE *out, const struct cow_stats *s, int reason)
{
	switch (reason) {
	case COW_FALLBACK_BUSY:
	case COW_FALLBACK_HELD:
	case COW_FALLBACK_BLOCKED:
	case COW_FALLBACK_HANDLER:
	case COW_FALLBACK_STACK:
	case COW_FALLBACK_CANCEL:
	case COW_FALLBACK_PROCESS:
		fputs("a copy of each page that was written", out);
		if (s->pages_private > 0)
			fprintf(out, ": %s when a fork last counted",
			        cli_count(s->pages_private).s);
		return;
	case COW_FALLBACK_COLLAPSE:
		fputs("page faults of 4 KiB in place of 2 MiB", out);
		return;
	default:
		if (s->fallback_bytes[reason] > 0)
			fprintf(out, "%s copied",
			        cli_bytes(s->fallback_bytes[reason]).s);
		else
			fputs("not known", out);
	}
}

/* A browser breaks lines at the hyphens of an option, too. Each word that begins with one stays
 * in one piece. */
static void put_change(FILE *out, const char *text)
{
	while (*text != 0) {
		char word[200];
		size_t n = strcspn(text, " ");

		snprintf(word, sizeof word, "%.*s", (int)n, text);
		fputs(*word == '-' ? "<span class=\"w\">" : "", out);
		cli_page_text(out, word);
		fputs(*word == '-' ? "</span>" : "", out);
		text += n;
		for (; *text == ' '; text++)
			fputc(' ', out);
	}
}

static void put_fallback(FILE *out, const struct cow_stats *s, int reason)
{
	const char *means, *change;

	cli_fallback_advice(reason, &means, &change);
	fprintf(out, "<tr><td class=\"n\">%s</td><td>%s</td><td>",
	        cli_count(s->fallbacks[reason]).s, cli_fallback_name(reason));
	put_cost(out, s, reason);
	fputs("</td><td>", out);
	cli_page_text(out, means);
	fputs("</td><td>", out);
	put_change(out, change != NULL ? change : "nothing: it is as it should be");
	fputs("</td></tr>", out);
}

void cli_page_fallbacks(FILE *out, const struct cli_page *p)
{
	fputs("<h2>Done the slow way</h2>", out);
	if (cli_fallbacks_total(&p->sum) == 0) {
		fputs("<p>Nothing.</p>", out);
		return;
	}
	fputs("<table><tr><th class=\"n\">times</th><th>what</th><th>it cost</th><th>why</th>"
	      "<th>to change</th></tr>", out);
	for (int i = 0; i < COW_FALLBACKS; i++)
		if (p->sum.fallbacks[i] != 0)
			put_fallback(out, &p->sum, i);
	fputs("</table>", out);
}
