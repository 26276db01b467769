/* SPDX-License-Identifier: MIT */
/*
 * cowshed: copy-on-write, shareable memory for Linux
 *
 * Library: libcowshed (pkg-config cowshed).
 *
 * A *storage* is a reference-counted handle on bytes of one device. The default
 * allocator keeps the bytes in sealed memfds (memfd_create(2)). So three things
 * change mappings instead of copying bytes: cloning a storage, forking with it,
 * sharing it.
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
 * Tracked and transparent. The writer of a *tracked* storage (the default) asks
 * for the address with cow_storage_data_mut() each time it begins to write. It
 * uses no pointer from before the last clone: a lazily cloned storage may move
 * at its first write. A *transparent* storage never moves. Its address may be
 * given to code that knows nothing of cowshed (callers of malloc(), NumPy): the
 * MMU notices the writes.
 *
 * Ownership. cow_..._new/open/clone/ref return a reference; the caller gives it
 * back with ..._unref. Results come back through `ret`, the last parameter. A
 * failed call leaves `ret` untouched.
 *
 * Errors. Functions return 0 (or a documented positive outcome) or -errno;
 * where they need a pointer, NULL is -EINVAL. cow_last_error() then has a
 * sentence for people. A failed call leaves everything as it was. The library
 * never prints, and never aborts on a wrong argument. It traps (SIGILL; on
 * aarch64 SIGTRAP) when its own bookkeeping is broken, as by the second free of
 * a block. The program may unmap or protect a part of a block or storage. A call
 * that would have to copy such bytes (clone, write, resize, send, save, copy) is
 * -EFAULT.
 *
 * A function that needs memory, a descriptor or a thread of the kernel may also
 * return what the kernel denies it, though its list has no line for that:
 * -ENOMEM (memory, addresses, mappings, locked memory), -EMFILE, -ENFILE,
 * -EFBIG (RLIMIT_FSIZE limits memfds), -EINTR, and what a filter of system calls
 * or a security module answers: as a rule -EPERM, -EACCES or -ENOSYS. Where the
 * library can do without, it does, and counts that (enum cow_fallback).
 *
 * Threads. Any function may be called from any thread. For one storage the
 * caller orders writes against reads, as for any memory. Reads are
 * cow_storage_data() and cow_storage_lazy_clone(). Writes are
 * cow_storage_data_mut(), expose, resize and swap. Sharing a storage with other
 * processes (send, export, put) is a write unless it is transparent: its bytes
 * may move. Clones need no such order: the library orders what happens between
 * them. The library has threads that libc does not know: see cow_threads_end()
 * before giving up privileges.
 *
 * fork. Both processes keep every storage, with the bytes of that moment and
 * their own writes after it. The kernel copies only pages that are written
 * later. The child of a program with threads may call functions, too. Signal
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

/* The version of the library that is loaded, as "0.1.0". A static string; never
 * fails. The macros above are the version of this header. */
const char *cow_version(void);

/*
 * The sentence about the calling thread's last failure in this library, or ""
 * if it had none. Never NULL. Each thread has a buffer of its own, which the
 * library owns. Read it right after the failure: the thread's later calls may
 * replace or clear it, also those that succeed.
 */
const char *cow_last_error(void);

/* ---- Devices and data pointers: cow_data_ptr(3) ------------------------- */

/*
 * A type of devices. The CPU works from the start. A CUDA device works once the
 * program calls cow_cuda_start(), which is in libcowshed-cuda. (`cowshed
 * doctor` loads that library by itself.) For other types the program sets an
 * allocator (cow_allocator_set()). Tensors need cow_device_set() besides
 * (cowshed-tensor.h).
 */
enum cow_device_type {
	COW_DEVICE_CPU = 0,
	COW_DEVICE_META = 1,    /* no bytes at all, only sizes */
	COW_DEVICE_CUDA = 2,
	COW_DEVICE_PRIVATE = 3, /* for a third party's device */
	COW_DEVICE_TYPES = 8,   /* types are less than this */
};

/* Devices of one type, at most. They are numbered from 0. */
#define COW_DEVICE_INDEXES 64

struct cow_device {
	int16_t type;  /* enum cow_device_type */
	int16_t index; /* which device of the type; 0 for the CPU */
};

/* Disposes of what `context` owns. The library calls it once for each context.
 * It may call the library. */
typedef void cow_deleter_fn(void *context);

/*
 * A data pointer: bytes, and what disposes of them. It is a value of four
 * words; making one allocates nothing. The rules are those of PyTorch's
 * c10::DataPtr:
 *
 * The deleter receives the *context*. The context is often the data, but need
 * not be. The deleter's address tells the type of the context
 * (cow_data_ptr_cast()). The deleter runs whenever the context is not NULL,
 * also where the data is NULL. A NULL deleter disposes of nothing.
 *
 * A data pointer has one owner; copying the struct copies no ownership. The
 * functions below take no lock: the caller orders calls on the same struct.
 * None of them fails. Only cow_data_ptr_clear() takes NULL.
 */
struct cow_data_ptr {
	void *data;
	void *context;
	cow_deleter_fn *deleter;
	struct cow_device device;
};

/* A data pointer on external memory at `data`, on `device`. It owns `context`
 * from now on. */
struct cow_data_ptr cow_data_ptr_make(void *data, void *context,
                                      cow_deleter_fn *deleter,
                                      struct cow_device device);

/* Empties the data pointer, then runs the deleter if there is a context. The
 * device stays. Takes NULL. */
void cow_data_ptr_clear(struct cow_data_ptr *ptr);

/* Gives up the context without running the deleter, and returns it. The caller
 * owns the context from now on. The address of the data stays in `ptr`. */
void *cow_data_ptr_release_context(struct cow_data_ptr *ptr);

/* Moves `from` into the returned value. `from` becomes empty; its device stays. */
struct cow_data_ptr cow_data_ptr_move(struct cow_data_ptr *from);

/* The context if the deleter is `expected`, else NULL. The context stays the
 * data pointer's. */
