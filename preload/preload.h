/* SPDX-License-Identifier: MIT */
/*
 * What the shim's files share
 */
#ifndef COW_PRELOAD_PRELOAD_H
#define COW_PRELOAD_PRELOAD_H

#include "core/window.h"

#include <stddef.h>
#include <stdint.h>

extern size_t preload_threshold;
extern uintptr_t preload_window_start;
extern size_t preload_window_bytes;
extern int preload_yielded; /* not all of the window is ours any more */

/* malloc() lets small requests pass; in a forked child after a while. */
void preload_gate_open(void);
void preload_gate_child(void);

static inline int
preload_in_window(const void *p)
{
	return (uintptr_t)p - preload_window_start < preload_window_bytes;
}

static inline int
preload_ours(const void *p)
{
	return preload_in_window(p) &&
	       (!preload_yielded || cow__window_owns(p));
}

/* COWSHED_OPTIONS, once. */
void preload_options_read(void);

/* The file that gets a report at the end of the process, or "". */
const char *preload_report_path(void);

/* The first key that nobody knows, or "". */
const char *preload_unknown_option(void);

/* Writes it; only the first call of a process does. Async-signal-safe. */
void preload_report(void);

/* A forked child has not reported yet. */
void preload_report_child(void);

#endif
