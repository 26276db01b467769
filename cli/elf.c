/* SPDX-License-Identifier: MIT */
/*
 * Would the shim load into this program?
 *
 * The dynamic loader reads LD_PRELOAD, and the program's file names the loader.
 * So the file tells if the shim would not load:
 *
 *      no PT_INTERP                  linked statically: there is no loader
 *      another loader than ours      another libc, which the shim is not made for
 *      another class or machine      the loader could not map the shim
 *      set-user-ID, capabilities     the loader ignores paths in LD_PRELOAD
 *
 * Nor would the program run with it if it has a sanitizer inside, which wants malloc and its like
 * for itself, and to be the first library. The names of its symbols and libraries tell that.
 *
 * For a script the program in its first line counts, which may be a script
 * again. A file that can't be read is left to exec, whose error says best what is
 * wrong. In doubt, the shim is taken to load.
 */
#include "cli/cli.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

enum {
	SCRIPTS_MOST = 5, /* as the kernel */
	HEADERS_MOST = 64,
	SECTIONS_MOST = 256,
	NAMES_MOST = 64 << 20,
};

struct file {
	int fd;
	ElfW(Ehdr) head;
	char loader[256]; /* "": none */
};

static bool read_at(int fd, void *to, size_t bytes, off_t at)
{
	return pread(fd, to, bytes, at) == (ssize_t)bytes;
}

static bool is_elf(const struct file *f)
{
	return memcmp(f->head.e_ident, ELFMAG, SELFMAG) == 0;
}

/* Is its header like the header of this program? */
static bool is_alike(const struct file *f, const struct file *own)
{
	return f->head.e_ident[EI_CLASS] == own->head.e_ident[EI_CLASS] &&
	       f->head.e_ident[EI_DATA] == own->head.e_ident[EI_DATA] &&
	       f->head.e_machine == own->head.e_machine;
}

/* 0, or -1 if the headers make no sense. */
static int find_loader(struct file *f)
{
	for (int i = 0; i < f->head.e_phnum && i < HEADERS_MOST; i++) {
		off_t at = (off_t)(f->head.e_phoff +
		                   (size_t)i * f->head.e_phentsize);
		ElfW(Phdr) p;

		if (!read_at(f->fd, &p, sizeof p, at))
			return -1;
		if (p.p_type != PT_INTERP)
			continue;
		if (p.p_filesz == 0 || p.p_filesz > sizeof f->loader ||
		    !read_at(f->fd, f->loader, p.p_filesz, (off_t)p.p_offset))
			return -1;
		f->loader[p.p_filesz - 1] = 0;
	}
	return 0;
}

static int open_file(const char *path, struct file *ret)
{
	*ret = (struct file){.fd = open(path, O_RDONLY | O_CLOEXEC)};
	if (ret->fd < 0)
		return -1;
	if (read_at(ret->fd, &ret->head, sizeof ret->head, 0))
		return 0;
	/* Too short for a program, but maybe a script. */
	memset(&ret->head, 0, sizeof ret->head);
	return 0;
}

/* The same name, or the same file. */
static bool same_loader(const char *a, const char *b)
{
	struct stat of_a, of_b;

	if (strcmp(a, b) == 0)
		return true;
	return stat(a, &of_a) == 0 && stat(b, &of_b) == 0 &&
	       of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

/* The kernel raises no privileges after PR_SET_NO_NEW_PRIVS, nor from a nosuid
 * mount. A caller with the user or group of the file gains none. */
static bool gains_privileges(int fd)
{
	char capabilities[64];
	struct statvfs mount;
	struct stat st;

	if (fstat(fd, &st) < 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ||
	    (fstatvfs(fd, &mount) == 0 && (mount.f_flag & ST_NOSUID)))
		return false;
	if ((st.st_mode & S_ISUID) && st.st_uid != getuid())
		return true;
	if ((st.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) &&
	    st.st_gid != getgid())
		return true;
	return getuid() != 0 && fgetxattr(fd, "security.capability",
	                                  capabilities,
	                                  sizeof capabilities) > 0;
}

/* Of the runtimes of gcc and clang: functions that the compiler calls, and libraries. Each is a
 * whole string of the table, or the beginning of one. */
static bool names_sanitizer(const char *table, size_t bytes)
{
	static const char functions[][16] = { "__asan_init", "__tsan_init", "__msan_init",
		                              "__lsan_init", "__hwasan_init" };
	static const char libraries[][24] = { "\0libasan.so", "\0libtsan.so", "\0liblsan.so",
		                              "\0libhwasan.so", "\0libclang_rt.asan",
		                              "\0libclang_rt.tsan", "\0libclang_rt.hwasan" };

	for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
		if (memmem(table, bytes, functions[i], strlen(functions[i]) + 1) != NULL)
			return true;
	for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++)
		if (memmem(table, bytes, libraries[i], strlen(libraries[i] + 1) + 1) != NULL)
			return true;
	return false;
}

