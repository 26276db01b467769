/* SPDX-License-Identifier: MIT */
/*
 * Which code's copies may be lazy: see the header.
 */
#include "core/policy/sites.h"

struct cow__site *
cow__site_of(struct cow__sites *sites, uintptr_t code, size_t bytes)
{
	unsigned log = 63u - (unsigned)__builtin_clzll(bytes);
	size_t hash = ((code ^ log) * 0x9e3779b97f4a7c15u) >> 56;
	struct cow__site *s = NULL;

	for (unsigned i = 0; i < COW__SITE_PROBES; i++) {
		struct cow__site *p = &sites->all[(hash + i) % COW__SITES];

		if (p->code == code && p->size_log == log)
			return p;
		if (!s && !p->code)
			s = p;
	}
	if (s)
		*s = (struct cow__site){ .code = code,
			                 .size_log = log,
			                 .needed = COW__SITE_NEEDED_FIRST };
	return s;
}

enum cow__verdict
cow__site_ask(struct cow__site *s)
{
	if (!s || cow__without(COPY_HISTORY))
		return COW__EAGER;
	if (s->right >= s->needed && s->lazy < s->right)
		return COW__LAZY;
	if (!s->skip)
		return COW__WATCH;
	s->skip--;
	return COW__EAGER;
}

void
cow__site_learn(struct cow__site *s, bool lazy, bool wrong)
{
	if (!wrong) {
		s->right += s->right < COW__SITE_NEEDED_MOST;
		s->skips_log = 0;
		return;
	}
	s->right = 0;
	if (lazy) {
		s->needed = (uint32_t)cow__min(2 * s->needed, COW__SITE_NEEDED_MOST);
		return;
	}
	s->skip = 1u << s->skips_log;
	if (s->skips_log < COW__SITE_SKIPS_LOG_MOST)
		s->skips_log++;
}
