/* SPDX-License-Identifier: MIT */
/*
 * cowshed: copy-on-write, shareable memory for Linux
 *
 * A *storage* is a reference-counted handle on bytes of one device. Storages
 * of the default allocator live in sealed memfds, so three things cost
 * mappings instead of copies: cloning one, forking with it, sharing it.
 *
 *      struct cow_storage *a, *b;
 *      void *p;
 *
 *      cow_storage_new(1 << 30, NULL, &a);              1 GiB, sparse
 *      cow_storage_data_mut(a, &p);                     "I am going to write"
 *      memset(p, 1, 1 << 30);
 *      cow_storage_lazy_clone(a, &b);                   one reference, no copy
 *      cow_storage_data_mut_range(b, 0, 1, 0, &p);      a private view
 *      *(char *)p = 2;                                  one page is copied
 *      cow_storage_unref(b);
 *      cow_storage_unref(a);
 *
 * Two storages alias only if they are the same storage. Clones share their
 * bytes invisibly, as the copy-on-write note of PyTorch prescribes.
 *
 * Tracked and transparent. Whoever writes a *tracked* storage (the default)
 * asks for the address with cow_storage_data_mut() each time it begins to
 * write, and uses no pointer from before the last clone: a lazily cloned
 * storage may move when it is written first. The address of a *transparent*
 * storage may be given to code that knows nothing of all this (malloc's
 * callers, NumPy); it never moves, and the MMU notices writes.
 *
 * Ownership. cow_..._new/open/clone/ref return a reference that the caller
 * gives back with ..._unref. Results come back through `ret`, the last
 * parameter, which is untouched on failure.
 *
 * Errors. Functions return 0 (or a documented positive outcome) or -errno.
 * After a failure cow_last_error() is a sentence for people. A failed call
 * leaves everything as it was. The library never prints and never aborts on a
 * wrong argument; it traps (SIGILL, on aarch64 SIGTRAP) when its own
 * bookkeeping is broken, as by the second free of a block.
 *
 * Threads. Any function may be called from any thread. For one storage the
 * caller orders writes against reads, as with any memory: cow_storage_data()
 * and cow_storage_lazy_clone() are reads, cow_storage_data_mut(), resize, swap
 * and materialize are writes, and so is sharing it with other processes (send,
 * export, put) unless it is transparent: its bytes may move. Storages that
 * secretly share bytes need no such care: the library orders what happens
 * between them. The library's own threads are unknown to libc: before a call
 * that gives up privileges (setuid(), capset(), a seccomp filter, landlock) end
 * them with cow_threads_end(), or they keep them; under the shim that is done.
 *
 * fork. Both processes keep every storage, with the bytes of that moment and
 * their own writes after it. Nothing is copied but the pages written later.
 * Functions may be called in the child of a program with threads. Signal
 * handlers may not call the library.
 */
#ifndef COWSHED_H
#define COWSHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

#define COW_VERSION_MAJOR 0
#define COW_VERSION_MINOR 1
#define COW_VERSION_PATCH 0

/* "0.1.0", of the library that is loaded. Static; never fails. */
const char *cow_version(void);

/*
 * The sentence about the calling thread's last failure in this library, or ""
 * when it had none. Valid until that thread's next failing call. Never NULL.
 */
const char *cow_last_error(void);

/* ---- Devices and data pointers: cow_data_ptr(3) ------------------------- */

enum cow_device_type {
	COW_DEVICE_CPU = 0,
	COW_DEVICE_META = 1,    /* no bytes at all, only sizes */
	COW_DEVICE_CUDA = 2,
	COW_DEVICE_PRIVATE = 3, /* for a third party's device */
	COW_DEVICE_TYPES = 8,
};

/* So many of one type, numbered from 0. */
#define COW_DEVICE_INDEXES 64

struct cow_device {
	int16_t type;  /* enum cow_device_type */
	int16_t index; /* which of them; 0 for the CPU */
};

