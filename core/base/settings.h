/* SPDX-License-Identifier: MIT */
/*
 * Settings: what this process runs with, for people who look at it
 *
 * The lists of options lie in static memory, and from the start of the engine on also in the
 * page of its counters (core/base/stats.h), where other processes read them. A forked child
 * inherits them.
 */
#ifndef COW_CORE_BASE_SETTINGS_H
#define COW_CORE_BASE_SETTINGS_H

#include "cowshed.h"

/* Notes an option that holds from now on. Engine locked. */
void cow__settings_note(const char *key, const char *value);

/* Notes an option that the environment asked for and that does not hold, as [text,
 * text + bytes). Called before there are threads. */
void cow__settings_refused(const char *text, size_t bytes);

/* Fills the part of a page that other processes will read. */
void cow__settings_publish(struct cow_settings *page);

#endif
