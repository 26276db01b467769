/* SPDX-License-Identifier: MIT */
/*
 * Moving bytes between memory and a file, for load and save
 *
 * With COW_IO_DIRECT, the aligned bulk past the page cache. Then by a ring, if the kernel gives
 * one. Then the rest by plain calls.
 *
 * A ring that fails is no failure. The plain calls go on behind the bytes that are certainly
 * done, and their result counts: if the file has an error, they get the same one. So there is one
 * way to fail. A kernel that denies rings, or a part of what they need, only makes it slower.
 */
#ifndef COW_SHARE_TRANSFER_H
#define COW_SHARE_TRANSFER_H

#include "memfd/descriptor.h"
#include "memfd/file.h"
#include "memfd/ring.h"

struct cow__job {
	const char *name;  /* for sentences; a path if `own` */
	bool own;          /* opened here, and closed here */
	struct cow__descriptor file;
	struct cow__file_facts facts;
	uint32_t flags;
	struct cow__transfer t; /* offset COW__FILE_STREAM: at the file's position */
};

/* Moves the bytes of job->t. *done: so many of them were moved, also after an error. */
int cow__job_transfer(struct cow__job *job, size_t *done);

#endif
