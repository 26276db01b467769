/* SPDX-License-Identifier: MIT */
/*
 * Page sizes: from the auxiliary vector, which needs no system call.
 */
#include "memfd/page.h"
#include "memfd/export.h"

#include <sys/auxv.h>

COW_EXPORT size_t cow__page = 4096;

void
cow__page_init(void)
{
	size_t page = getauxval(AT_PAGESZ);

	if (page)
		cow__page = page;
}
