/* SPDX-License-Identifier: MIT */
/*
 * cowshed: storages and files
 *
 * Library: libcowshed (pkg-config cowshed).
 *
 * A storage can *lie on* a file, or on named POSIX shared memory. Programs that
 * know nothing of cowshed can share both:
 *
 *      cow_storage_open("/results", 1 << 20,
 *                       COW_FILE_SHM | COW_FILE_SHARED, &s);
 *
 * And a storage can be *loaded* from a file and *saved* to one, at the speed of
 * the disk. The saved bytes are those of the moment of the call; meanwhile
 * other threads may go on writing clones of the storage:
 *
 *      cow_storage_save(s, "model.bin", 0, COW_SAVE_ATOMIC, NULL);
 *      cow_storage_load("model.bin", 0, COW_TO_END, 0, &s);
 *
 * Files that others make shorter. A storage on a file is a mapping of the file
 * (mmap(2)). If another program makes the file shorter, the kernel sends SIGBUS
 * at the next touch of the bytes that are gone. Nothing can prevent that for a
 * file that others may write; the size of sealed memfds (cowshed-share.h)
 * cannot change. The library does what it can. It refuses a file that is too
 * short. When it makes a file longer it gets memory or disk for every byte
 * first: a full file system is an error and no signal. It looks at the size
 * again when all is done. Saving a storage whose file was made shorter gives
 * -EFAULT.
 *
 * Errors, ownership and threads are as in cowshed.h. The sentence of an error
 * says what failed (opening, looking at, allocating, mapping, ...) and of which
 * name.
 */
#ifndef COWSHED_FILE_H
#define COWSHED_FILE_H

#include "cowshed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Storages on files: cow_file(3) ------------------------------------- */

/* The flags up to UNLINK are those of PyTorch's MapAllocator, with its values. */
enum cow_file_flags {
	/* Writes go to the file, and others' writes are seen. Without this flag
	 * the mapping is private and the file must exist. Then a page is copied
	 * when it is written here; until then others' writes to it may be seen
	 * or not. */
	COW_FILE_SHARED = 1 << 0,
	/* `name` is POSIX shared memory, as for shm_open(3). Only with SHARED. */
	COW_FILE_SHM = 1 << 1,
	/* -EEXIST if the file exists. Only with SHARED, not with NO_CREATE. */
	COW_FILE_EXCLUSIVE = 1 << 2,
	/* -ENOENT if the file does not exist; it is not made longer either. */
	COW_FILE_NO_CREATE = 1 << 3,
	/* The storage keeps a descriptor: cow_storage_file_fd(). */
	COW_FILE_KEEP_FD = 1 << 4,
	/* Removes the name as soon as the file is mapped, so that a process
	 * that is killed leaves nothing. Only with SHARED. */
	COW_FILE_UNLINK = 1 << 6,
	/* The last storage of this kind on the file, in any process, removes
	 * the name. Only with SHARED and SHM, not with KEEP_FD or UNLINK.
	 * Processes that were killed do not count. If all of them were killed,
	 * the name stays until the next storage on it is freed. */
	COW_FILE_COUNTED = 1 << 7,
};

/*
 * Makes a storage on the first `bytes` bytes of a file, page aligned. A shared
 * file that does not exist is made with mode 0600; one that is too short is
 * made longer. 0 bytes open nothing and give an empty storage. The name stays
 * when the storage is freed, unless UNLINK or COUNTED say otherwise. `flags`:
 * enum cow_file_flags.
 *
 * A shared storage is external memory: its clones are eager copies, it cannot
 * be resized, and it is written in place. A private one is the same, but its
 * writes are its own. Two storages on one file are two storages; they see each
 * other's bytes if both are shared. After fork both processes share a shared
 * storage; of a private one each has its own.
 *
 *   -EINVAL         unknown flags, or flags that exclude each other; more
 *                   than INT64_MAX bytes; a name of SHM that is empty, "."
 *                   or "..", or has '/' elsewhere than at its start
 *   -ENAMETOOLONG   a name of SHM over 254 bytes, another over 4095
 *   -ENODATA        the file is too short and may not be made longer
 *   -ESTALE         another process made the file shorter meanwhile
 *   -ENOSPC, -EDQUOT, -EFBIG   the file can't be made longer
 *   -ENODEV         not a regular file, or it can't be mapped
 *   -EAGAIN         COUNTED: for a second, the last storage on the name
 *                   was about to remove it
 *   -ENOMEM, -EMFILE
 *   other           what open(2) says
 *
 * After a failure there is no descriptor, and no name that was not there
 * before. The file has its size, unless only the removal of its name (UNLINK)
 * failed.
 */
int cow_storage_open(const char *name, size_t bytes, uint32_t flags,
                     struct cow_storage **ret);

/*
 * Makes a storage on bytes [offset, offset + bytes) of an open file, as
 * cow_storage_open() does. `fd` stays the caller's. The file is never made
 * longer. `flags`: SHARED and KEEP_FD.
 *
 *   -EBADF   not open, or not for reading (with SHARED: and writing)
 *   -EINVAL  other flags; offset or size over INT64_MAX
 *   other    as for cow_storage_open()
 */
int cow_storage_open_fd(int fd, uint64_t offset, size_t bytes, uint32_t flags,
                        struct cow_storage **ret);

/*
 * Gives a new descriptor of the file under a storage that was opened with
 * KEEP_FD. The caller owns it and closes it.
 *
 *   -ENOENT   the storage keeps none
 *   -EMFILE
 *   -EBADF    the program closed the library's descriptor
 */
int cow_storage_file_fd(const struct cow_storage *storage, int *ret);

