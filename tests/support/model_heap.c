/* SPDX-License-Identifier: MIT */
/*
 * Test support: the heap of a random program, under sanitizers
 *
 * The malloc() of GCC 12's sanitizers does not take its locks for a fork. If another thread has one
 * at that moment, the child waits for it for ever. libc's malloc() takes its locks. So with
 * sanitizers a program forks when none of its threads is inside malloc(). All else that threads do
 * beside a fork stays as it is: the library does not call malloc().
 */
#include "tests/support/model.h"

#if SANITIZED
#undef malloc
#undef calloc
#undef realloc
#undef free

#include <pthread.h>

static pthread_rwlock_t heap = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

/* ThreadSanitizer must not take the lock for an order of what threads do, and miss races. */
#if UNDER_TSAN
void AnnotateIgnoreSyncBegin(const char *file, int line);
void AnnotateIgnoreSyncEnd(const char *file, int line);
void AnnotateRWLockReleased(const char *file, int line, const volatile void *lock, long writes);
#define UNSEEN(call)                                                                           \
	do {                                                                                   \
		int unseen_code;                                                               \
		AnnotateIgnoreSyncBegin(__FILE__, __LINE__);                                   \
		unseen_code = (call);                                                          \
		AnnotateIgnoreSyncEnd(__FILE__, __LINE__);                                     \
		must(unseen_code == 0);                                                        \
	} while (0)
#else
#define UNSEEN(call) must((call) == 0)
#endif

static void enter(void)
{
	UNSEEN(pthread_rwlock_rdlock(&heap));
}

static void leave(void)
{
	UNSEEN(pthread_rwlock_unlock(&heap));
}

void heap_before_fork(void)
{
	UNSEEN(pthread_rwlock_wrlock(&heap));
}

void heap_parent(void)
{
	leave();
}

/* Threads that wait in the parent are counted in the lock. ThreadSanitizer does not see that it
 * is free again. */
void heap_child(void)
{
#if UNDER_TSAN
	AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
	AnnotateRWLockReleased(__FILE__, __LINE__, &heap, 1);
	AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
#endif
	heap = (pthread_rwlock_t)PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
}

void *heap_malloc(size_t n)
{
	void *p;

	enter();
	p = malloc(n);
	leave();
	return p;
}

void *heap_calloc(size_t count, size_t n)
{
	void *p;

	enter();
	p = calloc(count, n);
	leave();
	return p;
}

void *heap_realloc(void *p, size_t n)
{
	enter();
	p = realloc(p, n);
	leave();
	return p;
}

void heap_free(void *p)
{
	enter();
	free(p);
	leave();
}

#else

void heap_before_fork(void)
{
}

void heap_parent(void)
{
}

void heap_child(void)
{
}

#endif