/* Disposes of what `context` owns. Called once; may call the library. */
typedef void cow_deleter_fn(void *context);

/*
 * A data pointer: bytes, and what it takes to get rid of them. It is a value of
 * four words; making one allocates nothing. The deleter receives the
 * *context*, which is often, not always, the data. Its address tells the type
 * of the context (cow_data_ptr_cast()). The deleter runs whenever the context
 * is not NULL, also where the data is NULL; a NULL deleter disposes of
 * nothing. (The rules of PyTorch's c10::DataPtr.)
 *
 * A data pointer is owned by one holder; copying the struct copies no
 * ownership. Not thread-safe in itself.
 */
struct cow_data_ptr {
	void *data;
	void *context;
	cow_deleter_fn *deleter;
	struct cow_device device;
};

/* A data pointer on external memory. Takes ownership of `context`. */
struct cow_data_ptr cow_data_ptr_make(void *data, void *context,
                                      cow_deleter_fn *deleter,
                                      struct cow_device device);

/* Runs the deleter if there is a context, and empties it; the device stays.
 * Takes NULL. */
void cow_data_ptr_clear(struct cow_data_ptr *ptr);

/* Gives up the context without running the deleter; returns it. The caller now
 * owns it. The data address stays readable in `ptr`. */
void *cow_data_ptr_release_context(struct cow_data_ptr *ptr);

/* Moves `from` into the returned value; `from` becomes empty on its device. */
struct cow_data_ptr cow_data_ptr_move(struct cow_data_ptr *from);

/* The context if the deleter is `expected`, else NULL. */
void *cow_data_ptr_cast(const struct cow_data_ptr *ptr,
                        cow_deleter_fn *expected);

/* Replaces the deleter by `desired` if it is `expected`; says whether it did.
 * The new deleter must dispose of the same context. */
bool cow_data_ptr_compare_exchange_deleter(struct cow_data_ptr *ptr,
                                           cow_deleter_fn *expected,
                                           cow_deleter_fn *desired);

/* ---- Allocators: cow_allocator(3) --------------------------------------- */

/*
 * Makes data pointers. Filled in by its implementer, owned by it, and alive as
 * long as anything it made (usually: static). `size` is sizeof(struct
 * cow_allocator). Functions get the allocator itself, so that it can be
 * embedded in a larger struct. All must be callable from any thread.
 */
struct cow_allocator {
	size_t size;
	const char *name;         /* for error sentences */
	struct cow_device device; /* of everything it makes */

	/* `bytes` > 0. 0 or -errno; `ret` only on success. */
	int (*allocate)(struct cow_allocator *self, size_t bytes,
	                struct cow_data_ptr *ret);
	/* Copies between two of its own. NULL: memcpy. */
	int (*copy_data)(struct cow_allocator *self, void *dst, const void *src,
	                 size_t bytes);
	/* Not NULL is a promise: every data pointer it makes has data ==
	 * context and this deleter. Gives the raw form below. */
	cow_deleter_fn *raw_deleter;
};

/* The engine's allocator: CPU memory in sealed memfds, 64-byte aligned, page
 * aligned from one page on. Never NULL. Has the raw form. */
struct cow_allocator *cow_allocator_default(void);

/*
 * The registry: one allocator a device. Replaces the present one when
 * `priority` is at least its own; returns 0 if it did, 1 if the present one
 * stays. The CPU starts with cow_allocator_default() at priority 0. NULL
 * removes. Thread-safe. -EINVAL: no such device, incomplete allocator, or one
 * of another device.
 */
int cow_allocator_set(struct cow_device device, struct cow_allocator *allocator,
                      int priority);

/* The registered allocator. -ENODEV: none is set. */
int cow_allocator_get(struct cow_device device, struct cow_allocator **ret);