void *cow_data_ptr_cast(const struct cow_data_ptr *ptr,
                        cow_deleter_fn *expected);

/* Replaces the deleter by `desired` if it is `expected`. Returns whether it
 * did. The new deleter must dispose of the same context. */
bool cow_data_ptr_compare_exchange_deleter(struct cow_data_ptr *ptr,
                                           cow_deleter_fn *expected,
                                           cow_deleter_fn *desired);

/* ---- Allocators: cow_allocator(3) --------------------------------------- */

/*
 * Makes data pointers of one device. The implementer fills the struct in and
 * owns it. It must live as long as anything that it made (usually: static).
 * Each function gets the allocator itself, so the struct can be embedded in a
 * larger one. The library calls the functions from any thread, also from
 * several at once.
 */
struct cow_allocator {
	size_t size;              /* sizeof(struct cow_allocator) */
	const char *name;         /* for error sentences */
	struct cow_device device; /* of everything it makes */

	/* `bytes` > 0. Returns 0 or -errno; sets `ret` only on success. */
	int (*allocate)(struct cow_allocator *self, size_t bytes,
	                struct cow_data_ptr *ret);
	/* Copies between two pieces of its own memory. Returns 0 or -errno.
	 * NULL: the library calls memcpy(). */
	int (*copy_data)(struct cow_allocator *self, void *dst, const void *src,
	                 size_t bytes);
	/* If this is not NULL it is a promise: every data pointer that the
	 * allocator makes has data == context and this deleter. Then the raw
	 * form below works. */
	cow_deleter_fn *raw_deleter;
};

/* The engine's allocator: CPU memory in sealed memfds, aligned to 64 bytes, and
 * to a page from one page on. It is static, never NULL, and has the raw form.
 * */
struct cow_allocator *cow_allocator_default(void);

/*
 * Sets the allocator of a device. Each device has one. `allocator` replaces the
 * present one if `priority` is at least the present one's. NULL removes it, by
 * the same rule. The CPU starts with cow_allocator_default() at priority 0; the
 * other devices start with none, also at priority 0. The allocator stays its
 * implementer's. Storages that exist keep the allocator that they have.
 *
 * Returns 0 if it was set, 1 if the present one stays. Thread-safe.
 *
 *   -EINVAL   no such device; an allocator that is incomplete, or of
 *             another device
 */
int cow_allocator_set(struct cow_device device, struct cow_allocator *allocator,
                      int priority);

/*
 * The allocator that is set for a device; it stays its implementer's.
 * Thread-safe.
 *
 *   -EINVAL   no such device
 *   -ENODEV   none is set
 */
int cow_allocator_get(struct cow_device device, struct cow_allocator **ret);

/*
 * Allocates `bytes` bytes, and tells the profiler. The caller owns *ret and
 * ends it with cow_data_ptr_clear(). 0 bytes succeed: the data is NULL, on the
 * allocator's device.
 *
 *   -EINVAL   an incomplete allocator; more than INT64_MAX bytes
 *   other     what the allocator returns
 */
int cow_allocator_allocate(struct cow_allocator *allocator, size_t bytes,
                           struct cow_data_ptr *ret);

/* Allocates, then copies `bytes` bytes from `src`, which is memory of the same
 * allocator. Ownership and errors as for cow_allocator_allocate(); besides,
 * what copy_data returns. */
int cow_allocator_clone(struct cow_allocator *allocator, const void *src,
                        size_t bytes, struct cow_data_ptr *ret);

/*
 * The raw form, for callers that keep one bare pointer. The caller owns *ret
 * and ends it with deallocate, which takes NULL. Errors as for
 * cow_allocator_allocate(), and:
 *
 *   -ENOTSUP   the allocator has no raw_deleter
 *   -EINVAL    what the allocator made is not freed by its raw_deleter
 */
int cow_allocator_raw_allocate(struct cow_allocator *allocator, size_t bytes,
                               void **ret);
int cow_allocator_raw_deallocate(struct cow_allocator *allocator, void *data);

/*
 * Observers of memory, for the whole process. Either function may be NULL. The
 * library calls them without locks held, on the thread that caused the event.
 * They may call the library.
 *
 * on_memory: `delta` bytes came (positive) or went (negative) at `data`. The
 * total is the sum over all devices after that. on_out_of_memory: an allocation
 * of `bytes` bytes failed.
 *
 * cow_profiler_set() sets them; NULL ends them. The struct stays the caller's
 * and must outlive its registration. Calls that are under way in other threads
 * may still finish after it was replaced.
 *
 *   -EINVAL   `size` is not set
 */
struct cow_profiler {
	size_t size; /* sizeof(struct cow_profiler) */
	void (*on_memory)(void *user, const void *data, int64_t delta,
	                  uint64_t total_bytes, struct cow_device device);
	void (*on_out_of_memory)(void *user, size_t bytes, uint64_t total_bytes,
	                         struct cow_device device);
	void *user; /* the first argument of both */
};
int cow_profiler_set(const struct cow_profiler *profiler);

/* ---- Storages: cow_storage(3) ------------------------------------------- */

struct cow_storage;

/*
 * Functions for a storage whose elements are not plain bytes (strings,
 * objects). The library clones such a storage eagerly through `copy` and ends
 * its elements through `destroy`. The storage refuses byte resize and page
 * sharing (-EOPNOTSUPP).
 */
struct cow_element_hooks {
	size_t size;          /* sizeof(struct cow_element_hooks) */
	size_t element_bytes; /* > 0; storage sizes must be multiples of it */
	/* Constructs `count` elements at `dst` as copies of those at `src`. On
	 * failure it has constructed nothing and returns -errno. */
	int (*copy)(void *user, void *dst, const void *src, size_t count);
	/* Destroys `count` elements. NULL: nothing to do. */
	void (*destroy)(void *user, void *data, size_t count);
	/* Constructs `count` elements in fresh memory; 0 or -errno. NULL: zero
	 * bytes are valid elements. */
	int (*construct)(void *user, void *data, size_t count);
	void *user; /* the first argument of all three */
};

