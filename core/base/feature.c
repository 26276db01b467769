/* SPDX-License-Identifier: MIT */
/*
 * What the kernel offers, with names and reasons, for `cowshed doctor`
 */
#include "core/base/feature.h"
#include "core/base/base.h"
#include "core/base/error.h"
#include "cowshed.h"
#include "memfd/probe.h"

static const struct {
	const char *name;
	bool (*probe)(void);
	const char *brings, *denied;
} features[] = {
	[COW_FEATURE_MEMFD] = {
		"memfd", cow__probe_memfd,
		"memory that can be shared and cloned by mappings",
		"memfd_create(), its seals or its holes are missing: everything is copied",
	},
	[COW_FEATURE_COLLAPSE] = {
		"collapse", cow__probe_collapse,
		"huge pages in memfds: fast first touch, forks and clones",
		"MADV_COLLAPSE is refused (before Linux 6.1, shmem_enabled=deny, "
		"or pages above 4 KiB): small pages",
	},
	[COW_FEATURE_PAGEMAP] = {
		"pagemap", cow__probe_pagemap,
		"finding written pages: clones of clones, thawing, huge pages "
		"ahead of the program",
		"/proc/self/pagemap can't be read: whole copies instead",
	},
	[COW_FEATURE_PAGEMAP_SCAN] = {
		"pagemap_scan", cow__probe_pagemap_scan,
		"finding written pages in microseconds",
		"PAGEMAP_SCAN is missing (Linux 6.7): /proc/self/pagemap is read "
		"page by page",
	},
	[COW_FEATURE_LOCKS] = {
		"locks", cow__probe_locks,
		"knowing which processes still hold pages, also after a kill",
		"there are no locks of open files (gVisor?), or a memfd can't be "
		"reopened through /proc: anonymous memory is used",
	},
	[COW_FEATURE_THREADS] = {
		"threads", cow__probe_threads,
		"thawing while other threads sleep",
		"/proc/self/task/*/syscall can't be read: thawing only with "
		"one thread",
	},
	[COW_FEATURE_UNSHARE] = {
		"unshare", cow__probe_unshare,
		"knowing that the process has one thread",
		"unshare(2) is forbidden: /proc is read instead",
	},
	[COW_FEATURE_IO_URING] = {
		"io_uring", cow__probe_io_uring,
		"loading files, and saving past the page cache",
		"io_uring is forbidden: plain reads and writes",
	},
	[COW_FEATURE_USERFAULTFD] = {
		"userfaultfd", cow__probe_userfaultfd,
		"thaws: written pages are copied back while the program runs",
		"forbidden, or without marks of written pages (Linux 6.7): thaws "
		"copy while all threads wait",
	},
};

COW_EXPORT bool
cow__memfds_are_slow(void)
{
	return cow__probe_slow_memfds();
}

COW_EXPORT int
cow_feature_probe(enum cow_feature feature, const char **ret_name,
                  const char **ret_why)
{
	bool there;

	if ((unsigned)feature >= sizeof(features) / sizeof(features[0]))
		return cow__error(-EINVAL, "no such feature");
	there = features[feature].probe();
	if (ret_name)
		*ret_name = features[feature].name;
	if (ret_why)
		*ret_why = there ? features[feature].brings
		                 : features[feature].denied;
	return there;
}