/* Allocates with profiling. 0 bytes: succeeds, NULL data on its device. */
int cow_allocator_allocate(struct cow_allocator *allocator, size_t bytes,
                           struct cow_data_ptr *ret);

/* Allocates and copies `bytes` from `src`, memory of the same allocator. */
int cow_allocator_clone(struct cow_allocator *allocator, const void *src,
                        size_t bytes, struct cow_data_ptr *ret);

/* The raw form, for callers that keep one bare pointer. -ENOTSUP: the
 * allocator has no raw_deleter. -EINVAL: it has one that what it allocated is
 * not freed by. Deallocate takes NULL. */
int cow_allocator_raw_allocate(struct cow_allocator *allocator, size_t bytes,
                               void **ret);
int cow_allocator_raw_deallocate(struct cow_allocator *allocator, void *data);

/*
 * Observers of memory. on_memory: `delta` bytes came (positive) or went at
 * `data`; totals after it. on_out_of_memory: an allocation of `bytes` failed.
 * Called without locks held, on the thread that caused it; may call the
 * library. Process-wide. The struct must outlive its registration; NULL ends
 * it (calls under way in other threads may still finish).
 */
struct cow_profiler {
	size_t size;
	void (*on_memory)(void *user, const void *data, int64_t delta,
	                  uint64_t total_bytes, struct cow_device device);
	void (*on_out_of_memory)(void *user, size_t bytes, uint64_t total_bytes,
	                         struct cow_device device);
	void *user;
};
int cow_profiler_set(const struct cow_profiler *profiler);

/* ---- Storages: cow_storage(3) ------------------------------------------- */

struct cow_storage;

/*
 * What a storage of elements that are not plain bytes (strings, objects) needs.
 * Such a storage is cloned eagerly through `copy`, destroyed through
 * `destroy`, and refuses byte resize and page sharing (-EOPNOTSUPP).
 */
struct cow_element_hooks {
	size_t size;
	size_t element_bytes; /* > 0; storage sizes must be multiples of it */
	/* Constructs `count` elements at `dst` as copies of those at `src`. On
	 * failure nothing is constructed and -errno comes back. */
	int (*copy)(void *user, void *dst, const void *src, size_t count);
	/* Destroys `count` elements. NULL: nothing to do. */
	void (*destroy)(void *user, void *data, size_t count);
	/* Constructs `count` elements in fresh memory. NULL: zero bytes are
	 * valid elements. */
	int (*construct)(void *user, void *data, size_t count);
	void *user;
};

enum cow_storage_flags {
	COW_STORAGE_ZERO = 1 << 0,        /* bytes read as zero */
	COW_STORAGE_TRANSPARENT = 1 << 1, /* see the top of this file */
	COW_STORAGE_STRICT = 1 << 2,      /* commit now: -ENOMEM, never SIGBUS */
};

/* NULL options: all zero. `size` is sizeof; a longer struct with non-zero bytes
 * that this library does not know is -E2BIG. */
struct cow_storage_options {
	size_t size;
	uint32_t flags;                          /* enum cow_storage_flags */
	uint32_t reserved;                       /* 0 */
	struct cow_allocator *allocator;         /* NULL: of the CPU */
	const struct cow_element_hooks *elements; /* must outlive the storage */
};

/*
 * A storage of `bytes` fresh bytes: 0 up to more than there is memory (pages
 * come when they are touched, unless STRICT). Contents are unspecified without
 * ZERO. Cost: under 1 us for recycled memory, some us for fresh.
 * -EINVAL: unknown flags, sizes that overflow; -ENOMEM: no address space, or
 * STRICT and no memory; -E2BIG: see options; -ENODEV: no allocator is set for
 * the CPU; -EOPNOTSUPP: TRANSPARENT with element hooks; what the allocator or
 * the hooks' construct say.
 */
int cow_storage_new(size_t bytes, const struct cow_storage_options *options,
                    struct cow_storage **ret);

