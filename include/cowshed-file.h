/* SPDX-License-Identifier: MIT */
/*
 * cowshed: storages and files
 *
 * Two things. A storage can *lie on* a file, or on named POSIX shared memory, as
 * programs share it that know nothing of cowshed:
 *
 *      cow_storage_open("/results", 1 << 20,
 *                       COW_FILE_SHM | COW_FILE_SHARED, &s);
 *
 * And a storage can be *loaded* from a file and *saved* to one, at the speed of the
 * disk; what is saved is the storage of the moment of the call, while others go on
 * writing their clones of it:
 *
 *      cow_storage_save(s, "model.bin", 0, COW_SAVE_ATOMIC, NULL);
 *      cow_storage_load("model.bin", 0, COW_TO_END, 0, &s);
 *
 * Files that others make shorter. A storage on a file is a mapping of it: bytes
 * that are taken from under it are a SIGBUS at the next touch. Nothing can prevent
 * that of a file that somebody else may write; sealed memfds (cowshed-share.h) are
 * made so that it can't happen. What is done: a file that is too short is refused;
 * one that is made longer here gets memory or disk for every byte first, so that a
 * full file system is an error and no signal; the size is looked at again when all
 * is done; saving such a storage gives -EFAULT.
 *
 * Errors, ownership and threads are as in cowshed.h. The sentence of an error says
 * what failed (opening, looking at, allocating, mapping, ...) and of which name.
 */
#ifndef COWSHED_FILE_H
#define COWSHED_FILE_H

#include "cowshed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Storages on files: cow_file(3) ------------------------------------- */

/* The first are those of PyTorch's MapAllocator, with its values. */
enum cow_file_flags {
	/* Writes go to the file, and others' are seen. Without it: a private mapping
	 * of a file that is there, whose bytes are copied when they are written
	 * here. What others write may be seen or not until then. */
	COW_FILE_SHARED = 1 << 0,
	/* `name` is POSIX shared memory, as shm_open(3) has it. Only shared. */
	COW_FILE_SHM = 1 << 1,
	/* -EEXIST if it is there. Only shared. */
	COW_FILE_EXCLUSIVE = 1 << 2,
	/* -ENOENT if it is not there, and it is not made longer. */
	COW_FILE_NO_CREATE = 1 << 3,
	/* The storage keeps a descriptor: cow_storage_file_fd(). */
	COW_FILE_KEEP_FD = 1 << 4,
	/* The name is removed as soon as the file is mapped. A process that is
	 * killed leaves nothing then. */
	COW_FILE_UNLINK = 1 << 6,
	/* The last storage of this kind on it, in any process, removes the name.
	 * SHM alone; not with KEEP_FD or UNLINK. Processes that were killed don't
	 * count. If all of them were, the name stays until the next one that opens it
	 * is freed. */
	COW_FILE_COUNTED = 1 << 7,
};

/*
 * The first `bytes` bytes of a file as a storage, page aligned. A shared one is
 * made (mode 0600) and made longer as need be; 0 bytes open nothing. Without
 * UNLINK or COUNTED the name stays when the storage is freed.
 *
 * A shared storage is external memory: its clones are eager copies, it can't be
 * resized, its writers get its bytes in place. So is a private one (lazy clones of
 * it are copies, too), but that its writes are its own. Two storages on one file
 * are two storages, which see each other's bytes if both are shared. After fork
 * shared ones are shared by both processes; of private ones each has its own.
 *
 * -EINVAL: unknown flags, flags that exclude each other; a name of SHM that is
 * empty, "." or "..", or has '/' elsewhere than at its start (-ENAMETOOLONG: over
 * 254 bytes). -ENODATA: the file is too short and may not be made longer;
 * -ESTALE: somebody made it shorter meanwhile; -ENOSPC, -EDQUOT, -EFBIG: it can't
 * be made longer; -ENODEV: can't be mapped; and what open(2) says. After a failure
 * there is no descriptor and no name that was not there before, and the file has
 * its size.
 */
int cow_storage_open(const char *name, size_t bytes, uint32_t flags,
                     struct cow_storage **ret);

/*
 * Bytes [offset, offset + bytes) of an open file, which stays the caller's, and is
 * never made longer. Flags: SHARED and KEEP_FD. -EBADF: not open, or not for
 * reading (SHARED: and writing).
 */
int cow_storage_open_fd(int fd, uint64_t offset, size_t bytes, uint32_t flags,
                        struct cow_storage **ret);