enum cow_storage_flags {
	COW_STORAGE_ZERO = 1 << 0,        /* bytes read as zero */
	COW_STORAGE_TRANSPARENT = 1 << 1, /* see the top of cowshed.h */
	COW_STORAGE_STRICT = 1 << 2,      /* commit now: -ENOMEM, never SIGBUS */
	/* The bytes lie alone in a memfd from the start, so that the first send,
	 * export or put copies nothing, in any mode. Clones have the flag, too. It
	 * costs a descriptor and a mapping for each storage with bytes of its own.
	 * If a quarter of RLIMIT_NOFILE is in use so (8 at least, 1024 at most),
	 * or the kernel refuses the file, the storage is made in other memory, and
	 * is copied when it is sent: `shared` of cow_storage_info tells. Many small
	 * storages are better made by cow_group_storage_new(). */
	COW_STORAGE_SHAREABLE = 1 << 3,
};

/* NULL options mean all zero. A longer struct is -E2BIG if it has non-zero
 * bytes that this library does not know. */
struct cow_storage_options {
	size_t size;             /* sizeof(struct cow_storage_options) */
	uint32_t flags;          /* enum cow_storage_flags */
	uint32_t reserved;       /* 0 */
	struct cow_allocator *allocator; /* NULL: the CPU's */
	const struct cow_element_hooks *elements; /* must outlive the storage */
};

/*
 * Makes a storage of `bytes` fresh bytes: 0 up to more than there is memory.
 * The kernel makes the pages when they are touched, or at once with STRICT. The
 * bytes are unspecified without ZERO. The storage is tracked unless `options`
 * say TRANSPARENT.
 *
 * Cost: under 1 us if the memory is recycled, a few us if it is fresh.
 *
 *   -EINVAL      unknown flags, `size` not set, incomplete hooks; sizes
 *                over INT64_MAX, or not a multiple of element_bytes
 *   -ENOMEM      no address space; STRICT and no memory
 *   -E2BIG       see cow_storage_options
 *   -ENODEV      no allocator is set for the CPU
 *   -EOPNOTSUPP  TRANSPARENT or SHAREABLE with element hooks
 *   other        what the allocator or the hooks' construct returns
 */
int cow_storage_new(size_t bytes, const struct cow_storage_options *options,
                    struct cow_storage **ret);

/*
 * Makes a storage on memory from elsewhere (*external* memory): the `bytes`
 * bytes at `ptr`. On success the storage owns what `ptr` owned, and `ptr` is
 * empty. On failure `ptr` is as before.
 *
 * The storage can be resized only if `options` name an allocator for the new
 * bytes. TRANSPARENT and SHAREABLE are ignored: the bytes lie where they lie.
 * Clones are eager copies by the allocator of the storage's device, counted as
 * COW_FALLBACK_FOREIGN.
 *
 *   -EINVAL   no data, though `bytes` is not 0 (but for the meta device);
 *             more than INT64_MAX bytes, or bytes that wrap around the address
 *             space; no such device; options as for cow_storage_new()
 *   -E2BIG    see cow_storage_options
 *   -ENOMEM
 */
int cow_storage_new_external(struct cow_data_ptr *ptr, size_t bytes,
                             const struct cow_storage_options *options,
                             struct cow_storage **ret);

/*
 * Finds the storage that `ptr` points into, and returns a new reference to it.
 * It finds transparent storages, and blocks of cow_block_new() (under the shim:
 * of malloc()). A block that is found lives until both the block is freed and
 * the reference is given back. `ret_offset`, if not NULL, gets the distance of
 * `ptr` from the storage's first byte.
 *
 *   -ENOENT   not memory of the engine; behind its last byte; freed; a
 *             tracked storage; memory of another allocator; memory of which
 *             the program has unmapped a part; a mapping that grew in place
 *             (mremap()) and consists of parts
 *   -ENOMEM
 */
int cow_storage_from_ptr(const void *ptr, size_t *ret_offset,
                         struct cow_storage **ret);

/* Takes and gives back a reference; atomic. The last unref frees the bytes.
 * Both take NULL. unref returns NULL. */
struct cow_storage *cow_storage_ref(struct cow_storage *storage);
struct cow_storage *cow_storage_unref(struct cow_storage *storage);

/* How many bytes it has, and on which device. They never fail. NULL has 0
 * bytes, on the CPU. */
size_t cow_storage_bytes(const struct cow_storage *storage);
struct cow_device cow_storage_device(const struct cow_storage *storage);

/* How many references this storage has (1: only the caller's). Other threads
 * may change the number at any time. NULL has 0. */
uint64_t cow_storage_use_count(const struct cow_storage *storage);

/*
 * The address of the bytes, for reading; of a device's storage, the device's
 * address. Never copies, never fails. NULL if there are 0 bytes. The pointer is
 * valid until the storage is written, resized, swapped, shared with other
 * processes or freed. The bytes stay the storage's.
 */
const void *cow_storage_data(const struct cow_storage *storage);

/* Tells how much the caller of data_mut is about to write. By it the library
 * decides whether to copy pages when they are written or all bytes at once. A
 * hint never changes the result. */
enum cow_write_hint {
	COW_WRITE_AUTO = 0,      /* most of the given range will be written */
	COW_WRITE_SPARSE = 1,    /* few pages of the range; counted as 1/64 */
	COW_WRITE_ALL = 2,       /* every byte that is read later; old bytes
	                            matter only outside of the range */
	COW_WRITE_BY_PAGE = 3,   /* force a private view */
	COW_WRITE_BY_COPY = 4,   /* force a copy */
};

