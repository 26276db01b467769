/* SPDX-License-Identifier: MIT */
/*
 * Which descriptors let the kernel or a device write memory: see the header.
 */
#include "memfd/pins.h"
#include "memfd/memfd.h"
#include "memfd/ring.h"
#include "memfd/sys.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

#ifndef AF_XDP
#define AF_XDP 44
#endif
#define PROC_MAGIC 0x9fa0

enum { GAP = 4 }; /* So many free numbers in a row: a question for the next one pays. */

static bool
starts_with(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* Character devices whose drivers keep the pages of programs, by the beginnings of their names. */
static const char *const devices[] = {
	"/dev/accel", "/dev/apex_", "/dev/cxi", "/dev/davinci", "/dev/devmm_svm", "/dev/dri/",
	"/dev/dxg", "/dev/gdrdrv", "/dev/habanalabs", "/dev/hfi1", "/dev/hisi_hdc", "/dev/hl",
	"/dev/infiniband/", "/dev/iommu", "/dev/ipath", "/dev/kfd", "/dev/kgsl", "/dev/knem",
	"/dev/mali", "/dev/myri", "/dev/neuron", "/dev/nvhost", "/dev/nvidia", "/dev/nvmap",
	"/dev/qaic", "/dev/sg", "/dev/st", "/dev/nst", "/dev/udmabuf", "/dev/uio", "/dev/vdpa",
	"/dev/vfio/", "/dev/vhost", "/dev/video", "/dev/xdma", "/dev/xocl", "/dev/xpmem",
};

/* More of them, from the option `devices`: names that end with a colon each. */
static char named[256];

int
cow__pins_name(const char *names, bool apply)
{
	size_t n = strlen(names);

	if (n > sizeof(named) - 2)
		return -EINVAL;
	for (const char *p = names; *p; p += strcspn(p, ":") + (p[strcspn(p, ":")] == ':'))
		if (*p != '/' || strcspn(p, ":") < 2) /* "/" would be every file */
			return -EINVAL;
	if (!apply)
		return 0;
	memcpy(named, names, n + 1);
	if (n && names[n - 1] != ':')
		memcpy(named + n, ":", 2);
	return 0;
}

static bool
target_pins(const char *target)
{
	if (starts_with(target, "anon_inode:[io_uring]"))
		return true;
	for (size_t i = 0; i < sizeof(devices) / sizeof(*devices); i++)
		if (starts_with(target, devices[i]))
			return true;
	for (const char *p = named; *p; p += strcspn(p, ":") + 1)
		if (strncmp(target, p, strcspn(p, ":")) == 0)
			return true;
	return false;
}

/* Is it a shortage that keeps the look from succeeding? Then the answer is
 * unknown. Without /proc to look into, the answer is that nothing pins memory
 * (docs/design/fork.md). */
static bool
is_shortage(long r)
{
	return r == -EMFILE || r == -ENFILE || r == -ENOMEM;
}

/* Terminals are not asked for their names, because that takes longer than all other questions. */
static bool
is_terminal(const struct stat *st)
{
	unsigned a = major(st->st_rdev);

	return S_ISCHR(st->st_mode) && !*named && (a == 4 || (a >= 136 && a <= 143));
}

static bool
name_pins(int fd)
{
	char path[40] = "/proc/self/fd/", target[64];
	long r;

	(void)cow__number_append(path + strlen(path), (uint64_t)fd, 10);
	r = sys_readlinkat(AT_FDCWD, path, target, sizeof(target) - 1);
	if (r <= 0)
		return is_shortage(r);
	target[r] = '\0';
	return target_pins(target);
}

/* /proc/PID/mem writes the memory of a process, and it may be this one's. It is an empty
 * file of its owner on no device. Other files hardly look like that, so only those that
 * do are asked for their file system. */
static bool
is_memory(int fd, const struct stat *st, long flags)
{
	struct statfs fs;
	long r;

	if (st->st_size != 0 || (st->st_mode & 07777) != 0600 ||
	    major(st->st_dev) != 0 || (flags & O_ACCMODE) == O_RDONLY)
		return false;
	r = SYS3(SYS_fstatfs, fd, &fs, 0);
	return r < 0 ? is_shortage(r) : fs.f_type == PROC_MAGIC;
}

enum answer {
	HARMLESS,
	PINS,
	CLOSED, /* or O_PATH, which reads and writes nothing */
};

/* A server may have thousands of descriptors, most of them sockets. So one question is enough for a
 * socket, and for a free number. Packets land in memory that an AF_XDP socket was given; the links
 * of all sockets look alike. */
static enum answer
ask_descriptor(int fd)
{
	struct stat st;
	int family = 0;
	uint32_t bytes = sizeof(family);
	long r;

	if (cow__ring_harmless(fd))
		return HARMLESS;
	r = SYS6(SYS_getsockopt, fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes, 0);
	if (r == -EBADF)
		return CLOSED;
	if (r == 0)
		return family == AF_XDP ? PINS : HARMLESS;
	r = SYS3(SYS_fstat, fd, &st, 0);
	if (r < 0)
		return is_shortage(r) ? PINS : CLOSED;
	if (S_ISSOCK(st.st_mode) || S_ISFIFO(st.st_mode) || S_ISDIR(st.st_mode) || is_terminal(&st))
		return HARMLESS;
	r = sys_fcntl(fd, F_GETFL, 0);
	/* A file that can only be written reads memory, and changes none. */
	if (r >= 0 && (r & O_DIRECT) && (r & O_ACCMODE) != O_WRONLY)
		return PINS;
	if (S_ISREG(st.st_mode))
		return r >= 0 && is_memory(fd, &st, r) ? PINS : HARMLESS;
	return name_pins(fd) ? PINS : HARMLESS;
}

static int
name_to_fd(const char *name)
{
	int fd = 0;

	for (; *name; name++) {
		if (*name < '0' || *name > '9')
			return -1;
		fd = fd * 10 + (*name - '0');
	}
	return fd;
}

/* The first open number from `from` on. 0: there is none. The position in this directory is the
 * number and two more, for the entries of directories. */
static long
next_open(int dir, int from, int *ret)
{
	_Alignas(8) char buf[64]; /* one or two entries: the kernel makes an inode for each */
	struct cow__entry *e = (void *)buf;
	long r = sys_lseek(dir, (int64_t)from + 2, SEEK_SET);

	if (r >= 0)
		r = sys_getdents(dir, buf, sizeof(buf));
	if (r <= 0)
		return r;
	*ret = name_to_fd(e->name);
	return *ret >= from ? 1 : -EIO;
}

/*
 * Numbers are asked one after the other, free ones too, because an entry of /proc/self/fd takes as
 * long as twenty questions. It says where to go on after a gap.
 */
bool
cow__pins_memory(void)
{
	enum answer answer = HARMLESS;
	int dir, fd = 0;
	long r = 1;

	dir = (int)sys_open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC,
	                    0);
	if (dir < 0)
		return is_shortage(dir);
	while (r > 0 && answer != PINS) {
		for (int gap = 0; gap < GAP && answer != PINS; fd++) {
			answer = ask_descriptor(fd);
			gap = answer == CLOSED ? gap + 1 : 0;
		}
		if (answer != PINS)
			r = next_open(dir, fd, &fd);
	}
	(void)sys_close(dir);
	return answer == PINS || r < 0;
}
