/* SPDX-License-Identifier: MIT */
/*
 * Test support: random programs of storages, against plain arrays
 *
 * A program has slots. A slot is a storage and the array that it must equal: the oracle. Storages
 * that are one storage, or lie on one file, have one array. Each operation is drawn from the
 * program's generator, so a seed repeats a program. The seed is the iteration that libcheck prints
 * with each failure. SEED= in the environment runs that one alone.
 *
 *     model.c          slots and their arrays: new, write, clone, resize, rewrite, free
 *     model_owned.c    memory of the program's own: typed elements, external memory, swaps
 *     model_files.c    files: save, load, storages on files and on counted shared memory
 *     model_shared.c   other processes: messages, exports, a peer, forks; the program as a whole
 *     model_heap.c     malloc() beside forks of other threads, under sanitizers
 */
#ifndef COWSHED_TESTS_MODEL_H
#define COWSHED_TESTS_MODEL_H

#include "tests/support/ends.h"
#include "tests/support/support.h"

#include <stdlib.h>

enum { MODEL_SLOTS = 8, MODEL_FILES = 3, MODEL_TOUCHED = 24 };

/* External memory. Its deleter must run once: with its storage, or when the bytes move. */
struct owner {
	unsigned char *start, *data; /* what is freed; where the storage begins */
	size_t bytes;                /* from `start` on */
	bool mapped;
	int runs;
};

/* May a storage be resized? */
enum model_resize { RESIZE_CAN, RESIZE_MAY, RESIZE_NOT };

struct array {
	unsigned char *bytes; /* of elements: one value each */
	size_t n;             /* of a sparse one: mostly zeros, which no page stands for */
	int users;            /* slots; and the name of a file */
	enum model_resize resize;
	bool zero;     /* its storage was made so: what it grows by is zero */
	bool alias;    /* it has its place in the group for good */
	bool elements;
	bool common;   /* bytes of a file that others map, too */
	int privates;  /* private mappings of that file: they forbid to write it */
	struct array *under; /* of a private mapping: the file */
	struct owner *owner;
	bool sparse;
	size_t touched[MODEL_TOUCHED], touches; /* pages of a sparse one that were written */
};

struct slot {
	struct cow_storage *storage; /* NULL: free */
	struct array *array;
	size_t at, n;           /* its part of the array; of elements: how many */
	unsigned char *exposed; /* where to write without a word */
};

struct model_file {
	char path[128];
	struct array *inode; /* NULL: there is no such file */
};

struct program {
	struct slot slots[MODEL_SLOTS];
	struct model_file files[MODEL_FILES], shm;
	struct ends own, other;   /* to itself, to the other process */
	struct cow_channel *mine; /* the other end of `own` */
	pid_t peer;
	struct prng prng;
	size_t largest;
	int seed, step, thread;
	bool alone; /* a child: channels and files are its parent's */
	bool beside; /* other threads run programs, too */
	const char *doing;
};

static inline size_t draw(struct program *p, size_t limit)
{
	return prng_below(&p->prng, limit);
}

/* Says where the program is, and fails. libcheck's own assertions take a lock, which a thread may
 * hold while another one forks, so programs assert by this, gives() and must() alone. */
#define program_fails(p, format, ...)                                                          \
	ck_abort_msg("seed %d, thread %d, step %d (%s): " format, (p)->seed, (p)->thread,      \
	             (p)->step, (p)->doing, __VA_ARGS__)

/* A call must give this. */
#define gives(p, code, call)                                                                   \
	do {                                                                                   \
		long gives_code = (call);                                                      \
		if (gives_code != (code))                                                      \
			program_fails(p, "%s gave %ld, not %ld: %s", #call, gives_code,        \
			              (long)(code), cow_last_error());                         \
	} while (0)

/* model.c */
struct array *array_new(size_t n, const unsigned char *bytes);
struct array *array_of(const struct slot *s); /* a copy */
void array_unref(struct array *a);
void slot_take(struct slot *s, struct cow_storage *storage, struct array *a);
size_t draw_bytes(struct program *p);
int slot_number(const struct program *p, const struct slot *s); /* -1: not one of its own */
void check_slot(struct program *p, const struct slot *s);
void check_all(struct program *p);
void slot_release(struct program *p, struct slot *s);
void slot_new(struct program *p, struct slot *s);
void slot_new_sparse(struct program *p, struct slot *s);
/* Bytes that may be written. Of a sparse storage: of a page. 0: none at this moment. */
size_t slot_range(struct program *p, const struct slot *s, size_t *ret_at);
void slot_write(struct program *p, struct slot *s);
void slot_resize(struct program *p, struct slot *s);
void slot_rewrite(struct program *p, struct slot *s);
void slot_clone(struct program *p, struct slot *from, struct slot *to);
void slot_ref(struct program *p, struct slot *from, struct slot *to);
void slot_refuses(struct program *p, struct slot *s);

/* model_owned.c */
void slot_new_elements(struct program *p, struct slot *s);
void slot_new_external(struct program *p, struct slot *s);
void slot_swap(struct program *p, struct slot *s);
void owner_ended(struct owner *owner);
void elements_check(struct program *p, const struct slot *s);
void elements_write(struct program *p, struct slot *s);
void elements_refuse(struct program *p, struct slot *s);
/* Copies of elements by this thread fail with this; 0: they succeed. */
void elements_fail(int error);
long elements_living(void);

/* model_files.c */
void files_begin(struct program *p);
void files_end(struct program *p);
void slot_to_file(struct program *p, struct slot *s);
void slot_from_file(struct program *p, struct slot *to);
void shm_released(struct program *p);

/* model_heap.c */
void heap_before_fork(void); /* until the next call no thread is inside malloc() */
void heap_parent(void);
void heap_child(void);
#if SANITIZED
void *heap_malloc(size_t n);
void *heap_calloc(size_t count, size_t n);
void *heap_realloc(void *p, size_t n);
void heap_free(void *p);
#define malloc heap_malloc
#define calloc heap_calloc
#define realloc heap_realloc
#define free heap_free
#endif

/* model_shared.c */
void program_begin(struct program *p, int seed, size_t largest, int type, struct cow_group *group);
void share_slot(struct program *p, struct slot *from, struct slot *to, enum cow_share_mode mode);
void program_step(struct program *p);
void program_steps(struct program *p, int steps);
void program_end(struct program *p);
/* The loop of a suite: 0 to `n`, or SEED= alone. */
void model_seeds(TCase *tcase, const TTest *test, int n);

#endif