/*
 * A storage on memory from elsewhere. On success it owns what `ptr` owned and
 * `ptr` is empty. It can be resized only if options name an allocator for the
 * new bytes; TRANSPARENT is ignored, its address is known anyway. Clones of it
 * are eager copies (counted as COW_FALLBACK_FOREIGN), by the allocator of its
 * device.
 */
int cow_storage_new_external(struct cow_data_ptr *ptr, size_t bytes,
                             const struct cow_storage_options *options,
                             struct cow_storage **ret);

/*
 * The storage that `ptr` points into: a transparent storage, or a block of
 * cow_block_new() (under the shim: of malloc), which then lives until both the
 * block and this reference are gone. `ret_offset`, if not NULL, is the distance
 * from its first byte. -ENOENT: not ours, behind its last byte, freed, a tracked
 * storage, or memory of another allocator.
 */
int cow_storage_from_ptr(const void *ptr, size_t *ret_offset,
                         struct cow_storage **ret);

/* Atomic references. unref takes NULL and returns NULL. */
struct cow_storage *cow_storage_ref(struct cow_storage *storage);
struct cow_storage *cow_storage_unref(struct cow_storage *storage);

size_t cow_storage_bytes(const struct cow_storage *storage);
struct cow_device cow_storage_device(const struct cow_storage *storage);

/* How many references this storage has (1: yours alone). A snapshot. */
uint64_t cow_storage_use_count(const struct cow_storage *storage);

/* The bytes for reading. Never copies, never fails; NULL for 0 bytes. Valid
 * until the storage is written, resized, swapped, shared with other processes
 * or freed. */
const void *cow_storage_data(const struct cow_storage *storage);

/* What the caller of data_mut is about to do; decides between copying pages
 * when they are written and copying all at once. Never changes the result. */
enum cow_write_hint {
	COW_WRITE_AUTO = 0,      /* the range given will be written, mostly */
	COW_WRITE_SPARSE = 1,    /* a few pages of the range */
	COW_WRITE_ALL = 2,       /* every byte that is read later; old bytes
	                            matter only outside of the range */
	COW_WRITE_BY_PAGE = 3,   /* force a private view */
	COW_WRITE_BY_COPY = 4,   /* force a copy */
};

/*
 * The bytes for writing: materializes a lazy storage. The pointer is valid
 * until the next clone, resize or swap of this storage. Cost: nothing when the
 * storage is not lazy (a lock, while anything in the process is frozen); the
 * last reference *steals* (no copy); else a private view (some us, then ~2 us
 * for each page written first) or a copy.
 * data_mut means the whole storage with COW_WRITE_AUTO.
 *
 * [offset, offset + bytes) is what will be written; other bytes must not be
 * written through the pointer that comes back, which points at the storage's
 * first byte. With COW_WRITE_ALL the bytes of the range are unspecified until
 * written, and fresh memory is committed in huge pages at once.
 * -EINVAL: range outside; -ENOMEM; the storage is as before on failure.
 */
int cow_storage_data_mut(struct cow_storage *storage, void **ret);
int cow_storage_data_mut_range(struct cow_storage *storage, size_t offset,
                               size_t bytes, enum cow_write_hint hint,
                               void **ret);

/*
 * Makes a storage transparent, and says where it is: from now on the address
 * never changes until resize or swap, and may be written without notice. A lazy
 * storage is materialized first, by page if that is cheaper. Idempotent.
 * -EOPNOTSUPP: element hooks; -ENOMEM.
 */
int cow_storage_expose(struct cow_storage *storage, void **ret);

/*
 * A new storage with the same bytes, sharing them until either is written.
 * Tracked source: one reference, no system call, any size. Transparent source:
 * its pages are frozen in place (readers and writers go on); cloning it again
 * costs the pages written since. Small transparent ones, external memory and
 * element hooks: an eager copy, counted. With a live writer the promise is
 * memcpy's: writes finished before the call are in, later ones are out.
 * The clone is tracked. -ENOMEM; -ENODEV: external memory of a device that has
 * no allocator; what the hooks say.
 */