/* In the names of its libraries and symbols, those that are not stripped. */
static bool has_sanitizer(const struct file *f)
{
	bool found = false;

	for (int i = 0; i < f->head.e_shnum && i < SECTIONS_MOST && !found; i++) {
		ElfW(Shdr) s;
		char *table;

		if (!read_at(f->fd, &s, sizeof s,
		             (off_t)(f->head.e_shoff + (size_t)i * f->head.e_shentsize)))
			return false;
		if (s.sh_type != SHT_STRTAB || s.sh_size > NAMES_MOST)
			continue;
		table = malloc(s.sh_size + 1);
		if (table == NULL)
			return false;
		found = read_at(f->fd, table, s.sh_size, (off_t)s.sh_offset) &&
		        names_sanitizer(table, s.sh_size);
		free(table);
	}
	return found;
}

static const char linked_statically[] = "it is linked statically";

/* A loader that can't load the shim prints an error, or gives up. */
static const char *judge(struct file *f, bool *ret_harmless)
{
	struct file own;
	const char *why = NULL;

	if (open_file("/proc/self/exe", &own) < 0)
		return NULL;
	if (find_loader(&own) < 0)
		why = NULL;
	else if (!is_alike(f, &own))
		why = "it is made for another kind of processor";
	else if (find_loader(f) < 0)
		why = NULL;
	else if (f->loader[0] == 0)
		why = linked_statically;
	else if (own.loader[0] != 0 && !same_loader(f->loader, own.loader))
		why = "it uses another libc";
	else if (gains_privileges(f->fd))
		why = "it runs with raised privileges";
	else if (has_sanitizer(f))
		why = "it has a sanitizer, which needs malloc for itself";
	close(own.fd);
	*ret_harmless = why == linked_statically;
	return why;
}

/* The interpreter that the first line of a script names. */
static bool read_script(int fd, char ret[PATH_MAX])
{
	char line[256];
	ssize_t n = pread(fd, line, sizeof line - 1, 0);
	size_t from, length;

	if (n < 3 || line[0] != '#' || line[1] != '!')
		return false;
	line[n] = 0;
	from = 2 + strspn(line + 2, " \t");
	length = strcspn(line + from, " \t\n");
	if (length == 0)
		return false;
	memcpy(ret, line + from, length);
	ret[length] = 0;
	return true;
}

/* Where execvp() will find it. */
static bool find_in_path(const char *name, char ret[PATH_MAX])
{
	const char *path = getenv("PATH");

	if (strchr(name, '/') != NULL)
		return snprintf(ret, PATH_MAX, "%s", name) < PATH_MAX;
	if (path == NULL)
		path = "/bin:/usr/bin";
	for (;; path++) {
		int length = (int)strcspn(path, ":");
		struct stat st;

		if (snprintf(ret, PATH_MAX, "%.*s%s%s", length, path,
		             length > 0 ? "/" : "", name) < PATH_MAX &&
		    access(ret, X_OK) == 0 && stat(ret, &st) == 0 &&
		    S_ISREG(st.st_mode))
			return true;
		path += length;
		if (*path == 0)
			return false;
	}
}

const char *cli_elf_refuses(const char *program, bool *ret_harmless)
{
	char path[PATH_MAX];
	const char *why = NULL;
	struct file f;
	bool again;

	if (!find_in_path(program, path))
		return NULL;
	for (int depth = 0; depth < SCRIPTS_MOST; depth++) {
		if (open_file(path, &f) < 0)
			return NULL;
		if (is_elf(&f))
			why = judge(&f, ret_harmless);
		again = !is_elf(&f) && read_script(f.fd, path);
		close(f.fd);
		if (!again)
			break;
	}
	return why;
}