/* A descriptor of the file under a storage that was opened with KEEP_FD: another
 * one, the caller's. -ENOENT: it has none; -EMFILE. */
int cow_storage_file_fd(const struct cow_storage *storage, int *ret);

/* The name a storage was opened by, or NULL. Valid while the storage is. */
const char *cow_storage_file_name(const struct cow_storage *storage);

/* Removes a name of POSIX shared memory. -ENOENT and the like. */
int cow_shm_unlink(const char *name);

/* ---- Load and save: cow_file_save(3) ------------------------------------ */

enum cow_io_flags {
	/* Past the page cache (O_DIRECT), if the file system and `offset` allow it. For a
	 * file that is not read again soon. Not for descriptors. */
	COW_IO_DIRECT = 1 << 0,
	/* Not with io_uring, which is used by itself where it can be and is of use:
	 * for loading, and past the page cache. */
	COW_IO_PLAIN = 1 << 1,
	/* Saving: on the disk when the call returns, with its name. The directory has
	 * to be readable for that: -EACCES before anything is changed. Without it some
	 * errors of the disk are known to nobody, as after write(2). */
	COW_SAVE_SYNC = 1 << 2,
	/* Saving: to a new file beside it, which takes the place of the old one when
	 * it is complete. Whoever opens the name finds the one or the other; after a
	 * failure, the old one. (But if only the directory can't be synced, with SYNC: the
	 * new one is there then, and `ret_done` says so.) Its permissions are kept, not its owner; hard links
	 * to the old one keep the old bytes, a symbolic link is itself replaced. A
	 * process that is killed meanwhile leaves a file ".cowshed-..." beside it.
	 * `offset` must be 0. With SYNC also a power
	 * failure leaves one of them. Not for descriptors. */
	COW_SAVE_ATOMIC = 1 << 3,
	/* Saving: the file ends behind the last byte. */
	COW_SAVE_TRUNCATE = 1 << 4,
};

/* All from `offset` to the end. Files alone, no pipes. */
#define COW_TO_END SIZE_MAX

/* Where a pipe, socket or terminal stands; or a file, whose position moves. */
#define COW_FROM_HERE UINT64_MAX

/*
 * A new tracked storage with `bytes` bytes of a file from `offset` on. Of a
 * descriptor, which stays the caller's, also with COW_FROM_HERE; one that does not
 * block is waited for.
 *
 * Memory is not asked for before a file is known to have the bytes; of a pipe it is.
 *
 * -EINVAL: unknown flags; a position where there is none; -ENODATA: the file ends
 * before; -ENOMEM; -EISDIR; what open(2) and read(2) say. Nothing is loaded then,
 * but a pipe has been read.
 */
int cow_storage_load(const char *path, uint64_t offset, size_t bytes,
                     uint32_t flags, struct cow_storage **ret);
int cow_storage_load_fd(int fd, uint64_t offset, size_t bytes, uint32_t flags,
                        struct cow_storage **ret);

/*
 * Writes all bytes of a storage to a file, at `offset`; the rest of the file stays.
 * A file that is not there is made (mode 0666 without the umask). `ret_done`, if
 * not NULL, gets how many bytes of the file of that name are the storage's for certain,
 * from the first on, also on failure (with ATOMIC: 0, or all).
 *
 * The bytes are those of the moment of the call: saving holds a lazy clone of the
 * storage. So a clone may be saved in one thread while its siblings are written in
 * others; the first write of each page then costs what it costs beside any clone.
 * External memory (and storages on files) is written as it lies. A transparent
 * storage that is written in the very moment of the call is saved as of one moment
 * if it is cloned by page, and not if it has to be copied (cow_storage_lazy_clone());
 * who can, stops its writers for a clone and saves that.
 *
 * -EINVAL: unknown flags, ATOMIC or DIRECT with a descriptor, a position where
 * there is none or in a file opened with O_APPEND; -EOPNOTSUPP: element hooks, or
 * memory of another device; -ENOMEM: for the clone; -EFBIG: beyond RLIMIT_FSIZE,
 * asked first; -ENOSPC, -EDQUOT, -EIO, -EPIPE (SIGPIPE comes as from write(2));
 * what open(2) and rename(2) say. -EFAULT: see above.
 */
int cow_storage_save(struct cow_storage *storage, const char *path,
                     uint64_t offset, uint32_t flags, uint64_t *ret_done);
int cow_storage_save_fd(struct cow_storage *storage, int fd, uint64_t offset,
                        uint32_t flags, uint64_t *ret_done);

#ifdef __cplusplus
}
#endif

#endif