int cow_storage_lazy_clone(struct cow_storage *storage,
                           struct cow_storage **ret);

/*
 * The same of `n` storages, one after the other: what has to be asked about the
 * process is asked once.
 * *ret_copied, unless NULL: the bytes that were copied. All or none:
 * after a failure every ret[i] is NULL. -EINVAL: one of `storages` is.
 */
int cow_storages_lazy_clone(struct cow_storage *const *storages, size_t n,
                            uint64_t *ret_copied, struct cow_storage **ret);

/* The same with bytes of its own at once. */
int cow_storage_clone(struct cow_storage *storage, struct cow_storage **ret);

/*
 * min(old, new) bytes stay as they are; new ones are unspecified unless the
 * storage was made with ZERO. Never affects clones. Grows in place if nobody
 * else reads its pages and there is room behind them; else allocates, copies and
 * frees. Pointers into it are invalid afterwards in either case.
 * -EPERM: no allocator (external memory); -EBUSY: transparent and held by
 * someone else; -EOPNOTSUPP: element hooks; -EINVAL: absurd size; -ENOMEM.
 */
int cow_storage_resize(struct cow_storage *storage, size_t bytes);

/*
 * Swaps the data under a live storage: afterwards the storage holds what
 * `inout` held, with `bytes` bytes, and `inout` owns the old data. A lazy
 * storage is materialized first, since the old data comes back writable.
 * It can be resized afterwards only if the new deleter is its allocator's own.
 * -EINVAL; -EBUSY as for resize; -ENOMEM.
 */
int cow_storage_swap_data_ptr(struct cow_storage *storage,
                              struct cow_data_ptr *inout, size_t bytes);

enum cow_storage_state {
	COW_STATE_OWNED = 0,   /* alone on its bytes, written in place */
	COW_STATE_LAZY = 1,    /* shares all bytes; writing materializes */
	COW_STATE_VIEW = 2,    /* a private view: shares the pages not written */
	COW_STATE_FOREIGN = 3, /* memory of another allocator */
};

struct cow_storage_info {
	size_t size;           /* in: sizeof */
	uint32_t state;        /* enum cow_storage_state */
	uint32_t flags;        /* enum cow_storage_flags */
	uint64_t sharers;      /* storages that read its bytes, this one too */
	uint64_t mappings;     /* mappings that make it up */
	uint64_t bytes_own;    /* bytes of pages that only it has (views: pages
	                          copied so far), as far as the kernel tells */
	uint64_t frozen;       /* 1: its pages are frozen (a fork or a clone) */
};
int cow_storage_get_info(const struct cow_storage *storage,
                         struct cow_storage_info *ret);

/* ---- Blocks: for allocators on top of the engine (the shim is one): cow_block(3) -- */

enum cow_block_flags {
	COW_BLOCK_ZERO = 1 << 0,
};

/*
 * Raw transparent memory of at least one byte, page aligned or better;
 * `alignment` is 0 or a power of two. Cheap from 64 KiB up; every block is a
 * storage (cow_storage_from_ptr()). -EINVAL; -ENOMEM, also for what the kernel
 * would refuse as anonymous memory.
 */
int cow_block_new(size_t bytes, size_t alignment, uint32_t flags, void **ret);

/* Frees; takes NULL. A pointer that is not the start of a live block traps
 * (double free, foreign pointer). */
void cow_block_free(void *ptr);

/* Usable bytes of a live block; traps otherwise. */
size_t cow_block_bytes(const void *ptr);

/* Grows or shrinks, in place where possible; on success the old address is
 * invalid unless `ret` equals it. A block that moves is aligned as by
 * cow_block_new() without alignment. On failure the block is as before. */
