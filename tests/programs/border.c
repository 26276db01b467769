/* SPDX-License-Identifier: MIT */
/*
 * A child that gave up privileges attacks its relatives, and each other way round
 *
 *     border DIRECTION BIRTH WAY STATE ATTACK
 *
 * The direction says which relative is the stranger, the birth how a child comes to be, the
 * way how the stranger drops. border_*.h list them all; "border" alone prints them. The exit
 * status is 0 if the border held, 1 with a line if something leaked or ended badly, 77 if
 * this kernel or user can't try it.
 *
 * A process that has no memory yet starts the play in a new program, and ends what is left.
 */
#include "border.h"
#include "border_attacks.h"
#include "border_births.h"
#include "border_lent.h"
#include "border_pinned.h"
#include "border_states.h"
#include "border_ways.h"

#include <poll.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <time.h>

enum { SECONDS = 60, SECONDS_AFTER_LEAK = 3 };

static const struct state states[] = {
	{ "clean", clean_before, nothing, nothing, nothing },
	{ "one", clean_before, nothing, nothing, one_after },
	{ "dense", clean_before, nothing, nothing, dense_after },
	{ "twice", clean_before, nothing, nothing, twice_after },
	{ "older", older_before, nothing, nothing, dense_after },
	{ "cycles", cycles_before, nothing, nothing, cycles_after },
	{ "healed", healed_before, nothing, nothing, one_after },
	{ "thawed", two_before, frees, nothing, freed_after },
	{ "thawed-late", two_before, nothing, frees, freed_after },
	{ "warm", warm_before, nothing, nothing, new_after },
	{ "new", clean_before, nothing, nothing, new_after },
	{ "freed", freed_before, nothing, nothing, nothing },
	{ "limbo", clean_before, nothing, nothing, limbo_after },
	{ "dontfork-old", dontfork_old, nothing, nothing, nothing },
	{ "dontfork-new", dontfork_new, nothing, nothing, nothing },
	{ "dontfork-later", dontfork_later, nothing, nothing, nothing },
	{ "wipeonfork-old", wipeonfork_old, nothing, nothing, nothing },
	{ "wipeonfork-new", wipeonfork_new, nothing, nothing, nothing },
	{ "registered", registered_before, nothing, nothing, registered_after },
};

static const struct attack attacks[] = {
	{ "read", ready, nothing, read_fds, 0 },
	{ "map", ready, nothing, map_fds, 0 },
	{ "write", ready, nothing, write_fds, 0 },
	{ "map-write", ready, nothing, map_write_fds, 0 },
	{ "open", ready, nothing, open_fds, 0 },
	{ "punch", ready, nothing, punch_fds, 0 },
	{ "seal", ready, nothing, seal_fds, 0 },
	{ "blind", nothing, nothing, write_blindly, 1 },
	{ "held", ready, nothing, held, 0 },
	{ "words-0", ready, touch_and_words_0, read_and_grow, 0 },
	{ "words-1", ready, words_1, read_and_grow, 0 },
	{ "own", ready, touch_own, read_regions, 0 },
	{ "grow", ready, nothing, grow, 0 },
	{ "files-read", ready, nothing, open_read, 0 },
	{ "files-write", ready, nothing, open_write, 0 },
	{ "files-punch", ready, nothing, open_punch, 0 },
	{ "pipe", lend, nothing, look_at_pipe, 0 },
	{ "pipe-late", nothing, lend_late, look_at_pipe, 0 },
	{ "pipe-unmap", nothing, unmap_all, look_at_pipe, 0 },
	{ "pipe-exec", nothing, becomes_another, nothing, 0 },
	{ "pipe-fd", note_lent, splice_fds, look_at_pipe, 0 },
	{ "sent", connect_and_send, nothing, look_at_socket, 0 },
	{ "sent-late", connect_slowly, send_pages, look_at_socket, 0 },
	{ "handle-read", keep_handles, nothing, handles_read, 0 },
	{ "handle-write", keep_handles, nothing, handles_write, 0 },
	{ "watch", note_watches, find_watches, nothing, 0 },
	{ "nothing", nothing, nothing, nothing, 0 },
};

static const struct birth *birth;
static const struct way *way;
static const struct state *state;
static const struct attack *attack;

/* ---- The two ------------------------------------------------------------- */

static int is(const char *direction) { return strcmp(play.direction, direction) == 0; }

/* The victim lives on: it writes, allocates and forks. */
static void goes_on(void)
{
	pid_t pid;

	for (unsigned i = 0; i < (unsigned)blocks_count; i++)
		if (blocks[i].p) {
			fill(blocks[i].p, BLOCK, 100 + i);
			fill(blocks[i].shadow, BLOCK, 100 + i);
		}
	free(get_filled(BLOCK, 1));
	pid = fork();
	check(pid >= 0);
	if (pid == 0) {
		if (!advised)
			blocks_check();
		_exit(0);
	}
	finish(pid);
	blocks_check();
}

