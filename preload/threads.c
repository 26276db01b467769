/* SPDX-License-Identifier: MIT */
/*
 * Waits of libc's threads: safe points (quiet/park.h)
 *
 * libc writes the condition variable, the mutex and the semaphore itself, before
 * and after the wait. So they are listed as what the kernel writes. A mutex that is
 * robust, or that inherits priorities, changes other memory too: waits with such a
 * mutex don't park.
 *
 * pthread_join() is not wrapped, since libc frees memory at its end. The prover knows
 * such a wait by its word, which belongs to a parked thread.
 */
#undef _FORTIFY_SOURCE
#include "preload/next.h"
#include "preload/park.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

static int (*next_cond_wait)(pthread_cond_t *, pthread_mutex_t *);
static int (*next_cond_timedwait)(pthread_cond_t *, pthread_mutex_t *,
                                  const struct timespec *);
static int (*next_cond_clockwait)(pthread_cond_t *, pthread_mutex_t *, clockid_t,
                                  const struct timespec *);
static int (*next_sem_wait)(sem_t *);
static int (*next_sem_timedwait)(sem_t *, const struct timespec *);
static int (*next_sem_clockwait)(sem_t *, clockid_t, const struct timespec *);
static int (*next_cancel)(pthread_t);
static int (*next_create)(pthread_t *, const pthread_attr_t *, void *(*)(void *),
                          void *);

/* glibc keeps an old version of some names, which dlsym() might give. */
static void
look_up_symbol(void *pointer, const char *name, const char *version)
{
	void *p = NULL;

#ifdef __GLIBC__
	if (version)
		p = dlvsym(RTLD_NEXT, name, version);
#else
	(void)version;
#endif
	if (!p)
		p = preload_next_symbol(name);
	memcpy(pointer, &p, sizeof(p));
}

void
preload_threads_init(void)
{
	look_up_symbol(&next_cond_wait, "pthread_cond_wait", "GLIBC_2.3.2");
	look_up_symbol(&next_cond_timedwait, "pthread_cond_timedwait", "GLIBC_2.3.2");
	look_up_symbol(&next_cond_clockwait, "pthread_cond_clockwait", NULL);
	look_up_symbol(&next_sem_wait, "sem_wait", "GLIBC_2.34");
	look_up_symbol(&next_sem_timedwait, "sem_timedwait", "GLIBC_2.34");
	look_up_symbol(&next_sem_clockwait, "sem_clockwait", NULL);
	look_up_symbol(&next_cancel, "pthread_cancel", NULL);
	look_up_symbol(&next_create, "pthread_create", "GLIBC_2.34");
}

/* Does nothing but the mutex itself change when it is locked? */
static bool
is_plain(const pthread_mutex_t *mutex)
{
#ifdef __GLIBC__
	/* Of the kind, 3 bits are normal, recursive, error-checking, adaptive; 0x80
	 * is "shared between processes", 0x100 and 0x200 elision. */
	return (mutex->__data.__kind & ~0x383) == 0;
#else
	(void)mutex;
	return false; /* musl: not known */
#endif
}

static struct cow__park_thread *
park_cond(struct cow__park_call *call, pthread_cond_t *cond,
          pthread_mutex_t *mutex)
{
	if (!is_plain(mutex))
		return NULL;
	preload_does_write(call, cond, sizeof(*cond));
	preload_does_write(call, mutex, sizeof(*mutex));
	return preload_park(call);
}

static bool
looked_up(const void *pointer)
{
	void *p;

	preload_threads_init();
	memcpy(&p, pointer, sizeof(p));
	if (!p)
		errno = ENOSYS;
	return p != NULL;
}

#define COND(name, next, parameters, arguments)                                \
	EXPORT int name parameters                                             \
	{                                                                      \
		struct cow__park_call call;                                    \
		struct cow__park_thread *parked;                               \
		int result;                                                    \
                                                                               \
		if (__builtin_expect(!next, 0) && !looked_up(&next))           \
			return ENOSYS;                                         \
		preload_call(&call);                                           \
		parked = park_cond(&call, c, m);                               \
		result = next arguments;                                       \
		preload_unpark(parked, &call);                                 \
		return result;                                                 \
	}
COND(pthread_cond_wait, next_cond_wait,
     (pthread_cond_t * c, pthread_mutex_t *m), (c, m))
COND(pthread_cond_timedwait, next_cond_timedwait,
     (pthread_cond_t * c, pthread_mutex_t *m, const struct timespec *until),
     (c, m, until))
COND(pthread_cond_clockwait, next_cond_clockwait,
     (pthread_cond_t * c, pthread_mutex_t *m, clockid_t k,
      const struct timespec *until),
     (c, m, k, until))

#define SEM(name, next, parameters, arguments)                                 \
	PRELOAD_WRAPPER(int, name, next, parameters, arguments, -1,            \
	                preload_does_write(&call, s, sizeof(*s)))
SEM(sem_wait, next_sem_wait, (sem_t * s), (s))
SEM(sem_timedwait, next_sem_timedwait, (sem_t * s, const struct timespec *until),
    (s, until))
SEM(sem_clockwait, next_sem_clockwait,
    (sem_t * s, clockid_t k, const struct timespec *until), (s, k, until))

/* A cancelled thread may leave its call, and run the program's cleanup, without a
 * look at the word. */
EXPORT int
pthread_cancel(pthread_t thread)
{
	if (!next_cancel)
		preload_threads_init();
	if (!next_cancel)
		return ENOSYS;
	if (!preload_sandboxed())
		cow__park_cancel((uintptr_t)thread);
	return next_cancel(thread);
}

struct beginning {
	void *(*fn)(void *);
	void *arg;
};

static void *
run_thread(void *arg)
{
	struct beginning b = *(struct beginning *)arg;

	preload_next.free(arg);
	preload_park_note();
	return b.fn(b.arg);
}

/* A thread that may be stopped needs a record, also if it never calls what blocks. */
EXPORT int
pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*fn)(void *),
               void *arg)
{
	struct beginning *b;
	int r;

	if (!next_create)
		preload_threads_init();
	if (!next_create)
		return ENOSYS;
	if (!preload_stop_used())
		return next_create(thread, how, fn, arg);
	b = preload_next.malloc(sizeof(*b));
	if (!b)
		return EAGAIN;
	*b = (struct beginning){ fn, arg };
	r = next_create(thread, how, run_thread, b);
	if (r != 0)
		preload_next.free(b);
	return r;
}
