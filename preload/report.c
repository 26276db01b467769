/* SPDX-License-Identifier: MIT */
/*
 * One line at the end of a process
 *
 *      cowshed pid=4711 name=sort bytes_live=0 ... fallback.busy=3
 *
 * It is appended to the file that option `report` names. A single write does it,
 * so that lines of processes that end at once do not mix. stdio is not used: its
 * streams may be closed or broken by now.
 *
 * A process that filters its own system calls may not write then. It does so before it sets the
 * filter. A forked process that is about to give up privileges, or enter a sandbox, appends
 * "cowshed stranger" before it does so.
 */
#include "preload/park.h"

#include "core/fork/fork.h"

#include <cowshed.h>

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static char line[8192];
static size_t used;
static pid_t process COW_FORK_DATA; /* the process that has to report; 0: it has */

static void
put_text(const char *s)
{
	size_t n = strlen(s);

	if (used + n < sizeof(line)) {
		memcpy(line + used, s, n);
		used += n;
	}
}

static void
add_number(const char *key, uint64_t n)
{
	char digits[24];
	int i = 23;

	digits[i] = '\0';
	do
		digits[--i] = (char)('0' + n % 10);
	while (n /= 10);
	put_text(" ");
	put_text(key);
	put_text("=");
	put_text(digits + i);
}

/* Calls of the kernel's: another library's open() may change what a path means. */
static int
open_file(const char *path, int flags)
{
	return (int)preload_kernel(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0600);
}

static void
write_and_close(int fd, const char *text, size_t n)
{
	(void)preload_kernel(SYS_write, fd, text, n);
	(void)preload_kernel(SYS_close, fd);
}

static void
add_name(void)
{
	char name[32];
	int fd = open_file("/proc/self/comm", O_RDONLY);
	long n = fd < 0 ? 0 : preload_kernel(SYS_read, fd, name, sizeof(name) - 1);

	if (fd >= 0)
		(void)preload_kernel(SYS_close, fd);
	name[n > 0 ? n : 0] = '\0';
	for (char *p = name; *p; p++)
		if (*p == ' ' || *p == '\n')
			*p = '\0';
	put_text(" name=");
	put_text(name[0] ? name : "?");
}

static void
add_reason(const char *prefix, const char *name, uint64_t n)
{
	char key[40];

	strcpy(key, prefix);
	strncat(key, name, sizeof(key) - strlen(prefix) - 1);
	add_number(key, n);
}

static void
add_fallbacks(const struct cow_stats *s)
{
	for (int i = 0; i < COW_FALLBACKS; i++) {
		const char *name = cow_fallback_name((enum cow_fallback)i);

		if (name && s->fallbacks[i])
			add_reason("fallback.", name, s->fallbacks[i]);
		if (name && s->fallback_bytes[i])
			add_reason("fallback_bytes.", name, s->fallback_bytes[i]);
	}
}

/* Blanks end a word of the record. */
static void
add_text(const char *key, char *text)
{
	if (!text[0])
		return;
	for (char *p = text; *p; p++)
		if ((unsigned char)*p <= ' ')
			*p = '?';
	put_text(" ");
	put_text(key);
	put_text("=");
	put_text(text);
}

static void
add_settings(void)
{
	struct cow_settings s = { .size = sizeof(s) };

	if (cow_settings_read(0, &s) < 0)
		return;
	add_text("version", s.version);
	add_text("commit", s.commit);
	add_text("options", s.options);
	add_text("unknown", s.refused);
}

static void
add_counters(void)
{
	struct cow_stats s = { .size = sizeof(s) };

	if (cow_stats_get(&s) < 0)
		return;
#define COUNTER(member) add_number(#member, s.member);
	COUNTER(bytes_live)
	COUNTER(bytes_peak)
	COUNTER(bytes_served)
	COUNTER(bytes_recycled)
	COUNTER(bytes_warm)
	COUNTER(bytes_returned)
	COUNTER(bytes_collapsed)
	COUNTER(blocks_live)
	COUNTER(blocks_served)
	COUNTER(storages_live)
	COUNTER(clones_lazy)
	COUNTER(clones_paged)
	COUNTER(clones_eager)
	COUNTER(materialized_page)
	COUNTER(materialized_copy)
	COUNTER(steals)
	COUNTER(bytes_copied)
	COUNTER(bytes_not_copied)
	COUNTER(forks)
	COUNTER(fork_ns_last)
	COUNTER(fork_ns_max)
	COUNTER(fork_ns_total)
	COUNTER(freezes)
	COUNTER(bytes_frozen)
	COUNTER(thaws)
	COUNTER(bytes_thawed)
	COUNTER(pages_written_back)
	COUNTER(pages_private)
	COUNTER(bytes_shadow_returned)
	COUNTER(bytes_limbo)
	COUNTER(segments)
	COUNTER(mappings)
	COUNTER(helper_starts)
	COUNTER(heal_ns_total)
	COUNTER(heal_wait_ns_max)
	COUNTER(strangers)
	COUNTER(bytes_marked)
	COUNTER(bytes_border_returned)
	COUNTER(bytes_forwarded)
	COUNTER(bytes_inherited)
	COUNTER(blocks_inherited)
#undef COUNTER
	add_fallbacks(&s);
}

void
preload_report(void)
{
	pid_t self;
	int fd;

	/* First, without a system call: a filter may end the process for it. */
	if (!preload_report_path()[0] || preload_sandboxed())
		return;
	/* vfork's child has its parent's memory, and must not report. */
	self = preload_pid();
	if (!__atomic_compare_exchange_n(&process, &self, 0, 0,
	                                 __ATOMIC_RELAXED,
	                                 __ATOMIC_RELAXED))
		return;
	fd = open_file(preload_report_path(), O_WRONLY | O_APPEND);
	if (fd < 0)
		fd = open_file(preload_report_path(), O_WRONLY | O_APPEND | O_CREAT);
	if (fd < 0)
		return;
	used = 0;
	put_text("cowshed");
	add_number("pid", (uint64_t)self);
	add_name();
	add_counters();
	add_settings();
	put_text("\n");
	write_and_close(fd, line, used);
}

/* This line comes before the call, since afterwards the process may be unable to open the
 * file. The call may come in a signal handler, so errno stays as it is. */
void
preload_report_stranger(void)
{
	static bool told;
	int saved = errno, fd;

	if (!preload_report_path()[0] || preload_sandboxed() ||
	    preload_is_vfork_child() || __atomic_exchange_n(&told, true, __ATOMIC_RELAXED))
		return;
	fd = open_file(preload_report_path(), O_WRONLY | O_APPEND);
	if (fd >= 0) {
		static const char text[] = "cowshed stranger\n";

		write_and_close(fd, text, sizeof(text) - 1);
	}
	errno = saved;
}

COW_FORK_CODE void
preload_report_begin(void)
{
	__atomic_store_n(&process, preload_pid(), __ATOMIC_RELAXED);
}

/* Shells and daemons end without running destructors. */
EXPORT _Noreturn void
_exit(int status)
{
	preload_report();
	for (;;)
		preload_kernel(SYS_exit_group, status);
}

EXPORT _Noreturn void
_Exit(int status)
{
	_exit(status);
}

__attribute__((destructor)) static void
end(void)
{
	preload_report();
}
