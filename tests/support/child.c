/* SPDX-License-Identifier: MIT */
/*
 * Test support: other processes
 *
 * A child runs a function and ends. Its assertions end it with status 1
 * (libcheck calls _exit()), which nobody would notice if the parent did not
 * look: so whoever starts a child here finishes it here.
 *
 * Processes are put in order by gates. A gate is a pipe that both inherit; a
 * byte in it is a permission. Nothing here sleeps for a time and hopes.
 */
#include "tests/support/support.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GATE_MS = (UNDER_TSAN ? 240 : 30) * 1000, ASK_AGAIN_MS = 10 };

/* Children end without exit handlers, coverage writes its counts in one. */
extern void __gcov_dump(void) __attribute__((weak));

pid_t child_start(child_fn *body, void *arg)
{
	pid_t child;

	fflush(NULL);
	child = fork();
	if (child < 0)
		ck_abort_msg("fork: %s", strerror(errno));
	if (child > 0)
		return child;
	body(arg);
	if (__gcov_dump)
		__gcov_dump();
	_exit(0);
}

int child_status(pid_t child)
{
	int status = 0;
	pid_t got;

	do {
		got = waitpid(child, &status, 0);
	} while (got < 0 && errno == EINTR);
	if (got != child)
		ck_abort_msg("waitpid: %s", strerror(errno));
	return status;
}

void child_finish(pid_t child)
{
	int status = child_status(child);

	if (WIFSIGNALED(status))
		ck_abort_msg("the child died of signal %d", WTERMSIG(status));
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		ck_abort_msg("an assertion failed in a child (status %d)",
		             WEXITSTATUS(status));
}

bool thread_sleeps(int tid)
{
	char path[64], line[256] = "";
	const char *state;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	f = fopen(path, "r");
	if (!f)
		return false;
	(void)!fgets(line, sizeof(line), f);
	fclose(f);
	state = strrchr(line, ')');
	return state && state[1] && state[2] == 'S';
}

void in_child(child_fn *body, void *arg)
{
	child_finish(child_start(body, arg));
}

struct quiet {
	child_fn *body;
	void *arg;
};

/* An expected crash should leave no core file behind. */
static void without_core(void *arg)
{
	struct rlimit none = { 0, 0 };
	struct quiet *quiet = arg;

	setrlimit(RLIMIT_CORE, &none);
	quiet->body(quiet->arg);
}

static bool is_trap(int status)
{
	return WIFSIGNALED(status) &&
	       (WTERMSIG(status) == SIGILL || WTERMSIG(status) == SIGTRAP);
}

void in_child_traps(child_fn *body, void *arg)
{
	struct quiet quiet = { body, arg };
	int status = child_status(child_start(without_core, &quiet));

	if (!is_trap(status))
		ck_abort_msg("no trap, but wait status %#x", status);
}

void in_child_survives(child_fn *body, void *arg)
{
	struct quiet quiet = { body, arg };
	int status = child_status(child_start(without_core, &quiet));

	if (status != 0 && !is_trap(status))
		ck_abort_msg("wait status %#x", status);
}

void gate_make(struct gate *gate)
{
	must(pipe2(gate->fd, O_CLOEXEC) == 0);
}

void gate_free(struct gate *gate)
{
	close(gate->fd[0]);
	close(gate->fd[1]);
}

void gate_send(struct gate *gate, const void *bytes, size_t count)
{
	ssize_t n;

	do {
		n = write(gate->fd[1], bytes, count);
	} while (n < 0 && errno == EINTR);
	must(n == (ssize_t)count);
}

/* As libcheck's own limits: scripts/check.sh sets it for busy machines. */
static int patience(int most)
{
	const char *multiplier = getenv("CK_TIMEOUT_MULTIPLIER");
	int n = multiplier ? atoi(multiplier) : 1;

	return n < 1 ? 1 : n > most ? most : n;
}

void gate_receive(struct gate *gate, void *bytes, size_t count)
{
	const int limit_ms = patience(INT_MAX / GATE_MS) * GATE_MS;
	struct pollfd wait = { .fd = gate->fd[0], .events = POLLIN };
	char *p = bytes;
	ssize_t n;
	int ready;

	while (count > 0) {
		do {
			ready = poll(&wait, 1, limit_ms);
		} while (ready < 0 && errno == EINTR);
		if (ready != 1)
			ck_abort_msg("nobody opened the gate in time");
		n = read(gate->fd[0], p, count);
		if (n <= 0)
			ck_abort_msg("the gate is gone: %s", strerror(errno));
		p += n;
		count -= (size_t)n;
	}
}

void gate_open(struct gate *gate)
{
	gate_send(gate, "!", 1);
}

void gate_wait(struct gate *gate)
{
	char permission;

	gate_receive(gate, &permission, 1);
}

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool wait_until(bool (*met)(void *arg), void *arg, int seconds)
{
	int64_t deadline = now_ms() + (int64_t)patience(1000) * seconds * 1000;

	while (!met(arg)) {
		if (now_ms() >= deadline)
			return false;
		poll(NULL, 0, ASK_AGAIN_MS);
	}
	return true;
}