/*
 * The address of the bytes, for writing. A lazy storage is *materialized*: it
 * gets bytes that it alone writes. The pointer is valid until the next clone,
 * resize or swap of this storage, and until it is shared with other processes.
 *
 * [offset, offset + bytes) is what the caller will write. It must write no
 * other byte through the pointer. *ret points at the storage's first byte,
 * whatever `offset` is; NULL if the storage has 0 bytes. cow_storage_data_mut()
 * means the whole storage with COW_WRITE_AUTO. With COW_WRITE_ALL the bytes of
 * the range are unspecified until they are written, and fresh memory is
 * committed in huge pages at once.
 *
 * Cost: nothing if the storage is not lazy (a lock, while anything in the
 * process is frozen). The last reference *steals*: it takes the bytes over
 * without a copy. Else the storage gets a private view, or a copy of its bytes.
 * A view costs about 8 us, then 2 us for the first write of each page. A copy
 * costs about 0.35 us a page into recycled memory.
 *
 *   -EINVAL   a range outside of the storage; no such hint
 *   -ENOMEM
 *   other     of a device's storage: see cowshed-cuda.h
 */
int cow_storage_data_mut(struct cow_storage *storage, void **ret);
int cow_storage_data_mut_range(struct cow_storage *storage, size_t offset,
                               size_t bytes, enum cow_write_hint hint,
                               void **ret);

/* `bytes` bytes of memory from `start` on. */
struct cow_range {
	void *start;
	size_t bytes;
};

/*
 * Says that the caller is about to rewrite memory: `n` ranges, of any blocks and
 * transparent storages. What a clone, a snapshot or a forked child made copy-on-write
 * gets pages of its own, at its old address, and in bulk: huge pages, copied by all
 * processors. Afterwards it is written in place, and lies in shared memory, so that the
 * next clone or fork costs as little as the first.
 *
 * hint: COW_WRITE_AUTO and BY_COPY mean that most of each range will be rewritten. With
 * ALL every byte will be: the bytes may be anything afterwards, and nothing is copied.
 * SPARSE and BY_PAGE have no effect.
 *
 * The caller promises that until the return nobody else writes these ranges: no thread,
 * no other process, no I/O. Others may read them.
 *
 * The library replaces whole chunks of 2 MiB, and whole blocks. The last page of a block
 * belongs to a range that has its last byte. The rest is left to the kernel's copies by
 * page, and that is no error. The same holds for what is not the library's memory, or is
 * pinned, protected, advised or mapped by the program, or shared with other processes. It
 * holds for all memory if the process may have memory under I/O, or if memory runs short.
 * *ret_copied, if not NULL, gets the number of bytes that were copied.
 *
 * Cost: little for each range if nothing in the process is frozen. Else a copy of it by all
 * processors, into memory that an earlier rewrite left or into fresh memory, which takes
 * several times as long (bench/rewrite.c). What nobody reads any more is remapped without a
 * copy. After a copy its threads live for 0.2 seconds, and nothing is healed meanwhile.
 *
 * Thread-safe. Other threads that allocate wait for a step of at most 32 MiB, or a
 * sixteenth of the block. fork() may come at any moment.
 *
 *   -EINVAL   no ranges, though `n` is not 0; a range that wraps around; no such hint
 */
int cow_write_intent(const struct cow_range *ranges, size_t n, enum cow_write_hint hint,
                     uint64_t *ret_copied);

/* A rewrite that has begun. */
struct cow_rewrite;

/*
 * Begins a rewrite whose new bytes are computed from the old ones. The caller goes on reading
 * the old bytes in the range. He writes the new ones, all of them, at *ret_at, which has as
 * many bytes, of unspecified contents. cow_rewrite_end() then shows the new pages in the
 * range. Nothing is copied, and other readers of the range see the old bytes until then.
 *
 * range: all bytes of a block (cow_block_new(), malloc under the shim) or of a transparent
 * storage, and no more. It must be copy-on-write, and somebody else must read it: a clone, a
 * snapshot, a forked child. Else write it in place, after cow_write_intent().
 *
 * *ret: the caller ends it, exactly once. Until then nobody else writes the range, and nobody
 * frees, resizes, unmaps or protects any part of it. fork() may come at any moment; the child
 * has the old bytes, must not touch *ret_at, and can't end the rewrite.
 *
 * Cost: pages that an earlier rewrite left, or fresh ones for the whole range, which all
 * processors clear. If the library is making huge pages of the block, it waits for up to 50 ms.
 * Thread-safe. Not for signal handlers.
 *
 *   -EAGAIN   an intent would copy nothing: nobody else reads the range
 *   -ENOTSUP  the range is not a whole block or storage, or its memory must keep its pages
 *   -EBUSY    the process may have memory under I/O; or huge pages of the block are in work
 *   -ENOMEM
 *   -EINVAL   no range, or it wraps around; ret_at or ret is NULL
 */
int cow_rewrite_begin(const struct cow_range *range, void **ret_at, struct cow_rewrite **ret);

/*
 * Ends a rewrite. keep: the range shows the new bytes from now on. Without it nothing has
 * happened. The memory at *ret_at ends. Other threads may read meanwhile: each byte that they
 * see is old or new. Where the pages can't take their place any more, the bytes are copied by
 * the calling thread: the result is the same.
 *
 * Cost: one look into /proc and one remapping of the whole, or that copy. Other threads that
 * allocate wait for the remapping. It waits for up to 50 ms as cow_rewrite_begin() does.
 * Thread-safe. Can't fail but by wrong use:
 *
 *   -EINVAL   `rewrite` is NULL
 *   -ESTALE   this is a child of the process that began it, and has the old bytes
 */
int cow_rewrite_end(struct cow_rewrite *rewrite, bool keep);

/*
 * The same for all bytes of `n` storages. A tracked storage is materialized, as by
 * cow_storage_data_mut_range() with this hint: its address may change. *ret_copied counts
 * transparent storages alone.
 *
 *   -EINVAL   one of `storages` is NULL, and then nothing was done; no such hint
 *   other     as for cow_storage_data_mut_range(): the storages before that one are done
 */
int cow_storages_write_intent(struct cow_storage *const *storages, size_t n,
                              enum cow_write_hint hint, uint64_t *ret_copied);

