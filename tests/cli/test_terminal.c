/* SPDX-License-Identifier: MIT */
/*
 * `cowshed top` at a terminal: keys, sizes and signals
 *
 * After each end, and while top is stopped, the terminal must be as before: the modes of its
 * line, the cursor, and the text on the screen. top runs like a job of a shell: in the
 * foreground, below a leader that sees it stop.
 */
#include "tests/support/broker.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define TAKEN "\033[?1049h\033[?25l"
#define GIVEN "\033[?25h\033[?1049l"
#define FRAME_END "\033[J"

enum { LATE_MS = 60000 };

struct terminal {
	int master, slave;
	int said[2]; /* the job's wait statuses */
	pid_t leader, job;
	struct termios before;
	char text[1 << 16]; /* output that no test has asked for yet */
	size_t bytes;
};

static void leads(struct terminal *t, const char *kind, bool ignores)
{
	const struct rlimit no_core = { 0, 0 };
	int status;

	/* The terminal ends with the test, and so do all programs at it. */
	must(close(t->master) == 0);
	must(setsid() > 0 && ioctl(t->slave, TIOCSCTTY, 0) == 0);
	must(signal(SIGTTOU, SIG_IGN) != SIG_ERR);
	must(setenv("TERM", kind, 1) == 0 && setrlimit(RLIMIT_CORE, &no_core) == 0);
	t->job = fork();
	must(t->job >= 0);
	if (t->job == 0) {
		must(setpgid(0, 0) == 0 && tcsetpgrp(t->slave, getpid()) == 0);
		for (int i = 0; i < 3; i++)
			must(dup2(t->slave, i) == i);
		if (ignores)
			signal(SIGINT, SIG_IGN);
		execl(host_program(), "cowshed", "top", "-d", "0.2", NULL);
		_exit(126);
	}
	must(write(t->said[1], &t->job, sizeof(t->job)) == sizeof(t->job));
	do {
		must(waitpid(t->job, &status, WUNTRACED) == t->job);
		must(write(t->said[1], &status, sizeof(status)) == sizeof(status));
	} while (WIFSTOPPED(status));
	_exit(0);
}

static void size(struct terminal *t, unsigned short rows, unsigned short columns)
{
	struct winsize w = { .ws_row = rows, .ws_col = columns };

	must(ioctl(t->master, TIOCSWINSZ, &w) == 0);
}

static void start(struct terminal *t, const char *kind, bool ignores)
{
	t->bytes = 0;
	t->text[0] = '\0';
	t->master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	must(t->master >= 0 && grantpt(t->master) == 0 && unlockpt(t->master) == 0);
	t->slave = open(ptsname(t->master), O_RDWR | O_NOCTTY | O_CLOEXEC);
	must(t->slave >= 0 && tcgetattr(t->slave, &t->before) == 0);
	must((t->before.c_lflag & (ICANON | ECHO)) == (ICANON | ECHO));
	size(t, 24, 80);
	must(pipe2(t->said, O_CLOEXEC) == 0);
	t->leader = fork();
	must(t->leader >= 0);
	if (t->leader == 0)
		leads(t, kind, ignores);
	close(t->said[1]);
	must(read(t->said[0], &t->job, sizeof(t->job)) == sizeof(t->job));
}

/* Reads more output. False: there is no more for now, but `fd` can be read. `text` is
 * the text that the caller waits for. */
static bool reads(struct terminal *t, const char *text, int fd)
{
	struct pollfd polls[] = { { t->master, POLLIN, 0 }, { fd, POLLIN, 0 } };
	ssize_t n;

	if (poll(polls, 2, LATE_MS) <= 0)
		ck_abort_msg("never shown: %s in: %s", text, t->text);
	if (!(polls[0].revents & POLLIN))
		return false;
	must(t->bytes < sizeof(t->text) - 1);
	n = read(t->master, t->text + t->bytes, sizeof(t->text) - 1 - t->bytes);
	must(n > 0);
	t->bytes += (size_t)n;
	t->text[t->bytes] = '\0';
	return true;
}

/* Waits for `text`, and forgets the output up to its end. */
static void shows(struct terminal *t, const char *text)
{
	char *found;

	while ((found = strstr(t->text, text)) == NULL)
		must(reads(t, text + (*text == '\033'), -1));
	found += strlen(text);
	t->bytes -= (size_t)(found - t->text);
	memmove(t->text, found, t->bytes + 1);
}

/* The job's next wait status. Some of its output may still come. */
static int status_of(struct terminal *t)
{
	int status;

	while (reads(t, "an end", t->said[0]))
		;
	must(read(t->said[0], &status, sizeof(status)) == sizeof(status));
	return status;
}

static bool is_as_before(struct terminal *t)
{
	struct termios now;

	must(tcgetattr(t->slave, &now) == 0);
	return now.c_lflag == t->before.c_lflag && now.c_iflag == t->before.c_iflag &&
	       now.c_oflag == t->before.c_oflag &&
	       memcmp(now.c_cc, t->before.c_cc, sizeof(now.c_cc)) == 0;
}

