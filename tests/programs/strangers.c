/* SPDX-License-Identifier: MIT */
/*
 * Another user can open nothing of a process
 *
 * The stranger tries each descriptor and mapping of a process by its name in /proc, its
 * memory, and every file in the usual places that is one of its open files. If this program
 * can't become another user it is the same user with dumps forbidden, which the kernel treats
 * alike. The program that is executed next finds no memory open.
 */
#include "program.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/stat.h>

enum { FILES = 256 };

static struct {
	dev_t dev;
	ino_t ino;
} files[FILES];
static int files_count;
static pid_t victim;

/* Descriptors 0 to 2 are the caller's, and may be open to all. */
static void remember(int fd)
{
	struct stat st;

	if (fd <= 2 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		return;
	check(files_count < FILES);
	files[files_count].dev = st.st_dev;
	files[files_count++].ino = st.st_ino;
}

static void each_descriptor(void (*visit)(int))
{
	DIR *dir = opendir("/proc/self/fd");
	const struct dirent *e;

	check(dir != NULL);
	while ((e = readdir(dir)) != NULL)
		if (e->d_name[0] != '.' && atoi(e->d_name) != dirfd(dir))
			visit(atoi(e->d_name));
	closedir(dir);
}

static void refused(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0)
		dprintf(2, "strangers: %s can be opened\n", path);
	check(fd < 0);
}

static void tries_proc(void)
{
	static const char *const names[] = { "mem", "pagemap", "environ" };
	char path[64];

	/* By number, because the list can't be read either. */
	for (int fd = 0; fd < 4096; fd++) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)victim, fd);
		refused(path);
	}
	for (size_t i = 0; i < COUNT(names); i++) {
		snprintf(path, sizeof(path), "/proc/%d/%s", (int)victim, names[i]);
		refused(path);
	}
}

/* Every mapping's file, by the name that the victim itself sees. */
static char (*mapped)[64];
static int mapped_count;

static void list_mappings(void)
{
	DIR *dir = opendir("/proc/self/map_files");
	const struct dirent *e;
	char link[80];

	if (dir == NULL)
		return;
	mapped = calloc(4096, sizeof(*mapped));
	check(mapped != NULL);
	while ((e = readdir(dir)) != NULL && mapped_count < 4096) {
		ssize_t n = readlinkat(dirfd(dir), e->d_name, link, sizeof(link) - 1);

		/* All users may read programs and libraries. */
		link[n < 0 ? 0 : n] = '\0';
		if (strstr(link, "memfd:") || strstr(link, "(deleted)"))
			snprintf(mapped[mapped_count++], sizeof(*mapped), "%s", e->d_name);
	}
	closedir(dir);
}

static void tries_mappings(void)
{
	char path[128];

	for (int i = 0; i < mapped_count; i++) {
		snprintf(path, sizeof(path), "/proc/%d/map_files/%s", (int)victim, mapped[i]);
		refused(path);
	}
}

static void tries_names(const char *folder, int depth)
{
	DIR *dir = opendir(folder);
	const struct dirent *e;
	struct stat st;
	char path[512];

	if (dir == NULL)
		return;
	while ((e = readdir(dir)) != NULL) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (snprintf(path, sizeof(path), "%s/%s", folder, e->d_name) >=
		            (int)sizeof(path) ||
		    lstat(path, &st) != 0)
			continue;
		if (S_ISDIR(st.st_mode) && depth > 0)
			tries_names(path, depth - 1);
		for (int i = 0; i < files_count; i++)
			if (files[i].dev == st.st_dev && files[i].ino == st.st_ino)
				refused(path);
	}
	closedir(dir);
}

static void stranger(void *arg)
{
	static const char *const places[] = { "/dev/shm", "/tmp", "/var/tmp", "/run",
		                              "/dev/hugepages" };
	const char *own = getenv("TMPDIR");

	(void)arg;
	if (getuid() == 0) {
		check(setgroups(0, NULL) == 0);
		check(setgid(65534) == 0 && setuid(65534) == 0);
	}
	tries_proc();
	tries_mappings();
	for (size_t i = 0; i < COUNT(places); i++)
		tries_names(places[i], 2);
	if (own != NULL)
		tries_names(own, 2);
}

static void no_memory(int fd)
{
	char path[64], link[64] = "";

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	check(readlink(path, link, sizeof(link) - 1) > 0);
	check(strstr(link, "memfd:") == NULL);
}

/* In a process without the libraries that this one may be under. */
static void next_program(void *arg)
{
	(void)arg;
	unsetenv("LD_PRELOAD");
	execl("/proc/self/exe", "strangers", "next", (char *)NULL);
	_exit(1);
}

int main(int argc, char **argv)
{
	unsigned char *p;

	(void)argv;
	if (argc > 1) {
		each_descriptor(no_memory);
		return 0;
	}
	p = get_filled(10 * MIB, 1);
	if (getuid() != 0)
		check(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
	victim = getpid();
	each_descriptor(remember);
	list_mappings();
	in_child(stranger, NULL);
	check(holds(p, 10 * MIB, 1));
	if (getuid() != 0)
		check(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0);
	in_child(next_program, NULL);
	free(p);
	puts("strangers: done");
	return 0;
}
