/* SPDX-License-Identifier: MIT */
/*
 * The reference driver: the interface between its files
 *
 *   state.c    entering a call: lock, counts, failures on demand, fork
 *   device.c   devices, contexts, the current context
 *   physical.c physical memory;  memory.c  address ranges, mappings, access
 *   alloc.c    cuMemAlloc, attributes of pointers
 *   host.c     pinned host memory
 *   queue.c    work: its order; runs it late and out of order
 *   stream.c   streams;  event.c  events, also of other processes
 *   capture.c  streams that record, and calls that break a recording
 *   copy.c     copies and fills
 *   launch.c   modules and kernels;  fiber.c, host_cuda.h  a kernel's threads
 *
 * There is one lock. Each call holds it; work that runs does not.
 */
#ifndef TESTS_DRIVER_REF_H
#define TESTS_DRIVER_REF_H

#include "cuda/abi.h"
#include "tests/driver/control.h"
#include "tests/driver/kernel.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))
#define SLOT ((size_t)2 << 20) /* the granularity of everything */
/* ThreadSanitizer leaves fewer addresses. */
#if defined(__SANITIZE_THREAD__)
#define SLOTS ((size_t)1 << 16)
#else
#define SLOTS ((size_t)1 << 19)
#endif
#define WINDOW (SLOT * SLOTS)
enum { REF_DEVICES = 8 };

#define CALL(need, member, name, symbol, version, parameters)                  \
	EXPORT enum cow__cu_result symbol parameters;
#include "cuda/calls.h"
#undef CALL

enum ref_call {
#define CALL(need, member, name, symbol, version, parameters) REF_##member,
#include "cuda/calls.h"
#undef CALL
	REF_CALLS
};

/* ---- state.c ------------------------------------------------------------- */

struct ref {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int pid; /* of the process that called cuInit(), or 0 */
	int devices, version;
	bool peers;
	long settings[REF_SETTINGS];
	uint64_t implicit_waits;
	size_t events, streams, handles, mappings, reservations, registered;
	size_t used[REF_DEVICES];
	char *window, *shadow;
};
extern struct ref ref;

