/* SPDX-License-Identifier: MIT */
/*
 * Page sizes
 */
#ifndef COW_MEMFD_PAGE_H
#define COW_MEMFD_PAGE_H

#include <stddef.h>

/* Bytes of a page: 4096, 16384 or 65536, as the machine says. A power of two.
 * cow__page_init() sets it. */
extern size_t cow__page;
void cow__page_init(void);

/* A huge page: what x86-64, and aarch64 with 4 KiB pages, map with one
 * page-middle entry. Other page sizes have other huge pages. There collapsing
 * fails, and small pages serve. */
#define COW__HUGE ((size_t)2 << 20)

#endif
