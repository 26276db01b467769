/* SPDX-License-Identifier: MIT */
/*
 * Storages on files: what share/ knows of them
 */
#ifndef COW_SHARE_FILE_H
#define COW_SHARE_FILE_H

#include "cowshed-file.h"
#include "memfd/file.h"

/* Does this storage's memory lie on a file that others may have? */
bool cow__on_file(const struct cow_storage *s);

#endif