/* Is any memory of this process copy-on-write at this moment, so that an intent may do
 * something? Takes no lock, costs a nanosecond. */
bool cow_is_frozen(void);

/*
 * Makes a storage transparent, and returns its address. The address does not
 * change until resize or swap, and may be written without notice. A lazy
 * storage is materialized first, by page if that is cheaper. Doing it again
 * changes nothing. *ret is NULL if the storage has 0 bytes.
 *
 *   -EOPNOTSUPP   element hooks
 *   -ENOMEM
 *   other         of a device's storage: see cowshed-cuda.h
 */
int cow_storage_expose(struct cow_storage *storage, void **ret);

/*
 * Makes a new storage with the same bytes. Both share them until either is
 * written. The clone is tracked. The cost depends on the source:
 *
 *   tracked                one reference; no system call, at any size
 *   transparent            its pages are frozen in place; cloning it again
 *                          costs the pages that were written since
 *   transparent and small  under 384 KiB: an eager copy
 *   external memory        an eager copy
 *   with element hooks     an eager copy through the hooks
 *
 * Eager copies are counted by reason (enum cow_fallback), which has more cases:
 * memory that may be under I/O, for example.
 *
 * Threads: cloning is a read. Other threads may go on reading and writing a
 * transparent source. Then the promise is memcpy()'s: writes that ended before
 * the call are in the clone, and later ones are not. Of those during the call a
 * later one may be in it without an earlier one, unless all are cloned at one
 * moment (cow_storages_clone_at_once()).
 *
 *   -ENOMEM
 *   -ENODEV   external memory of a device that has no allocator
 *   other     what the hooks' copy or the allocator returns; of a device's
 *             storage: see cowshed-cuda.h
 */
int cow_storage_lazy_clone(struct cow_storage *storage,
                           struct cow_storage **ret);

/*
 * Clones `n` storages as cow_storage_lazy_clone() does. The library asks once
 * for all of them whether the process may have memory under I/O. Transparent
 * storages that lie side by side are frozen with one kernel call, 64 at most.
 * So hundreds are cloned in a few milliseconds, also if all of them were
 * rewritten since, with write intents (cow_write_intent()). ret[i] becomes the
 * clone of storages[i]: a reference each. `ret_copied`, if not NULL, gets the
 * number of bytes that were copied.
 *
 * All or none: after a failure no clone is left and every ret[i] is NULL.
 * Errors as for cow_storage_lazy_clone(), and:
 *
 *   -EINVAL   one of `storages` is NULL; then `ret` is untouched
 */
int cow_storages_lazy_clone(struct cow_storage *const *storages, size_t n,
                            uint64_t *ret_copied, struct cow_storage **ret);

/*
 * Clones `n` storages, all as they are at one moment, while other threads write them: a clone that has
 * a write also has every write that was before it, in whichever storage. (The clones of
 * cow_storages_lazy_clone() may have later writes, and lack earlier ones.) No thread is stopped. The
 * kernel takes the moment by a fork of the process, whose child runs none of the program's code, sends
 * no signal, and ends at once. So the call costs a fork, and copies the pages that were written since
 * the first clone froze the storage. A process with one thread needs no fork. ret[i] becomes
 * the clone of storages[i]: a reference each. `ret_copied`, if not NULL, gets the number of bytes that
 * were copied. A *tracked* storage must not be written during the call, as for every clone.
 *
 * All or none: after a failure no clone is left and every ret[i] is NULL. Other threads that allocate
 * wait for the call. Not async-signal-safe.
 *
 *   -EINVAL    one of `storages` is NULL; then `ret` is untouched
 *   -ENOTSUP   others write one of them where no fork sees it: external memory, memory of devices or
 *              of another process, an alias, element hooks; or the program changed its protection or
 *              advice; or the process has set a filter of system calls
 *   -EBUSY     memory may be under I/O (see `devices` in docs/options.md), or the call interrupted the
 *              library, or comes from a child of vfork()
 *   -EAGAIN    there can be no child (RLIMIT_NPROC, a filter, no /proc, a new PID namespace), it was
 *              killed or stopped, or memory that the program protected can't be read
 *   -ENOMEM
 *
 * Without the shim the library does not see that the program gave anonymous memory MADV_WIPEONFORK
 * (option `backing=anon`, or where there are no memfds): its clone is zero.
 * `ret` must not lie in `storages`. A program that is executed right after the call has a process
 * for good that has ended (a zombie), and that only waits with __WALL find.
 */
int cow_storages_clone_at_once(struct cow_storage *const *storages, size_t n, uint64_t *ret_copied,
                               struct cow_storage **ret);

/* Makes a new tracked storage with a copy of the bytes, made at once. What was
 * never touched is not copied, and takes no memory. Errors as for
 * cow_storage_lazy_clone(). */
int cow_storage_clone(struct cow_storage *storage, struct cow_storage **ret);

/*
 * Changes the size to `bytes`. min(old, new) bytes stay as they are. New bytes
 * are unspecified, or zero if the storage was made with ZERO. Clones never
 * change. Pointers into the storage are invalid afterwards. A transparent
 * storage stays transparent.
 *
 * Cost: a storage shrinks in place if nobody else reads its pages, and grows in
 * place if there is room behind them, besides. What is cut off is freed. Else
 * the library allocates, copies and frees; what was never touched is not copied,
 * and takes no memory. On the meta device only the size changes.
 *
 *   -EPERM        no allocator for new bytes (external memory)
 *   -EBUSY        transparent, and another reference or a block holds it
 *   -EOPNOTSUPP   element hooks
 *   -EINVAL       more than INT64_MAX bytes
 *   -ENOMEM
 *   other         what the allocator returns
 */
int cow_storage_resize(struct cow_storage *storage, size_t bytes);

/*
 * Swaps the data under a storage. Afterwards the storage holds what `inout`
 * held, with `bytes` bytes, on its device; `inout` owns the old data. A lazy
 * storage is materialized first, since the old data comes back writable. The
 * new data is external memory, and the storage is tracked. The storage can be
 * resized afterwards only if the new deleter is its allocator's own.
 *
 *   -EINVAL   no data, though `bytes` is not 0; a size or device as for
 *             cow_storage_new_external(); not a whole number of elements
 *   -EBUSY    as for cow_storage_resize()
 *   -ENOMEM
 */
