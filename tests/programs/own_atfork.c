/* SPDX-License-Identifier: MIT */
/*
 * A program that calls the handlers of pthread_atfork() itself, around a clone()
 *
 * Firefox does: its fork server needs namespaces, which fork() has no argument for, and clone() calls no
 * handlers. So it defines __register_atfork(), keeps the handlers, and calls them. The child's function
 * jumps out of clone(). Neither process sees what the other one writes later.
 */
#include "program.h"

#include <sched.h>
#include <setjmp.h>
#include <sys/syscall.h>

enum { CHILDREN = 5, MOST = 64 };
enum way { CLONE, RAW, UNDERSCORE, WAYS };

typedef void handler(void);
extern int __register_atfork(handler *prepare, handler *parent, handler *child, void *library);
extern pid_t _Fork(void) __attribute__((weak));

static struct handlers {
	handler *prepare, *parent, *child;
} handlers[MOST];
static int registered;
static const size_t bytes = 4 * MIB;

int __register_atfork(handler *prepare, handler *parent, handler *child, void *library)
{
	(void)library;
	if (registered == MOST)
		return ENOMEM;
	handlers[registered++] = (struct handlers){ prepare, parent, child };
	return 0;
}

static int jump(void *to)
{
	longjmp(*(jmp_buf *)to, 1);
}

/* Its own frame, below which the child runs until it jumps. */
__attribute__((noinline)) static pid_t clone_here(jmp_buf *to)
{
	_Alignas(16) static __thread char stack[256 << 10];

	return clone(jump, stack + sizeof(stack), SIGCHLD, to);
}

static pid_t make(enum way way)
{
	jmp_buf here;

	if (way == RAW)
		return (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);
	if (way == UNDERSCORE && _Fork)
		return _Fork();
	return setjmp(here) == 0 ? clone_here(&here) : 0;
}

static pid_t fork_by(enum way way)
{
	pid_t pid;

	for (int i = registered; i-- > 0;)
		if (handlers[i].prepare)
			handlers[i].prepare();
	pid = make(way);
	for (int i = 0; i < registered; i++) {
		handler *h = pid == 0 ? handlers[i].child : handlers[i].parent;

		if (h)
			h();
	}
	return pid;
}

int main(void)
{
	unsigned char *p = get(bytes);

	for (int n = 0; n < WAYS * CHILDREN; n++) {
		enum way way = (enum way)(n / CHILDREN);
		int go[2], past[2], status;
		pid_t pid, other;
		char byte;

		check(pipe(go) == 0 && pipe(past) == 0);
		fill(p, bytes, 1);
		pid = fork_by(way);
		check(pid >= 0);
		if (pid == 0) {
			close(go[1]);
			check(write(past[1], "", 1) == 1);
			check(read(go[0], &byte, 1) == 0);
			check(holds(p, bytes, 1));
			fill(p, bytes, 2);
			_exit(0);
		}
		check(read(past[0], &byte, 1) == 1); /* the child is past its handlers */
		other = fork_by(way); /* a fork looks which children live */
		if (other == 0)
			_exit(0);
		check(waitpid(other, &status, 0) == other && status == 0);
		fill(p, bytes, 3);
		close(go[0]);
		close(go[1]);
		close(past[0]);
		close(past[1]);
		check(waitpid(pid, &status, 0) == pid);
		check(status == 0);
		check(holds(p, bytes, 3));
	}
	free(p);
	puts("own_atfork: done");
	return 0;
}
