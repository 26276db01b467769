/* SPDX-License-Identifier: MIT */
/*
 * Safe points: see the header.
 */
#include "quiet/park.h"
#include "memfd/export.h"
#include "memfd/forked.h"
#include "memfd/map.h"
#include "memfd/sys.h"
#include "memfd/wait.h"

#define CHUNK ((size_t)64 << 10)

COW_EXPORT uint32_t cow__park_word COW_FORK_DATA;

static struct cow__park_thread *threads; /* all records ever made */
static uint32_t lock COW_FORK_DATA; /* of the list, and of `cancelled` */
static uint64_t longest COW_FORK_DATA;
static struct cow__park_thread *(*record_of_caller)(void);

struct cow__park_state cow__park_state COW_FORK_DATA;
struct cow__park_call cow__park_library = { .fenced = true };
COW_EXPORT struct cow__park_call cow__park_unknown = { .fenced = true };

/* The holder blocks signals, so no handler waits for its own thread. */
COW_EXPORT void
cow__park_lock(struct cow__signals *old)
{
	(void)cow__signals_block(old);
	cow__lock(&lock);
}

COW_EXPORT void
cow__park_unlock(const struct cow__signals *old)
{
	cow__unlock(&lock);
	cow__signals_restore(old);
}

bool
cow__park_has_ended(uint32_t id)
{
	return SYS3(SYS_tgkill, sys_getpid(), id, 0) == -ESRCH;
}

struct cow__park_thread *
cow__park_threads(void)
{
	return __atomic_load_n(&threads, __ATOMIC_ACQUIRE);
}

static void
records_add(struct cow__park_thread *t, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		t[i].next = threads;
		__atomic_store_n(&threads, &t[i], __ATOMIC_RELEASE);
	}
}

/* A free record. The first ones map no memory: a program with few threads may know
 * its own mappings, and unmap what it takes for a hole. The very first goes to whoever parks
 * first, which may be a thread that forks. */
static struct cow__park_thread *
record_take(uint32_t id, uintptr_t self)
{
	static struct cow__park_thread first COW_FORK_DATA, next[63];
	struct cow__park_thread *t, *found = NULL;
	void *more;

	if (!threads) {
		records_add(&first, 1);
		records_add(next, sizeof(next) / sizeof(next[0]));
	}
	for (t = threads; t; t = t->next) {
		/* The last thread of that number, or with that stack, has ended. */
		if (t->in_use && (t->id == id || t->self == self))
			t->in_use = false;
		if (!t->in_use)
			found = t;
	}
	if (found || cow__map_meta(CHUNK, &more) < 0)
		return found;
	records_add(more, CHUNK / sizeof(*t));
	return threads;
}

COW_EXPORT struct cow__park_thread *
cow__park_register(uintptr_t self)
{
	struct cow__park_thread *t;
	uint32_t id = (uint32_t)sys_gettid();
	struct cow__signals old;

	cow__park_lock(&old);
	t = record_take(id, self);
	if (t) {
		t->now = 0;
		t->in_vfork = t->never_stop = false;
		t->cancelled = cow__park_state.cancelled_unknown; /* it may be that one */
		t->asked = t->answered = 0;
		t->id = id;
		t->self = self;
		t->alternate = (struct cow__park_range){ 0, 0 };
		t->sequences = (struct cow__park_range){ 0, 0 };
		t->in_use = true;
	}
	cow__park_unlock(&old);
	return t;
}

COW_FORK_CODE COW_EXPORT void
cow__park_child(struct cow__park_thread *self)
{
	cow__signals_child();
	lock = 0;
	longest = 0;
	cow__park_state.shared = cow__park_state.cancelled_unknown = false;
	cow__park_word &= ~(COW__PARK_FLOOR | COW__PARK_AWAITED);
	/* What is not written need not be copied. */
	for (struct cow__park_thread *t = threads; t; t = t->next)
		if (t->in_use != (t == self) || t->now) {
			t->in_use = t == self;
			t->now = 0;
		}
	if (self) {
		self->id = (uint32_t)sys_gettid();
		self->in_vfork = self->cancelled = false;
	}
}

COW_EXPORT void
cow__park_cancel(uintptr_t self)
{
	struct cow__park_thread *t;
	bool known = false;
	struct cow__signals old;

	cow__park_lock(&old);
	for (t = threads; t; t = t->next)
		if (t->in_use && t->self == self && !cow__park_has_ended(t->id))
			known = t->cancelled = true;
	cow__park_state.cancelled_unknown |= !known;
	cow__park_unlock(&old);
}