/* The name that a storage was opened by, or NULL. It is the storage's, and
 * valid while the storage is. Never fails. */
const char *cow_storage_file_name(const struct cow_storage *storage);

/* Removes a name of POSIX shared memory, as shm_unlink(3) does. Storages on it
 * keep their bytes. -EINVAL, -ENAMETOOLONG: no such name can be; else what
 * unlink(2) says (-ENOENT, -EACCES). */
int cow_shm_unlink(const char *name);

/* ---- Load and save: cow_file_save(3) ------------------------------------ */

enum cow_io_flags {
	/* Goes past the page cache (O_DIRECT in open(2)), if the file system
	 * and `offset` (a multiple of 4096) allow it. For a file that is not
	 * read again soon. Not for descriptors. */
	COW_IO_DIRECT = 1 << 0,
	/* Does without io_uring. By itself the library uses io_uring where the
	 * kernel allows it and it helps: for loading, and past the page cache. */
	COW_IO_PLAIN = 1 << 1,
	/* Saving: the bytes and the file's name are on the disk when the call
	 * returns (fsync(2)). The directory must be readable for that: -EACCES
	 * before anything is changed. Without this flag the disk may fail
	 * later without an error for anybody, as after write(2). */
	COW_SAVE_SYNC = 1 << 2,
	/* Saving: writes a new file in the same directory, which takes the
	 * place of the old one when it is complete (rename(2)). Programs that
	 * open the name find the one or the other; after a failure, the old
	 * one. The exception: if only the directory can't be synced (SYNC), the
	 * new one is there, and `ret_done` says so. The new file has the old
	 * one's permissions, not its owner. Hard links to the old file keep the
	 * old bytes; a symbolic link is itself replaced. A process that is
	 * killed meanwhile leaves a file ".cowshed-..." in the directory. With
	 * SYNC one of the two files is there also after a power failure.
	 * `offset` must be 0. Not for descriptors. */
	COW_SAVE_ATOMIC = 1 << 3,
	/* Saving: the file ends behind the last byte. */
	COW_SAVE_TRUNCATE = 1 << 4,
};

/* A number of bytes: all from `offset` to the end. For files, not for pipes. */
#define COW_TO_END SIZE_MAX

/* An offset: where a pipe, socket or terminal stands; or a file, whose position
 * moves. */
#define COW_FROM_HERE UINT64_MAX

/*
 * Makes a tracked storage with `bytes` bytes of a file, from `offset` on. A
 * descriptor stays the caller's. COW_FROM_HERE is for descriptors; the library
 * waits for one that does not block (poll(2)). `flags`: COW_IO_DIRECT and
 * COW_IO_PLAIN.
 *
 * The library looks whether a file has the bytes before it allocates memory.
 * For a pipe it cannot. A fork during a load by io_uring copies the process's
 * memory for the child (COW_FALLBACK_PINNED).
 *
 *   -EINVAL   unknown flags, DIRECT with a descriptor; a position where
 *             there is none; COW_TO_END of a pipe; a size over INT64_MAX
 *   -ENODATA  the file ends before
 *   -EBADF    not open for reading
 *   -EISDIR, -ENOMEM
 *   other     what open(2) and read(2) say
 *
 * After a failure no storage is made. But bytes that were read from a pipe are
 * gone.
 */
int cow_storage_load(const char *path, uint64_t offset, size_t bytes,
                     uint32_t flags, struct cow_storage **ret);
int cow_storage_load_fd(int fd, uint64_t offset, size_t bytes, uint32_t flags,
                        struct cow_storage **ret);

/*
 * Writes all bytes of a storage to a file, from `offset` on; the rest of the
 * file stays. A file that does not exist is made, with mode 0666 without the
 * umask. A descriptor stays the caller's; it may be used with COW_FROM_HERE.
 * `flags`: enum cow_io_flags. `ret_done`, if not NULL, is set also on failure.
 * It tells how many bytes of the file of that name are the storage's for
 * certain, from the first on. With ATOMIC that is 0, or all.
 *
 * The bytes are those of the moment of the call: the library holds a lazy clone
 * of the storage while it saves. So one thread may save a clone while others
 * write its siblings. The first write of each page then costs what it costs
 * beside any clone. Memory of a sparse storage that was never touched is written as
 * zeros and takes no memory for that. External memory, also a storage on a file, is written as it
 * lies. A transparent storage may be written at the very moment of the call.
 * Then it is saved as of one moment if it is cloned by page, and not if it must
 * be copied (cow_storage_lazy_clone()). A program that can stop its writers
 * clones the storage meanwhile, and saves the clone. A child that is forked
 * during a save inherits the descriptor of the file.
 *
 *   -EINVAL       unknown flags; ATOMIC or DIRECT with a descriptor; ATOMIC
 *                 with an offset; a position where there is none, or in a
 *                 file that was opened with O_APPEND
 *   -EOPNOTSUPP   element hooks, or memory of another device
 *   -ENOMEM       for the clone
 *   -EFBIG        beyond RLIMIT_FSIZE; looked at before anything is written
 *   -EBADF        not open for writing
 *   -ENOSPC, -EDQUOT, -EIO, -EPIPE   as from write(2), also SIGPIPE
 *   -EFAULT       the file under the storage was made shorter; the program
 *                 unmapped or protected a part of the storage
 *   other         what open(2) and rename(2) say
 */
int cow_storage_save(struct cow_storage *storage, const char *path,
                     uint64_t offset, uint32_t flags, uint64_t *ret_done);
int cow_storage_save_fd(struct cow_storage *storage, int fd, uint64_t offset,
                        uint32_t flags, uint64_t *ret_done);

#ifdef __cplusplus
}
#endif

#endif
