/* SPDX-License-Identifier: MIT */
/*
 * What the process around us is and does: see the header.
 */
#include "memfd/process.h"
#include "memfd/export.h"
#include "memfd/forked.h"
#include "memfd/page.h"
#include "memfd/sys.h"

#include <linux/capability.h>

#define COW__CAP_CHECKPOINT_RESTORE 40 /* Linux 5.9: newer than some headers */

#include <pthread.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/stat.h>


static bool
starts_with(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* One read() of the file's beginning, and a NUL. False: the file can't be opened; a
 * read() that fails leaves an empty string. */
static bool
read_text(const char *path, char *buf, size_t bytes)
{
	int fd = (int)sys_open(path, O_RDONLY | O_CLOEXEC, 0);
	long r;

	if (fd < 0)
		return false;
	r = sys_read(fd, buf, bytes - 1);
	(void)sys_close(fd);
	buf[r > 0 ? r : 0] = '\0';
	return true;
}

size_t
cow__process_anonymous(void)
{
	char buf[128], *p = buf;
	size_t n[3] = { 0, 0, 0 }; /* pages: of addresses, resident, of files */

	if (!read_text("/proc/self/statm", buf, sizeof(buf)) || !*buf)
		return SIZE_MAX;
	for (int i = 0; i < 3; i++, p += *p == ' ')
		for (; *p >= '0' && *p <= '9'; p++)
			n[i] = n[i] * 10 + (size_t)(*p - '0');
	return (n[1] - n[2]) * cow__page;
}

/* The number in a small file; UINT64_MAX for "max" and for none. */
static uint64_t
read_number(const char *path)
{
	char buf[32];
	uint64_t n = 0;
	int fd = (int)sys_open(path, O_RDONLY | O_CLOEXEC, 0);
	long r, i;

	if (fd < 0)
		return UINT64_MAX;
	r = sys_read(fd, buf, sizeof(buf));
	(void)sys_close(fd);
	for (i = 0; i < r && buf[i] >= '0' && buf[i] <= '9'; i++)
		n = n * 10 + (uint64_t)(buf[i] - '0');
	return i ? n : UINT64_MAX;
}

static uint64_t
headroom_of(const char *dir, const char *limit_name, const char *usage_name)
{
	char path[512];
	size_t n = strlen(dir);
	uint64_t limit, usage;

	if (n + 40 > sizeof(path))
		return UINT64_MAX;
	memcpy(path, dir, n);
	strcpy(path + n, limit_name);
	limit = read_number(path);
	if (limit >= UINT64_MAX / 4)
		return UINT64_MAX;
	strcpy(path + n, usage_name);
	usage = read_number(path);
	if (usage == UINT64_MAX)
		return UINT64_MAX;
	return usage < limit ? limit - usage : 0;
}

/* The path behind "0::" (version 2) or ":memory:" (version 1) of this line, or
 * NULL. */
static char *
cgroup_path(char *line, bool *ret_v1)
{
	char *p = strstr(line, ":memory:");

	*ret_v1 = p != NULL;
	if (p)
		return p + 8;
	return starts_with(line, "0::") ? line + 3 : NULL;
}

/* "MemAvailable:  123456 kB" */
static uint64_t
machine_headroom(void)
{
	char buf[512], *p;
	uint64_t n = 0;

	if (!read_text("/proc/meminfo", buf, sizeof(buf)))
		return UINT64_MAX;
	p = strstr(buf, "MemAvailable:");
	if (!p)
		return UINT64_MAX;
	for (p += 13; *p == ' '; p++)
		;
	for (; *p >= '0' && *p <= '9'; p++)
		n = n * 10 + (uint64_t)(*p - '0');
	return n * 1024;
}

uint64_t
cow__process_headroom(void)
{
	char buf[2048], dir[400];
	uint64_t least = machine_headroom();
	char *line, *next;

	if (!read_text("/proc/self/cgroup", buf, sizeof(buf)))
		return least;
	for (line = buf; line && *line; line = next) {
		bool v1;
		char *path;
		uint64_t h;

		next = strchr(line, '\n');
		if (next)
			*next++ = '\0';
		path = cgroup_path(line, &v1);
		if (!path || strlen(path) > 300)
			continue;
		strcpy(dir, v1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup");
		strcat(dir, path);
		h = v1 ? headroom_of(dir, "/memory.limit_in_bytes",
		                     "/memory.usage_in_bytes")
		       : headroom_of(dir, "/memory.max", "/memory.current");
		if (h < least)
			least = h;
	}
	return least;
}

/* "/memfd:NAME (deleted)" */
static bool
is_memfd(const char *target, const char *name)
{
	size_t n = strlen(name);

	return starts_with(target, "/memfd:") &&
	       starts_with(target + 7, name) &&
	       (target[7 + n] == ' ' || target[7 + n] == '\0');
}

/* A name proves nothing: another process's fifo may have it, whose open would
 * wait for a writer. */
static int
read_first(int dir, const char *link, void *buf, size_t bytes)
{
	int fd = (int)sys_openat(dir, link, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct stat st;
	long r;

	if (fd < 0)
		return fd == -ENXIO ? -ENOENT : fd;
	r = SYS3(SYS_fstat, fd, &st, 0);
	if (r == 0)
		r = S_ISREG(st.st_mode) ? sys_pread(fd, buf, bytes, 0) : 0;
	(void)sys_close(fd);
	return r == (long)bytes ? 0 : r < 0 ? (int)r : -ENOENT;
}

int
cow__process_read_memfd(int32_t pid, const char *name, void *buf, size_t bytes)
{
	_Alignas(8) char entries[2048];
	char path[32], digits[12], target[64];
	int n = 0, dir, found = -ENOENT;
	long r;

	if (pid <= 0)
		return -ESRCH;
	strcpy(path, "/proc/");
	for (int32_t p = pid; p; p /= 10)
		digits[n++] = (char)('0' + p % 10);
	for (char *at = path + 6; n >= 0; at++)
		*at = n ? digits[--n] : (n--, '\0');
	strcat(path, "/fd");
	dir = (int)sys_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	if (dir < 0)
		return dir == -ENOENT ? -ESRCH : dir;
	while (found == -ENOENT &&
	       (r = sys_getdents(dir, entries, sizeof(entries))) > 0)
		for (long at = 0; found == -ENOENT && at < r;) {
			struct cow__entry *e = (struct cow__entry *)(entries + at);
			long len;

			at += e->len;
			len = sys_readlinkat(dir, e->name, target,
			                     sizeof(target) - 1);
			if (len <= 0)
				continue;
			target[len] = '\0';
			if (is_memfd(target, name))
				found = read_first(dir, e->name, buf, bytes);
		}
	(void)sys_close(dir);
	return found;
}

int
cow__process_atfork(void (*prepare)(void), void (*parent)(void),
                    void (*child)(void))
{
	return -pthread_atfork(prepare, parent, child);
}

int
cow__process_processors(void)
{
	uint64_t mask[128]; /* 8192 of them */
	long r = sys_sched_getaffinity(mask, sizeof(mask));
	int n = 0;

	for (long i = 0; i < r / 8; i++)
		n += __builtin_popcountll(mask[i]);
	return n > 0 ? n : 1;
}

COW_FORK_CODE COW_EXPORT int32_t
cow__process_id(void)
{
	return (int32_t)sys_getpid();
}

uint32_t
cow__process_user(void)
{
	return (uint32_t)SYS3(SYS_geteuid, 0, 0, 0);
}

bool
cow__process_is_raised(void)
{
	return getauxval(AT_SECURE) != 0;
}

static bool
capabilities(uint64_t *ret_effective, uint64_t *ret_permitted)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2] = { { 0, 0, 0 }, { 0, 0, 0 } };

	if (SYS3(SYS_capget, &head, data, 0) < 0)
		return false;
	*ret_effective = (uint64_t)data[1].effective << 32 | data[0].effective;
	*ret_permitted = (uint64_t)data[1].permitted << 32 | data[0].permitted;
	return true;
}

COW_EXPORT bool
cow__process_capable(uint64_t mask, bool any, bool permitted)
{
	uint64_t has[2];

	if (!capabilities(&has[0], &has[1]))
		return false;
	has[permitted] &= mask;
	return any ? has[permitted] != 0 : has[permitted] == mask;
}

COW_EXPORT COW_FORK_CODE bool
cow__process_opens_mapped(void)
{
	const uint64_t mask = 1ull << CAP_SYS_ADMIN | 1ull << COW__CAP_CHECKPOINT_RESTORE;
	uint64_t effective, permitted;

	return !capabilities(&effective, &permitted) || (permitted & mask);
}

/* Linux: ptrace(2), "Ptrace access mode checking". A process that changed its user without an exec
 * is not dumpable any more. */
bool
cow__process_traces_relatives(void)
{
	static int scope = -1; /* not asked yet */
	char text[16] = "";

	if (scope < 0) {
		int now = 0;

		if (read_text("/proc/sys/kernel/yama/ptrace_scope", text, sizeof(text)))
			now = text[0] - '0';
		scope = now < 0 || now > 3 ? 3 : now;
	}
	if (scope == 0 && SYS3(SYS_prctl, PR_GET_DUMPABLE, 0, 0) == 1)
		return true;
	return scope < 3 && cow__process_capable(1ull << CAP_SYS_PTRACE, true, false);
}

bool
cow__process_is_user(uint32_t uid)
{
	char map[64];

	if (uid != cow__process_user())
		return false;
	if (uid != 65534)
		return true;
	/* Users that a namespace does not know share one number. */
	if (!read_text("/proc/self/uid_map", map, sizeof(map)))
		return false;
	return strstr(map, " 4294967295") != NULL;
}

#if defined(COW_DEBUG) || defined(COW_SANITIZED) /* for core/memory/check.c */
void
cow__process_say(const char *text, size_t bytes)
{
	(void)SYS3(SYS_write, 2, text, bytes);
}
#endif

_Noreturn void
cow__process_exit(int status)
{
	for (;;)
		(void)SYS3(SYS_exit_group, status, 0, 0);
}

COW_EXPORT int
cow__random(void *buf, size_t bytes)
{
	long r = SYS3(SYS_getrandom, buf, bytes, 0);

	if (r < 0)
		return (int)r;
	return (size_t)r == bytes ? 0 : -EAGAIN;
}