static void type(struct terminal *t, const char *keys)
{
	must(write(t->master, keys, strlen(keys)) == (ssize_t)strlen(keys));
}

static void end(struct terminal *t)
{
	must(is_as_before(t));
	child_finish(t->leader);
	close(t->said[0]);
	close(t->slave);
	close(t->master);
}

static void is_taken(struct terminal *t)
{
	shows(t, TAKEN);
	shows(t, FRAME_END);
	must(!is_as_before(t));
}

static struct terminal t;

START_TEST(q_quits)
{
	int status;

	start(&t, "xterm", false);
	is_taken(&t);
	type(&t, "x\n ");
	shows(&t, FRAME_END); /* it goes on */
	type(&t, _i ? "aQ" : "q");
	status = status_of(&t);
	must(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	shows(&t, GIVEN);
	end(&t);
}
END_TEST

static const struct {
	const char *typed;
	int number;
} ends[] = { { "\003", SIGINT }, { "\034", SIGQUIT }, { NULL, SIGTERM }, { NULL, SIGHUP } };

/* The signal ends top, as if top did not catch it. */
START_TEST(signals_end_it)
{
	int status;

	start(&t, "xterm", false);
	is_taken(&t);
	if (ends[_i].typed != NULL)
		type(&t, ends[_i].typed);
	else
		must(kill(t.job, ends[_i].number) == 0);
	status = status_of(&t);
	must(WIFSIGNALED(status) && WTERMSIG(status) == ends[_i].number);
	shows(&t, GIVEN);
	end(&t);
}
END_TEST

START_TEST(what_is_ignored_stays_so)
{
	int status;

	start(&t, "xterm", true);
	is_taken(&t);
	type(&t, "\003");
	shows(&t, FRAME_END);
	shows(&t, FRAME_END);
	type(&t, "q");
	status = status_of(&t);
	must(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	end(&t);
}
END_TEST

START_TEST(it_stops_and_goes_on)
{
	int status;

	start(&t, "xterm", false);
	for (int i = 0; i < 3; i++) {
		is_taken(&t);
		type(&t, "\032");
		status = status_of(&t);
		must(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTSTP);
		shows(&t, GIVEN);
		must(is_as_before(&t));
		must(kill(t.job, SIGCONT) == 0);
	}
	is_taken(&t);
	type(&t, "q");
	status = status_of(&t);
	must(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	end(&t);
}
END_TEST

/* A frame's lines, and whether each fits. */
START_TEST(another_size)
{
	static const struct {
		unsigned short rows, columns;
	} sizes[] = { { 2, 30 }, { 1, 5 }, { 50, 200 }, { 0, 0 } };

	start(&t, "xterm", false);
	is_taken(&t);
	for (size_t i = 0; i < COUNT(sizes); i++) {
		unsigned rows = sizes[i].rows ? sizes[i].rows : 24;
		unsigned columns = sizes[i].columns ? sizes[i].columns : 80, row = 1, column = 0;

		/* Frames of the size before are read here, for any time they take. */
		must(kill(t.job, SIGSTOP) == 0 && WIFSTOPPED(status_of(&t)));
		t.bytes = 0;
		t.text[0] = '\0';
		size(&t, sizes[i].rows, sizes[i].columns);
		must(kill(t.job, SIGWINCH) == 0 && kill(t.job, SIGCONT) == 0);
		/* A frame after those that top may have begun before. */
		for (int k = 0; k < 3; k++)
			shows(&t, "\033[H");
		while (strstr(t.text, FRAME_END) == NULL)
			must(reads(&t, "a frame", -1));
		for (char *c = t.text; strncmp(c, FRAME_END, 3) != 0; c++) {
			if (*c == '\n') {
				row++;
				column = 0;
			} else if (*c == '\033') {
				must(strncmp(c, "\033[K", 3) == 0);
				c += 2;
			} else if (*c != '\r') {
				column++;
			}
			must(row <= rows && column < columns);
		}
	}
	type(&t, "q");
	must(status_of(&t) == 0);
	end(&t);
}
END_TEST

/* A terminal without escape codes gets frame after frame, and q quits, too. */
START_TEST(a_dumb_one)
{
	start(&t, "dumb", false);
	shows(&t, "COMMAND");
	shows(&t, "COMMAND");
	must(!is_as_before(&t));
	type(&t, "q");
	must(status_of(&t) == 0);
	must(strchr(t.text, '\033') == NULL);
	end(&t);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("terminal");
	TCase *c = add_case(suite, "terminal");

	tcase_add_loop_test(c, q_quits, 0, 2);
	tcase_add_loop_test(c, signals_end_it, 0, (int)COUNT(ends));
	tcase_add_test(c, what_is_ignored_stays_so);
	tcase_add_test(c, it_stops_and_goes_on);
	tcase_add_test(c, another_size);
	tcase_add_test(c, a_dumb_one);
	return run_suite(suite);
}