int cow_block_resize(void *ptr, size_t bytes, void **ret);

/* The address range in which everything of this process lives. [0, 0) before
 * the first allocation; never changes after. All of it is the engine's, unless
 * the shim gave a part back because the program limits its address space. */
void cow_window(uintptr_t *ret_start, uintptr_t *ret_end);

/* ---- Threads of the library: cow_threads(3) ------------------------------- */

/*
 * Threads that copies may use, this one included; 0: one for each processor. Large
 * copies are shared with threads that are made when they are first needed, that know no
 * libc, block all signals and end after two idle seconds. Where they are denied, copies
 * do without. A forked child makes its own. As signals are blocked there, a handler for
 * SIGSEGV or SIGBUS is not called for memory that one of them touches: the process ends.
 * Who copies memory that faults on purpose sets 1.
 */
int cow_threads_set(int threads);
int cow_threads_get(void);

/*
 * Ends all threads of the library's own, also the helper that works ahead, and returns
 * when the process no longer counts them: for what wants a process with one thread
 * (unshare(CLONE_NEWUSER), setns()), and for what changes the calling one alone. libc
 * tells all threads that it knows when setuid() and its like are called, and these are
 * none; nobody tells any about capset(), prctl(PR_SET_NO_NEW_PRIVS), seccomp filters and
 * landlock. Those that are there would keep what was given up; new ones have what their
 * maker has. Waits for copies under way in other threads. They come back when there is
 * work, so no other thread may use the library before the call was made; none is made by
 * copies after cow_threads_set(1).
 */
void cow_threads_end(void);

/* ---- The engine as a whole: cow_engine(3) ------------------------------- */

/* Gives freed memory that is kept warm back to the kernel now, and what
 * vanished processes held. Returns 1 if anything was given back, else 0. */
int cow_trim(void);

/*
 * One option of the engine, as in COWSHED_OPTIONS (the shim's own keys,
 * threshold, mmap and report, are not among them). Keys and units: docs/options.md.
 * -ENOENT: no such key; -EINVAL: not a value for it; -EBUSY: can only be set
 * before the first allocation.
 */
int cow_option_set(const char *key, const char *value);

/* Why something was done the slow way. Names: cow_fallback_name(). */
enum cow_fallback {
	COW_FALLBACK_MEMFD = 0,   /* no memfd: anonymous memory */
	COW_FALLBACK_WINDOW,      /* no address space left in the window */
	COW_FALLBACK_COLLAPSE,    /* huge pages refused */
	COW_FALLBACK_PAGEMAP,     /* /proc/self/pagemap is not to be had */
	COW_FALLBACK_THREAD,      /* the helper thread could not be started */
	COW_FALLBACK_DESCRIPTOR,  /* our descriptor was closed by the program */
	COW_FALLBACK_MAPPINGS,    /* near vm.max_map_count: copied instead */
	COW_FALLBACK_SEGMENTS,    /* too many descriptors: segment kept */
	COW_FALLBACK_FREEZE,      /* freeze refused: copied for the child */
	COW_FALLBACK_PINNED,      /* memory may be under I/O: copied */
	COW_FALLBACK_SLOTS,       /* more than 62 related processes at once */
	COW_FALLBACK_FOREIGN,     /* clone of foreign memory: copied */
	COW_FALLBACK_SMALL,       /* clone of a small transparent one: copied */
	COW_FALLBACK_ELEMENTS,    /* clone through element hooks */
	COW_FALLBACK_BUSY,        /* no thaw: other threads may be writing */
	COW_FALLBACK_HELD,        /* no thaw: another process maps the pages */
	COW_FALLBACK_BACKING,     /* anonymous memory by policy, and clones of
	                             memory that is not the memfd's: copied */
	COW_FALLBACK_REMAPPED,    /* the program remapped or emptied a part */
	COW_FALLBACK_REWRITTEN,   /* clone of what was mostly written beside an
	                             earlier one, or in many places: copied */
	COW_FALLBACKS = 24,
};
const char *cow_fallback_name(enum cow_fallback reason);