static void wait_until_stopped(void)
{
	int status;

	check(waitpid(play.stranger, &status, WUNTRACED) == play.stranger);
	check(WIFSTOPPED(status));
}

static void victim(void)
{
	if (is("rivals") && (setgroups(0, NULL) || setgid(1) || setuid(1))) {
		say("skip no other user: %s", strerror(errno));
		leave();
	}
	publish();
	await(play.to_victim);
	if (is("stopped"))
		wait_until_stopped();
	state->after();
	publish();
	if (is("stopped"))
		kill(play.stranger, SIGCONT);
	if (is("killed"))
		kill(play.stranger, SIGKILL);
	tell(play.to_stranger);
	if (!is("killed"))
		await(play.to_victim);
	blocks_check();
	goes_on();
	if (is("killed"))
		say("done");
	say("fine");
	tell(play.to_stranger);
}

static void strikes(void)
{
	attack->early();
	state->late();
	tell(play.to_victim);
	if (is("stopped"))
		raw(SYS_kill, raw(SYS_getpid, 0, 0, 0, 0, 0, 0), SIGSTOP, 0, 0, 0, 0);
	await_raw(play.to_stranger);
	attack->strike();
	tell(play.to_victim);
	await_raw(play.to_stranger);
	say("done");
}

static void stranger(void)
{
	pid_t pid;

	if (is("traced"))
		await(play.to_stranger);
	attack->honest();
	state->honest();
	if (way->drop() != 0) {
		say("skip %s: %s", way->name, strerror(errno));
		leave();
	}
	if (is("heir") || is("heir-alone")) {
		pid = fork();
		check(pid >= 0);
		if (pid > 0) {
			if (is("heir"))
				waitpid(pid, NULL, 0);
			leave();
		}
	}
	strikes();
}

static void stranger_ends(void)
{
	stranger();
	leave();
}

static void victim_ends(void)
{
	victim();
	leave();
}

static void makes_stranger(void)
{
	play.stranger = birth->make(stranger_ends);
	if (play.stranger < 0) {
		say("skip %s: %s", birth->name, strerror(errno));
		leave();
	}
}

/* Each call of the stranger stops twice, as under strace. */
static void traces(void)
{
	pid_t pid = play.stranger;
	int status, sig;

	if (ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACESYSGOOD) != 0 ||
	    ptrace(PTRACE_INTERRUPT, pid, 0, 0) != 0) {
		say("skip no tracing: %s", strerror(errno));
		leave();
	}
	tell(play.to_stranger);
	while (waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status)) {
		sig = WSTOPSIG(status);
		if (sig == (SIGTRAP | 0x80) || status >> 16)
			sig = 0;
		ptrace(PTRACE_SYSCALL, pid, 0, sig);
	}
	leave();
}

static void child_that_makes(void)
{
	makes_stranger();
	waitpid(play.stranger, NULL, 0);
	leave();
}

/* The stranger became another program and has nothing but a pipe. */
static int after_exec(char **argv)
{
	play.verdict = atoi(argv[0]);
	play.to_stranger[0] = atoi(argv[1]);
	play.to_victim[1] = atoi(argv[2]);
	drain[0] = atoi(argv[3]);
	tell(play.to_victim);
	await_raw(play.to_stranger);
	look_at_pipe();
	tell(play.to_victim);
	await_raw(play.to_stranger);
	say("done");
	return 0;
}

/* ---- Directions ---------------------------------------------------------- */

/* Also of a stranger that has a child which attacks, and of one that is stopped or killed. */
static void child_to_parent(void)
{
	makes_stranger();
	victim();
}

static void traced_to_parent(void)
{
	makes_stranger();
	check(born_fork(traces) > 0);
	victim();
}

static void parent_to_child(void)
{
	if (birth->make(victim_ends) < 0) {
		say("skip %s: %s", birth->name, strerror(errno));
		leave();
	}
	stranger();
}

static void to_sibling(void)
{
	check(born_fork(victim_ends) > 0);
	makes_stranger();
	while (wait(NULL) > 0)
		;
}

static void to_grandparent(void)
{
	check(born_fork(child_that_makes) > 0);
	victim();
}

/* Both lose their parent at once. The victim is a daemon. */
static void to_orphan(void)
{
	check(born_fork(victim_ends) > 0);
	makes_stranger();
}