int cow_storage_swap_data_ptr(struct cow_storage *storage,
                              struct cow_data_ptr *inout, size_t bytes);

enum cow_storage_state {
	COW_STATE_OWNED = 0,   /* alone on its bytes, written in place */
	COW_STATE_LAZY = 1,    /* shares all bytes; writing materializes */
	COW_STATE_VIEW = 2,    /* a private view: shares the pages not written */
	COW_STATE_FOREIGN = 3, /* memory of another allocator, or external */
};

/* How other processes may have the bytes of a storage. */
enum cow_storage_shared {
	COW_SHARED_NOT = 0,    /* they can't: the first send copies the bytes */
	COW_SHARED_READY = 1,  /* not sent; the first send copies nothing */
	COW_SHARED_ALIAS = 2,  /* they may write them, too */
	COW_SHARED_CLONE = 3,  /* in a group's memory, until it is written */
	COW_SHARED_SEALED = 4, /* in a sealed memfd, until it is written */
};

struct cow_storage_info {
	size_t size;           /* in: sizeof(struct cow_storage_info) */
	uint32_t state;        /* enum cow_storage_state */
	uint32_t flags;        /* enum cow_storage_flags */
	uint64_t sharers;      /* storages that read its bytes, this one too */
	uint64_t mappings;     /* mappings that make it up */
	uint64_t bytes_own;    /* bytes of pages that only it has (views: pages
	                          copied so far), as far as the kernel tells */
	uint64_t frozen;       /* 1: its pages are frozen (a fork or a clone) */
	/* Bytes of copied pages that were written back to shared memory so far, since
	 * the storage has this address. They no longer count in bytes_own. While it is
	 * not cloned, forked or announced to be written, the sum of both grows by what
	 * is written page by page, or by a little more: pages that the program writes
	 * while they are written back may count twice. */
	uint64_t bytes_written_back;
	uint64_t shared;       /* enum cow_storage_shared */
};

/* Describes a storage as it is at this moment. A shorter struct, by its `size`,
 * gets the members that it has. -EINVAL: `size` is not set. */
int cow_storage_get_info(const struct cow_storage *storage,
                         struct cow_storage_info *ret);

/* ---- Blocks: for allocators on top of the engine (the shim is one): cow_block(3) -- */

enum cow_block_flags {
	COW_BLOCK_ZERO = 1 << 0, /* bytes read as zero */
};

/*
 * Allocates a block: raw transparent memory of at least one byte, aligned to a
 * page or better. The caller owns it and ends it with cow_block_free(). Every
 * block is a storage, too (cow_storage_from_ptr()).
 *
 * `alignment`: 0, or a power of two up to 1 TiB. `flags`: enum cow_block_flags.
 * Without ZERO the bytes are unspecified. Blocks are cheap from 64 KiB up.
 *
 *   -EINVAL   no such alignment or flags
 *   -ENOMEM   also for a size that the kernel would refuse as anonymous
 *             memory (vm.overcommit_memory in proc_sys_vm(5))
 */
int cow_block_new(size_t bytes, size_t alignment, uint32_t flags, void **ret);

/* Frees a block; takes NULL. A storage on it keeps the bytes until that is
 * freed. Traps if `ptr` is not the start of a live block (double free, foreign
 * pointer). */
void cow_block_free(void *ptr);

/* The usable bytes of a live block. Traps if `ptr` is not the start of one. */
size_t cow_block_bytes(const void *ptr);

/*
 * Grows or shrinks a block, in place where that is possible. min(old, new)
 * bytes stay as they are; new ones are unspecified. On success the old address
 * is invalid unless *ret equals it. A block that moves is aligned as by
 * cow_block_new() without alignment. On failure the block is as before. Traps
 * if `ptr` is not the start of a live block.
 *
 *   -ENOMEM   as for cow_block_new()
 */
int cow_block_resize(void *ptr, size_t bytes, void **ret);

/*
 * The address range in which all memory of the engine in this process lies:
 * [*ret_start, *ret_end). [0, 0) before the first allocation; it never changes
 * after that. All of it is the engine's, but for what was given back
 * (cow_window_shrink(), or a limit on address space). Takes no lock; never
 * fails. Either pointer may be NULL.
 */
void cow_window(uintptr_t *ret_start, uintptr_t *ret_end);

/*
 * Gives reserved addresses that nothing uses back to the kernel, for good, but
 * for about `keep_bytes` bytes. Call it before the process limits its address
 * space (RLIMIT_AS in getrlimit(2)), as sandboxes do: the limit counts reserved
 * addresses, terabytes of them, and the kernel refuses every new mapping while
 * the process has more than the limit. Memory that lives stays where it is. New
 * memory comes from what was kept, and from memory that was freed; -ENOMEM then.
 *
 * Without this call the library does it by itself, at the first fork or
 * allocation that the limit would make fail. It keeps an eighth of the limit.
 * Until then the program's own mappings fail. Under the shim setrlimit(2) does
 * it, and nothing is kept: later blocks come from the next allocator.
 *
 * Cost: one system call for each gap between what is used. Thread-safe. A forked
 * child has what its parent has.
 *
 *   -ENOMEM   the library has no window, and could not reserve one
 *   -EPERM    a child of vfork(): the memory is its parent's
 */
int cow_window_shrink(size_t keep_bytes);

/* ---- Threads of the library: cow_threads(3) ------------------------------- */

