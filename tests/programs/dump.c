/* SPDX-License-Identifier: MIT */
/*
 * A core dump has all of a block, also after forks, but for the parts that the
 * program asked to leave out
 *
 * A child crashes; its parent reads the core file, which is ELF: the headers
 * say which addresses lie where in it. Clean pages of a frozen block count as
 * private pages of a file: bit 2 of coredump_filter, which is set here.
 *
 *     dump DIRECTORY    an empty one, where the kernel writes a file "core"
 *
 * Debuggers write core files of their own, with all mappings. Terabytes that can't be read
 * must be marked, so that debuggers leave them out.
 */
#include "pages.h"

#include <dirent.h>
#include <elf.h>
#include <sys/resource.h>

#define BYTES (4 * MIB)

enum state { WRITTEN, FROZEN, REWRITTEN, LEFT_OUT, STATES };

static const char *const names[] = { "written", "frozen", "rewritten",
	                             "left out" };

static int to_grandchild[2], address[2];

static void waits(void *arg)
{
	(void)arg;
	gate_wait(to_grandchild);
}

static void crashes(enum state state)
{
	struct rlimit unlimited = { RLIM_INFINITY, RLIM_INFINITY };
	int filter = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);
	unsigned char *p = get_pages(BYTES);

	check(filter >= 0 && write(filter, "0x37", 4) == 4);
	check(setrlimit(RLIMIT_CORE, &unlimited) == 0);
	fill(p, BYTES, 1);
	if (state != WRITTEN)
		start(waits, NULL);
	if (state == REWRITTEN)
		fill(p, MIB, 2);
	if (state == LEFT_OUT)
		check(madvise(p + MIB, MIB, MADV_DONTDUMP) == 0);
	check(write(address[1], &p, sizeof(p)) == sizeof(p));
	abort();
}

/* Reads the bytes that the core file has at `at`. Returns their number. */
static size_t bytes_of(int core, uintptr_t at, unsigned char *to, size_t want)
{
	size_t sum = 0;
	Elf64_Ehdr head;
	Elf64_Phdr part;
	int i;

	check(pread(core, &head, sizeof(head), 0) == sizeof(head));
	check(memcmp(head.e_ident, ELFMAG, SELFMAG) == 0);
	for (i = 0; i < head.e_phnum; i++) {
		uint64_t from, end;

		check(pread(core, &part, sizeof(part),
		            (off_t)(head.e_phoff + i * sizeof(part))) ==
		      sizeof(part));
		from = part.p_vaddr > at ? part.p_vaddr : at;
		end = part.p_vaddr + part.p_filesz;
		end = end < at + want ? end : at + want;
		if (part.p_type != PT_LOAD || from >= end)
			continue;
		check(pread(core, to + (from - at), end - from,
		            (off_t)(part.p_offset + (from - part.p_vaddr))) ==
		      (ssize_t)(end - from));
		sum += end - from;
	}
	return sum;
}

/* The core file, under the name that the kernel chose. */
static int open_core(void)
{
	DIR *here = opendir(".");
	struct dirent *entry;
	int core = -1;

	check(here != NULL);
	while (core < 0 && (entry = readdir(here)) != NULL)
		if (strncmp(entry->d_name, "core", 4) == 0) {
			core = open(entry->d_name, O_RDONLY | O_CLOEXEC);
			check(unlink(entry->d_name) == 0);
		}
	closedir(here);
	return core;
}

static void crash_in(enum state state)
{
	unsigned char *p, *found = calloc(1, BYTES);
	pid_t child;
	int status, core;

	fflush(NULL);
	child = fork();
	check(child >= 0);
	if (child == 0)
		crashes(state);
	check(read(address[0], &p, sizeof(p)) == sizeof(p));
	check(waitpid(child, &status, 0) == child);
	check(WIFSIGNALED(status) && WCOREDUMP(status));
	if (state != WRITTEN)
		gate_open(to_grandchild);
	core = open_core();
	check(core >= 0);
	printf("dump: %s: %zu KiB\n", names[state],
	       bytes_of(core, (uintptr_t)p, found, BYTES) / KIB);
	close(core);
	p = get_filled(BYTES, 1);
	if (state == REWRITTEN)
		fill(p, MIB, 2);
	if (state == LEFT_OUT)
		memset(p + MIB, 0, MIB);
	check(memcmp(found, p, BYTES) == 0);
	free(p);
	free(found);
}

static void check_reserved(void)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	unsigned long start, end;
	char line[512], mode[8];
	int reserved = 0;

	check(f != NULL);
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %4s", &start, &end, mode) == 3)
			reserved = end - start >= 1024 * MIB && strcmp(mode, "---p") == 0;
		else if (reserved && strncmp(line, "VmFlags:", 8) == 0)
			check(strstr(line, " dd") != NULL);
	fclose(f);
}

int main(int argc, char **argv)
{
	int state;

	pages_init();
	gate_make(to_grandchild);
	gate_make(address);
	check(argc > 1 && chdir(argv[1]) == 0);
	for (state = WRITTEN; state < STATES; state++)
		crash_in((enum state)state);
	check_reserved();
	return 0;
}