static const struct {
	const char *name;
	void (*play)(void);
} directions[] = {
	{ "child", child_to_parent },   { "heir", child_to_parent },
	{ "stopped", child_to_parent }, { "heir-alone", child_to_parent },
	{ "killed", child_to_parent },  { "traced", traced_to_parent },
	{ "parent", parent_to_child },
	{ "sibling", to_sibling },      { "rivals", to_sibling },
	{ "orphan", to_orphan },        { "grandchild", to_grandparent },
};

/* ---- A play -------------------------------------------------------------- */

#define FIND(table, wanted)                                                    \
	__extension__({                                                        \
		size_t at_ = 0;                                                \
		while (at_ < COUNT(table) && strcmp((table)[at_].name, wanted)) \
			at_++;                                                 \
		check(at_ < COUNT(table));                                     \
		&(table)[at_];                                                 \
	})

static int plays(char **argv, int verdict)
{
	const char *mapped = getenv("BORDER_MMAP");

	play.verdict = verdict;
	play.direction = argv[0];
	by_mmap = mapped && *mapped;
	birth = FIND(births, argv[1]);
	way = FIND(ways, argv[2]);
	state = FIND(states, argv[3]);
	attack = FIND(attacks, argv[4]);
	if ((way->root || birth->root) && geteuid() != 0) {
		say("skip it needs root");
		return 0;
	}
	if (way->strict && !attack->blind && strcmp(attack->name, "nothing") != 0) {
		say("skip seccomp forbids the attack");
		return 0;
	}
	check((play.proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC)) >= 0);
	gate_make(play.to_stranger);
	gate_make(play.to_victim);
	play.board = mmap(NULL, sizeof(*play.board), PROT_READ | PROT_WRITE,
	                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(play.board != MAP_FAILED);
	(void)key();
	if (way->before)
		way->before();
	state->before();
	if (!is("parent")) /* whose files the child notes */
		publish();
	FIND(directions, argv[0])->play();
	return 0;
}

/* ---- The process that looks on --------------------------------------------- */

static char said[65536];

static int line_of(const char *word)
{
	size_t n = strlen(word);

	for (const char *p = said; p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
		if (strncmp(p, word, n) == 0) {
			printf("%.*s\n", (int)strcspn(p, "\n"), p);
			return 1;
		}
	return 0;
}

static int has_line(const char *word) { return strstr(said, word) != NULL; }

/* Until all have ended or said enough. */
static void listen_to(int fd)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };
	time_t end = time(NULL) + SECONDS;
	size_t all = 0;
	int leaked = 0;
	ssize_t n;

	while (all < sizeof(said) - 1 && time(NULL) < end) {
		if (poll(&wait, 1, 200) <= 0)
			continue;
		n = read(fd, said + all, sizeof(said) - 1 - all);
		if (n <= 0)
			return;
		all += (size_t)n;
		if (has_line("skip ") || has_line("ended ") || (has_line("fine\n") && has_line("done\n")))
			return;
		if (has_line("leak ") && !leaked) {
			leaked = 1;
			end = time(NULL) + SECONDS_AFTER_LEAK;
		}
	}
}

static int looks_on(char **argv)
{
	char number[16];
	int verdict[2];
	pid_t pid;

	check(pipe(verdict) == 0);
	snprintf(number, sizeof(number), "%d", verdict[1]);
	pid = fork();
	check(pid >= 0);
	if (pid == 0) {
		setpgid(0, 0);
		close(verdict[0]);
		execl("/proc/self/exe", "border", "play", number, argv[0], argv[1], argv[2],
		      argv[3], argv[4], (char *)NULL);
		_exit(1);
	}
	setpgid(pid, pid);
	close(verdict[1]);
	listen_to(verdict[0]);
	kill(-pid, SIGKILL);
	waitpid(pid, NULL, 0);
	if (line_of("skip "))
		return 77;
	if (line_of("leak "))
		return 1;
	if (has_line("fine\n") && has_line("done\n"))
		return 0;
	puts(has_line("fine\n") ? "the stranger ended too early" : "the victim ended badly");
	return 1;
}

#define LIST(table)                                                            \
	do {                                                                   \
		printf(#table ":");                                            \
		for (size_t at = 0; at < COUNT(table); at++)                   \
			printf(" %s", (table)[at].name);                       \
		puts("");                                                      \
	} while (0)

int main(int argc, char **argv)
{
	if (argc == 8 && strcmp(argv[1], "play") == 0)
		return plays(argv + 3, atoi(argv[2]));
	if (argc == 6 && strcmp(argv[1], "pipe") == 0)
		return after_exec(argv + 2);
	if (argc == 6)
		return looks_on(argv + 1);
	LIST(directions);
	LIST(births);
	LIST(ways);
	LIST(states);
	LIST(attacks);
	return 0;
}