/*
 * Sets how many threads one large copy may use, the calling one included. 0,
 * the start: one for each processor that the process may run on
 * (sched_getaffinity(2)). More than 65 count as 65. get returns the number that
 * is in effect; it never fails.
 *
 * The library makes these threads when a large copy first needs them. They know
 * no libc, block all signals and end after two idle seconds. One copy at a time
 * uses them; others run on their caller alone. Copies do without threads where
 * the kernel denies them. A forked child keeps the number and makes threads of
 * its own.
 *
 * Since signals are blocked there, a fault in one of these threads calls no
 * handler for SIGSEGV or SIGBUS: the process ends. A program that copies memory
 * which faults on purpose sets 1.
 *
 *   -EINVAL   less than 0
 */
int cow_threads_set(int threads);
int cow_threads_get(void);

/*
 * Ends all threads that the library made, also the helper that prepares memory
 * ahead. Returns when the kernel no longer counts them as the process's. It
 * waits for copies that are under way in other threads. Two kinds of calls need
 * it:
 *
 * Calls that want a process with one thread: unshare(CLONE_NEWUSER), setns(2).
 *
 * Calls that give up privileges. libc applies setuid(2) and its like to all
 * threads that it knows, and it does not know these. Nobody applies capset(2),
 * prctl(PR_SET_NO_NEW_PRIVS), seccomp(2) filters and landlock(7) to other
 * threads. A library thread that exists during such a call keeps what was given
 * up; a new one has what its maker has. Under the shim such calls end the
 * threads by themselves.
 *
 * The threads come back when there is work. So no other thread may use the
 * library until such a call was made. Copies make no threads after
 * cow_threads_set(1).
 */
void cow_threads_end(void);

/*
 * This process leaves its family: call it just before the process changes its users, groups
 * or capabilities, or enters a sandbox (seccomp, Landlock, no_new_privs, namespaces, chroot),
 * if it was forked, or has forked, since it uses the library. Under the shim those calls do
 * it by themselves.
 *
 * Relatives of a fork share the files in which large memory lies, and believe each other.
 * Afterwards the process can neither change what they see nor read what they write later, and
 * they can't either. It keeps all of its storages, with their bytes, and so do they; nothing
 * is copied. But what both have is never written in place again: it is copied page by page
 * when it is written. Children that are forked later are a new family.
 *
 * It ends the library's threads first, as cow_threads_end() does, and the same holds for other
 * threads. About 20 us for each file that relatives share; less than 1 us without relatives.
 * What was shared on purpose (aliases, groups, channels) stays shared.
 *
 * The library alone does not see that the process sets a filter of system calls. The filter has to
 * allow what the library needs (docs/design/filters.md). Under the shim the library makes no call from
 * then on that malloc(3) would not make. New storages lie in anonymous memory, and clones are
 * copies. Blocks, groups, channels and files give -EPERM.
 *
 *   -EAGAIN   a signal handler called it that interrupted the library
 *   -ENOMEM   nothing has changed; do not give up privileges, or end the process
 */
int cow_family_leave(void);

/* ---- The engine as a whole: cow_engine(3) ------------------------------- */

/* Gives freed memory that the library keeps populated back to the kernel now,
 * and what ended processes held. Returns 1 if it gave anything back, else 0. */
int cow_trim(void);

/*
 * Sets one option of the engine, as a key of COWSHED_OPTIONS does.
 * docs/options.md has the keys and units. The shim's own keys (threshold, mmap
 * and report) are not among them. Thread-safe. A forked child inherits the
 * options. helper=no ends a helper thread that runs, and waits for its end.
 *
 *   -ENOENT   no such key
 *   -EINVAL   not a value for it
 *   -EBUSY    it can be set only before the first allocation
 */
int cow_option_set(const char *key, const char *value);

/*
 * Looks for mistakes in a list of options as COWSHED_OPTIONS has it: "key=value, key=value".
 * Sets nothing. It knows the shim's own keys, too. Thread-safe.
 *
 * 0: there is none. With an error *ret_at and *ret_bytes are the first part that is wrong;
 * the caller may go on behind it. Both may be NULL.
 *
 *   -ENOENT   no such key
 *   -EINVAL   not a value for it; or the part is not KEY=VALUE
 */
int cow_options_check(const char *list, const char **ret_at, size_t *ret_bytes);

/* Reasons for doing something the slow way. The library counts each of them
 * (cow_stats). */
enum cow_fallback {
	COW_FALLBACK_MEMFD = 0,   /* no memfd: anonymous memory */
	COW_FALLBACK_WINDOW,      /* no address space left in the window */
	COW_FALLBACK_COLLAPSE,    /* the kernel refused huge pages */
	COW_FALLBACK_PAGEMAP,     /* /proc/self/pagemap can't be read */
	COW_FALLBACK_THREAD,      /* the helper thread could not be started */
	COW_FALLBACK_DESCRIPTOR,  /* the program closed our descriptor */
	COW_FALLBACK_MAPPINGS,    /* near vm.max_map_count: copied instead */
	COW_FALLBACK_SEGMENTS,    /* too many descriptors: segment kept */
	COW_FALLBACK_FREEZE,      /* freeze refused: copied for the child */
	COW_FALLBACK_PINNED,      /* memory may be under I/O: copied */
	COW_FALLBACK_SLOTS,       /* more than 61 related processes at once */
	COW_FALLBACK_FOREIGN,     /* clone of foreign memory: copied */
	COW_FALLBACK_SMALL,       /* clone of a small transparent one: copied */
	COW_FALLBACK_ELEMENTS,    /* clone through element hooks */
	COW_FALLBACK_BUSY,        /* no thaw: a thread runs */
	COW_FALLBACK_HELD,        /* no thaw: another process maps the pages */
	COW_FALLBACK_BACKING,     /* anonymous memory by policy; clones of
	                             memory that is not the memfd's: copied */
	COW_FALLBACK_REMAPPED,    /* the program remapped or emptied a part */
	COW_FALLBACK_REWRITTEN,   /* clone of memory that was mostly written, or
	                             written in many places, since an earlier
	                             clone: copied */
	COW_FALLBACK_BLOCKED,     /* no thaw: a thread waits in a call that is
	                             no safe point */
	COW_FALLBACK_HANDLER,     /* no thaw: a signal handler that was set past
	                             libc */
	COW_FALLBACK_STACK,       /* no thaw: the caller's stack is in a block */
	COW_FALLBACK_CANCEL,      /* no thaw: a thread is being cancelled */
	COW_FALLBACK_PROCESS,     /* no thaw: another process shares the address
	                             space */
	COW_FALLBACKS = 24,
};