/*
 * Counters since the start of the process (or its fork). Also readable from
 * outside, live, with cow_stats_read(): they lie in a page of a memfd named
 * "cowshed-stats". Every member is a uint64_t; new ones are added at the end.
 */
struct cow_stats {
	uint64_t size;             /* sizeof; in for cow_stats_get() */
	uint64_t bytes_live;       /* handed out and not freed */
	uint64_t bytes_peak;       /* highest bytes_live */
	uint64_t bytes_served;     /* handed out, ever */
	uint64_t bytes_recycled;   /* of those: from warm memory */
	uint64_t bytes_warm;       /* freed, still populated */
	uint64_t bytes_returned;   /* given back to the kernel, ever */
	uint64_t bytes_collapsed;  /* huge pages made ahead of the program */
	uint64_t blocks_live;      /* blocks and storages' own extents */
	uint64_t blocks_served;
	uint64_t storages_live;
	uint64_t clones_lazy;      /* by reference */
	uint64_t clones_paged;     /* by freezing a transparent storage */
	uint64_t clones_eager;     /* by copying */
	uint64_t materialized_page;
	uint64_t materialized_copy;
	uint64_t steals;
	uint64_t bytes_copied;     /* by the library, for any of the above */
	uint64_t bytes_not_copied; /* that an eager library would have copied */
	uint64_t forks;
	uint64_t fork_ns_last;     /* fork's pause, our part and the kernel's */
	uint64_t fork_ns_max;
	uint64_t fork_ns_total;
	uint64_t freezes;          /* extents frozen */
	uint64_t bytes_frozen;
	uint64_t thaws;            /* extents thawed */
	uint64_t bytes_thawed;
	uint64_t pages_written_back; /* while thawing */
	uint64_t pages_private;    /* copied pages seen at the last looks */
	uint64_t bytes_shadow_returned; /* frozen pages nobody needed any more */
	uint64_t bytes_limbo;      /* freed here, still mapped by others */
	uint64_t segments;         /* memfds open now */
	uint64_t mappings;         /* kernel mappings in the window, estimated */
	uint64_t helper_starts;
	uint64_t fallbacks[COW_FALLBACKS];
};

/* `ret->size` says how much the caller knows; that much is filled. */
int cow_stats_get(struct cow_stats *ret);

/* Another process's counters. -ENOENT: it has none (does not use cowshed, or
 * allocated nothing large since it was started or forked); -EPERM/-EACCES: not
 * ours to look at; -ESRCH. */
int cow_stats_read(pid_t pid, struct cow_stats *ret);

/* What this kernel offers and how it is used now. */
enum cow_feature {
	COW_FEATURE_MEMFD = 0,     /* memfd_create with seals */
	COW_FEATURE_COLLAPSE,      /* MADV_COLLAPSE on a memfd */
	COW_FEATURE_PAGEMAP,       /* /proc/self/pagemap */
	COW_FEATURE_PAGEMAP_SCAN,  /* its PAGEMAP_SCAN ioctl */
	COW_FEATURE_LOCKS,         /* OFD locks on a reopened memfd */
	COW_FEATURE_THREADS,       /* /proc/self/task: are others idle? */
	COW_FEATURE_UNSHARE,       /* unshare(CLONE_VM): are we alone? */
	COW_FEATURE_IO_URING,
	COW_FEATURE_USERFAULTFD,
	COW_FEATURES = 16,
};
/* 1: there and working (probed, not guessed); 0: not; and in `ret_why`, if not
 * NULL, a static sentence: what it brings, or what denied it. -EINVAL: no such
 * feature. */
int cow_feature_probe(enum cow_feature feature, const char **ret_name,
                      const char **ret_why);

#ifdef __cplusplus
}
#endif

#endif
