/* SPDX-License-Identifier: MIT */
/*
 * Starting programs in all the ways there are, with large blocks alive
 *
 * vfork, posix_spawn, system and popen run no fork handlers and share or leave
 * the memory in ways of their own. And after an exec nothing of the old
 * program is left: no descriptor, no mapping. This program runs itself again,
 * without LD_PRELOAD, to see that.
 */
#include "program.h"

#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>

enum { BLOCKS = 5 };

static const size_t bytes = 3 * MIB;
static unsigned char *blocks[BLOCKS];
static char *self;

static void check_all(void)
{
	int i;

	for (i = 0; i < BLOCKS; i++)
		check(holds(blocks[i], bytes, (uint64_t)i));
}

/* What the next program inherited. */
static int look_around(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	char link[64], target[256], line[512];
	int count = 0, lines = 0;
	FILE *maps;
	ssize_t n;

	while (dir != NULL && (entry = readdir(dir)) != NULL) {
		if (entry->d_name[0] == '.' || atoi(entry->d_name) < 3 ||
		    atoi(entry->d_name) == dirfd(dir))
			continue;
		snprintf(link, sizeof(link), "/proc/self/fd/%.20s",
		         entry->d_name);
		n = readlink(link, target, sizeof(target) - 1);
		target[n < 0 ? 0 : n] = '\0';
		count += strstr(target, "cowshed") != NULL;
	}
	maps = fopen("/proc/self/maps", "re");
	while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
		lines += strstr(line, "cowshed") != NULL &&
		         strstr(line, "memfd") != NULL;
	printf("spawn: %d descriptors, %d mappings of the old program\n", count,
	       lines);
	return 0;
}

static char *nothing[] = { NULL };

static void exec_self(void)
{
	char *argv[] = { self, (char *)"look", NULL };

	execve(self, argv, nothing);
	_exit(127);
}

static void execs(void *arg)
{
	(void)arg;
	check_all();
	exec_self();
}

/* The allocation happens in the child, too, and then the exec. */
static void allocates_and_execs(void *arg)
{
	unsigned char *p = get_filled(5 * MIB, 1);

	check(holds(p, 5 * MIB, 1));
	fill(blocks[0], bytes, 0);
	execs(arg == NULL ? p : arg);
}

static void by_vfork(void)
{
	int status;
	pid_t child;

	fflush(NULL);
	child = vfork();
	check(child >= 0);
	if (child == 0)
		exec_self();
	check(waitpid(child, &status, 0) == child && status == 0);
	child = vfork();
	if (child == 0)
		_exit(7);
	check(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
	check_all();
}

static void by_posix_spawn(void)
{
	char *argv[] = { self, (char *)"look", NULL };
	posix_spawn_file_actions_t actions;
	int status;
	pid_t child;

	fflush(NULL);
	check(posix_spawn(&child, self, NULL, NULL, argv, nothing) == 0);
	check(waitpid(child, &status, 0) == child && status == 0);
	check(posix_spawn_file_actions_init(&actions) == 0);
	check(posix_spawn_file_actions_addopen(&actions, 0, "/dev/null",
	                                       O_RDONLY, 0) == 0);
	check(posix_spawn_file_actions_adddup2(&actions, 1, 5) == 0);
	check(posix_spawn_file_actions_addclose(&actions, 5) == 0);
	check(posix_spawn_file_actions_addclosefrom_np(&actions, 3) == 0);
	check(posix_spawn(&child, self, &actions, NULL, argv, nothing) == 0);
	check(waitpid(child, &status, 0) == child && status == 0);
	check(posix_spawn_file_actions_destroy(&actions) == 0);
	check(posix_spawn(&child, "/no/such/program", NULL, NULL, argv,
	                  nothing) == ENOENT);
	check_all();
}

static void by_shell(void)
{
	char line[64];
	FILE *pipe;

	fflush(NULL);
	check(WEXITSTATUS(system("exit 3")) == 3);
	check_all();
	pipe = popen("echo from the shell", "r");
	check(pipe != NULL && fgets(line, sizeof(line), pipe) != NULL);
	printf("spawn: %s", line);
	check(pclose(pipe) == 0);
	fflush(NULL);
	pipe = popen("cat", "w");
	check(pipe != NULL && fputs("spawn: to the shell\n", pipe) >= 0);
	check(pclose(pipe) == 0);
	check_all();
}

int main(int argc, char **argv)
{
	int i, round;

	if (argc > 1)
		return look_around();
	self = realpath("/proc/self/exe", NULL);
	if (self == NULL)
		self = argv[0];
	for (i = 0; i < BLOCKS; i++)
		blocks[i] = get_filled(bytes, (uint64_t)i);
	for (round = 0; round < 3; round++) {
		in_child(execs, NULL);
		in_child(allocates_and_execs, blocks);
		by_vfork();
		by_posix_spawn();
		by_shell();
		for (i = 0; i < BLOCKS; i++)
			fill(blocks[i], bytes, (uint64_t)i);
		check_all();
	}
	fflush(NULL);
	exec_self();
	return 1;
}