/* The name of a reason: "memfd" for COW_FALLBACK_MEMFD. A static string. NULL:
 * no such reason. */
const char *cow_fallback_name(enum cow_fallback reason);

/*
 * Counters since the start of the process, or since its fork: a forked child
 * begins at 0, but for what it inherits. They lie in a page of a memfd named
 * "cowshed-stats", so other processes can read them at any time
 * (cow_stats_read()). Every member is a uint64_t; new ones are added at the
 * end. Each counter is exact, but the struct as a whole is no snapshot.
 */
struct cow_stats {
	uint64_t size;             /* in: sizeof(struct cow_stats) */
	uint64_t bytes_live;       /* handed out and not freed. After a fork or a clone of several
	                            * storages also the rest of a block's last 2 MiB, which
	                            * has no pages */
	uint64_t bytes_peak;       /* highest bytes_live */
	uint64_t bytes_served;     /* handed out, ever, so at least bytes_live; in a forked child
	                            * with what it inherited (bytes_inherited) */
	uint64_t bytes_recycled;   /* of those: from warm memory */
	uint64_t bytes_warm;       /* freed, still populated, with such rests */
	uint64_t bytes_returned;   /* given back to the kernel, ever */
	uint64_t bytes_collapsed;  /* huge pages made ahead of the program */
	uint64_t blocks_live;      /* blocks and storages' own extents */
	uint64_t blocks_served;    /* with blocks_inherited */
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
	uint64_t pages_private;    /* frozen pages that were copied when written, at the last
	                            * count. A fork counts them, if they may be more than a
	                            * sixteenth of what is frozen */
	uint64_t bytes_shadow_returned; /* frozen pages that nobody needed */
	uint64_t bytes_limbo;      /* freed here, still mapped by others */
	uint64_t segments;         /* memfds open now */
	uint64_t mappings;         /* kernel mappings in the window, estimated when blocks or
	                            * storages were last made or freed */
	uint64_t helper_starts;
	uint64_t fallbacks[COW_FALLBACKS]; /* by enum cow_fallback */
	uint64_t heal_ns_total;    /* slices in which frozen memory was thawed */
	uint64_t heal_wait_ns_max; /* longest wait of a thread for a slice */
	uint64_t fallback_bytes[COW_FALLBACKS]; /* copied for that reason; 0 where
	                             the price is page faults (pages_private) */
	uint64_t strangers;       /* times that the process became a stranger to relatives, by
	                           * giving up privileges (cow_family_leave()) */
	uint64_t bytes_marked;    /* of its live memory, that lay in files which it marked then */
	uint64_t bytes_border_returned; /* free memory in such files, given back before */
	uint64_t bytes_forwarded; /* copied into new pages, since a relative or a stranger has
	                           * the file of the old ones */
	uint64_t bytes_inherited; /* of bytes_served: bytes_live at the fork that made this process;
	                           * leave it out of sums over processes */
	uint64_t blocks_inherited; /* of blocks_served, the same */
};

/* This process's counters. A shorter struct, by its `size`, gets the members
 * that it has. -EINVAL: `size` is not set. */
int cow_stats_get(struct cow_stats *ret);

/*
 * Another process's counters; that process is not stopped and takes no part.
 * `ret->size` as for cow_stats_get().
 *
 *   -EINVAL           `size` is not set
 *   -ENOENT           it has none: it does not use cowshed, or allocated
 *                     nothing large since it was started or forked
 *   -EPERM, -EACCES   the kernel does not let us look at it
 *   -ESRCH            no such process
 */
int cow_stats_read(pid_t pid, struct cow_stats *ret);

/* What a process runs with. Strings; lists have commas between "key=value" pairs. A list that
 * is too long ends with "...". */
struct cow_settings {
	size_t size;        /* in: sizeof(struct cow_settings) */
	char version[16];   /* of its library */
	char commit[48];    /* of the source of that library; "": not known */
	char options[1024]; /* that were set and hold, by COWSHED_OPTIONS or cow_option_set() */
	char refused[512];  /* of COWSHED_OPTIONS: those that the shim did not understand */
};

/*
 * The settings of process `pid`, or of this one with 0. That process is not stopped and takes
 * no part. An option that it sets at this moment may be shown half. `ret->size` as for
 * cow_stats_get(); errors as for cow_stats_read().
 */
int cow_settings_read(pid_t pid, struct cow_settings *ret);

/* Features of the kernel that the library uses. */
enum cow_feature {
	COW_FEATURE_MEMFD = 0,     /* memfd_create with seals */
	COW_FEATURE_COLLAPSE,      /* MADV_COLLAPSE on a memfd */
	COW_FEATURE_PAGEMAP,       /* /proc/self/pagemap */
	COW_FEATURE_PAGEMAP_SCAN,  /* its PAGEMAP_SCAN ioctl */
	COW_FEATURE_LOCKS,         /* OFD locks on a reopened memfd */
	COW_FEATURE_THREADS,       /* /proc/self/task: are others idle? */
	COW_FEATURE_UNSHARE,       /* unshare(CLONE_VM): are we alone? */
	COW_FEATURE_IO_URING,
	COW_FEATURE_USERFAULTFD,   /* marks of written pages (Linux 6.7) */
	COW_FEATURES = 16,
};

/*
 * Tries one feature, by system calls. Returns 1 if the kernel has it and it
 * works, 0 if not. The pointers, if not NULL, get static strings: its name, and
 * a sentence that says what it brings or what denied it.
 *
 *   -EINVAL   no such feature
 */
int cow_feature_probe(enum cow_feature feature, const char **ret_name,
                      const char **ret_why);

#ifdef __cplusplus
}
#endif

#endif
