/* SPDX-License-Identifier: MIT */
/*
 * Which pages a file has under a mapping: see memfd/map.h
 */
#include "memfd/map.h"
#include "memfd/page.h"
#include "memfd/sys.h"

#include <sys/mman.h>

#define HUGE_BYTES (2u << 20)
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* Linux 5.14 */
#endif

int
cow__map_resident(uintptr_t addr, size_t bytes)
{
	unsigned char pages[HUGE_BYTES / 4096];
	size_t want = bytes / cow__page;
	int n = 0, r = (int)sys_mincore((void *)addr, bytes, pages);

	if (r < 0)
		return r;
	for (size_t i = 0; i < want; i++)
		n += pages[i] & 1;
	return n;
}

void
cow__map_show(uintptr_t addr, size_t bytes)
{
	unsigned char pages[HUGE_BYTES / 4096];
	size_t n = bytes / cow__page, i, from;

	if (sys_mincore((void *)addr, bytes, pages) < 0)
		return;
	for (i = 0; i < n; i++) {
		if (!(pages[i] & 1))
			continue;
		for (from = i; i < n && (pages[i] & 1); i++)
			;
		(void)sys_madvise((void *)(addr + from * cow__page), (i - from) * cow__page,
		                  MADV_POPULATE_READ);
	}
}