COW_EXPORT void
cow__park_records(struct cow__park_thread *(*record)(void))
{
	record_of_caller = record;
}

/* Sleeps until the floor is given back. The bit tells the prover to wake us, and to
 * hurry. It wakes those that it stopped anyway. */
static void
sleep_out(bool hurry)
{
	uint32_t word = __atomic_load_n(&cow__park_word, __ATOMIC_ACQUIRE);

	while (word & COW__PARK_FLOOR) {
		if (!hurry) {
			cow__wait(&cow__park_word, word, 0);
			word = __atomic_load_n(&cow__park_word, __ATOMIC_ACQUIRE);
			continue;
		}
		if (!(word & COW__PARK_AWAITED) &&
		    !__atomic_compare_exchange_n(&cow__park_word, &word,
		                                 word | COW__PARK_AWAITED, false,
		                                 __ATOMIC_ACQ_REL,
		                                 __ATOMIC_ACQUIRE))
			continue;
		cow__wait(&cow__park_word, word | COW__PARK_AWAITED, 0);
		word = __atomic_load_n(&cow__park_word, __ATOMIC_ACQUIRE);
	}
}

static void
note_wait(uint64_t began)
{
	uint64_t ns = cow__now() - began;

	if (ns > __atomic_load_n(&longest, __ATOMIC_RELAXED))
		__atomic_store_n(&longest, ns, __ATOMIC_RELAXED);
}

/* Nobody has the floor in another process's name: the child of a raw fork has only
 * inherited the word. */
static bool
has_floor(void)
{
	return (__atomic_load_n(&cow__park_word, __ATOMIC_ACQUIRE) &
	        COW__PARK_FLOOR) &&
	       __atomic_load_n(&cow__park_state.owner, __ATOMIC_RELAXED) ==
	               (int32_t)sys_getpid();
}

COW_EXPORT void
cow__park_carefully(struct cow__park_thread *t, uintptr_t now)
{
	__atomic_store_n(&t->now, now, __ATOMIC_RELEASE);
	if (__atomic_load_n(&cow__park_word, __ATOMIC_RELAXED) &
	    COW__PARK_FENCES)
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
	else
		__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (has_floor()) {
		uint64_t began = cow__now();

		sleep_out(true);
		note_wait(began);
	}
}

struct cow__park_thread *
cow__park_here(void)
{
	struct cow__park_thread *t = record_of_caller ? record_of_caller() : NULL;

	if (t)
		cow__park_carefully(t, (uintptr_t)&cow__park_library | 1);
	return t;
}

/* The thread is parked while it waits. A child of vfork() may be killed here, so it
 * does not count as parked: its parent, which runs on then, has the same record. */
COW_EXPORT void
cow__park_wait(struct cow__park_thread *t)
{
	static const struct cow__park_call waiting = { .fenced = true };
	uint64_t began = cow__now();

	if (!has_floor())
		return;
	do {
		if (t && !t->in_vfork)
			cow__park_enter(t, &waiting);
		sleep_out(true);
		if (t)
			__atomic_store_n(&t->now, 0, __ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
	} while (__atomic_load_n(&cow__park_word, __ATOMIC_ACQUIRE) &
	         COW__PARK_FLOOR);
	note_wait(began);
}

/* The signal came to a thread that can't be a child of vfork(): a parent that waits
 * for one gets no signals. */
void
cow__park_stay(struct cow__park_thread *t)
{
	uintptr_t stopped = t->now;
	uint64_t began = cow__now();

	for (;;) {
		if (has_floor())
			sleep_out(false);
		__atomic_store_n(&t->now, 0, __ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		if (!has_floor())
			break;
		__atomic_store_n(&t->now, stopped, __ATOMIC_RELEASE);
	}
	note_wait(began);
}

/* A thread that looked at the word before it had this bit may go on to its call. So
 * those of now are never stopped, but the caller. */
void
cow__park_stops_begin(void)
{
	uint32_t self = (uint32_t)sys_gettid();

	if (__atomic_fetch_or(&cow__park_word, COW__PARK_STOPS,
	                      __ATOMIC_SEQ_CST) & COW__PARK_STOPS)
		return;
	for (struct cow__park_thread *t = threads; t; t = t->next)
		t->never_stop = t->in_use && t->id != self;
}

bool
cow__park_counts(const struct cow__park_thread *t)
{
	uintptr_t now = __atomic_load_n(&t->now, __ATOMIC_ACQUIRE);

	return now && (now & ~1ul) != (uintptr_t)&cow__park_unknown;
}

uint64_t
cow__park_longest(void)
{
	return __atomic_load_n(&longest, __ATOMIC_RELAXED);
}