/* The first line of each call: locked from here to the end of the function. */
#define ENTER(member)                                                          \
	__attribute__((cleanup(ref_leave))) int ref_locked = 0;                \
	enum cow__cu_result ref_result =                                       \
		ref_enter(REF_##member, &ref_locked);                          \
	if (ref_result != COW_CU_SUCCESS)                                      \
		return ref_result
/* The same for calls that need a current context, which `context` becomes. */
#define ENTER_CONTEXT(member)                                                  \
	ENTER(member);                                                         \
	struct cow__cu_context *context = ref_current();                       \
	ref_result = ref_alive(context);                                       \
	if (ref_result != COW_CU_SUCCESS)                                      \
	return ref_result
enum cow__cu_result ref_enter(enum ref_call call, int *ret_locked);
void ref_leave(int *locked);

/* For behaviour that is undefined on a device: ends the process if strict, else gives `code`. */
enum cow__cu_result ref_undefined(enum cow__cu_result code, const char *rule, ...)
	__attribute__((format(printf, 2, 3)));
extern _Thread_local const char *ref_calling;   /* this thread's last call */
extern _Thread_local bool ref_in_callback;
uint64_t ref_now_ns(void);
uint64_t ref_random(void);

/* ---- device.c ------------------------------------------------------------ */

struct cow__cu_context {
	int device, retained;
	unsigned flags;
	bool peer[REF_DEVICES]; /* enabled */
	enum cow__cu_result sticky;
	struct cow__cu_stream *null;
};
extern struct cow__cu_context ref_contexts[REF_DEVICES];
struct cow__cu_context *ref_current(void); /* or NULL */
enum cow__cu_result ref_alive(struct cow__cu_context *context);
bool ref_device_ok(int device);
bool ref_peers(int device, int peer);

/* ---- physical.c, memory.c, alloc.c ---------------------------------------- */

struct ref_physical {
	uint64_t id;    /* what a caller calls it */
	int fd, device;
	size_t bytes;
	unsigned handle_types;
	bool ours;      /* made here, so counted */
	unsigned refs;  /* the caller's */
	unsigned maps;
	struct ref_physical *next;
};
struct ref_mapping {
	char *at;       /* in the window */
	size_t bytes;   /* that may be touched */
	size_t slots;
	struct ref_physical *physical;
	bool plain;     /* cuMemAlloc's */
	bool freed;     /* cuMemFreeAsync() was called */
	unsigned access[REF_DEVICES];
};
bool ref_in_window(const void *at);
struct ref_mapping *ref_mapping_at(const void *at); /* or NULL */
unsigned ref_access_of(const struct ref_mapping *m, int device);

/* May `device` touch this device memory? *ret: where the host does it. */
enum cow__cu_result ref_resolve(const char *at, size_t bytes, int device, bool write,
                                char **ret);
enum cow__cu_result ref_physical_new(int device, size_t bytes, unsigned types,
                                     struct ref_physical **ret);
void ref_physical_drop(struct ref_physical *p);
struct ref_physical *ref_physical_of(uint64_t id); /* or NULL */
void ref_need(bool fine, const char *what);
/* 0: no room. */
char *ref_reserve(size_t slots, size_t align_slots, char *wish);
bool ref_unreserve(char *at, size_t slots); /* exactly what was reserved */
enum cow__cu_result ref_map(char *at, size_t bytes, struct ref_physical *p,
                            struct ref_mapping **ret);
void ref_unmap(struct ref_mapping *m);
/* Opens the window for a kernel on this device, and closes it. */
void ref_window_open(int device);
void ref_window_close(void);
void ref_free_plain(struct ref_mapping *m);

/* ---- host.c -------------------------------------------------------------- */

enum ref_pinned { REF_UNPINNED, REF_PINNED, REF_PARTLY };
enum ref_pinned ref_pinned(const void *at, size_t bytes);
/* The registered range that holds `at`: its start, or NULL. */
char *ref_host_range(const void *at, size_t *ret_bytes, unsigned *ret_flags, int *ret_device);

/* ---- queue.c ------------------------------------------------------------- */

struct ref_range {
	const char *at;
	size_t bytes;
};
struct ref_work {
	struct ref_work *next, *before; /* all that is not done, in order of arrival */
	struct cow__cu_stream *stream;
	struct cow__cu_context *context;
	struct ref_work **after; /* what must be done first */
	size_t afters;
	unsigned refs;
	bool running, done, wanted;
	uint64_t due_ns, done_ns;
	/* Of another process: done when *seen >= until. */
	const struct ref_shared_event *foreign;
	uint64_t until;
	struct ref_range touches[2];
	void (*run)(struct ref_work *work);
	void (*finish)(struct ref_work *work); /* with the lock held; may be NULL */
	void *data; /* freed at the end */
};
/* Work for a stream (NULL: the context's), not yet in it. `data_bytes` zeroed. */
struct ref_work *ref_work_new(struct cow__cu_context *context,
                              struct cow__cu_stream *stream,
                              void (*run)(struct ref_work *), size_t data_bytes);
void ref_work_after(struct ref_work *work, struct ref_work *other);
void ref_submit(struct ref_work *work); /* the queue owns it from then on */
struct ref_work *ref_work_ref(struct ref_work *work);
void ref_work_unref(struct ref_work *work);
void ref_wait(struct ref_work *work); /* NULL: at once */
void ref_wait_context(struct cow__cu_context *context);
/* Work that has not been done and touches the range, or NULL. */
struct ref_work *ref_pending_on(const void *at, size_t bytes);
struct ref_work *ref_pending_first(void);
size_t ref_pending(void);
void ref_nudge(void); /* a call polls: let some work run */

/* ---- stream.c, event.c ---------------------------------------------------- */

struct cow__cu_stream {
	uint32_t magic;
	bool blocking;
	unsigned capture, mode;
	const void *recorder; /* the thread */
	struct cow__cu_context *context;
	struct ref_work *last;
	struct cow__cu_stream *next;
};
/* Makes *stream the real one (NULL and legacy: the context's own). */
enum cow__cu_result ref_stream(struct cow__cu_context *context,
                               struct cow__cu_stream **stream);
struct cow__cu_stream *ref_streams(void); /* all, by next */
struct cow__cu_stream *ref_stream_make(struct cow__cu_context *context, unsigned flags);

/* ---- capture.c ------------------------------------------------------------ */

/* Refuses a call that breaks a recording: of some streams, by their modes; of all streams of a
 * context; by use of the default stream (`breaks`), or by a question about it. */
enum cow__cu_result ref_unsafe(void);
enum cow__cu_result ref_unsafe_context(const struct cow__cu_context *context);
enum cow__cu_result ref_unsafe_default(const struct cow__cu_context *context, bool breaks);

/* In a page that processes share. */
struct ref_shared_event {
	int owner;
	uint64_t recorded, done;
};
bool ref_foreign_done(const struct ref_shared_event *e, uint64_t until);

#endif
