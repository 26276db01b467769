/* SPDX-License-Identifier: MIT */
/*
 * Storages on files and on named POSIX shared memory
 *
 * cow_storage_open() takes these steps:
 *
 *   open      open or make the name; with COUNTED take a lock, and check that the name
 *             still means this file
 *   look      is it a regular file, and how long is it?
 *   map       beyond its end, if need be: the kernel allows that, and no page is touched
 *   grow      lengthen it, with memory or disk behind each byte; the last change
 *   look      did another process shorten it meanwhile?
 *   unlink    with UNLINK
 *
 * In this order no failure makes it necessary to shorten the file again, which could take
 * bytes that another process uses. A failure removes the name if this call made it.
 *
 * Named shared memory needs no librt: a name is a file in /dev/shm, where the C libraries
 * look for it, too. A name can't leave that folder: its only '/' is at the start.
 *
 * COUNTED. A count in the file would be wrong after a kill, and would move the payload off
 * its page. So each storage has a shared lock on the file. The mapping keeps the lock, and
 * the kernel drops both, however the process ends. A storage that is freed unmaps first,
 * then tries to lock the file alone. If that succeeds, it was the last one. While it
 * removes the name, no other process can get the shared lock. A process that opened the
 * file just before looks at the name again when it has the lock. If the name is gone, or
 * means another file, it begins anew. None of this needs the descriptor.
 */
#include "core/base/array.h"
#include "core/base/error.h"
#include "core/base/pool.h"
#include "core/storage/storage.h"
#include "cowshed-file.h"
#include "memfd/file.h"
#include "memfd/map.h"
#include "memfd/memfd.h"
#include "memfd/wait.h"

#define KNOWN                                                                  \
	(COW_FILE_SHARED | COW_FILE_SHM | COW_FILE_EXCLUSIVE |                 \
	 COW_FILE_NO_CREATE | COW_FILE_KEEP_FD | COW_FILE_UNLINK |             \
	 COW_FILE_COUNTED)
#define SHM_FOLDER "/dev/shm/"
#define SHM_NAME 254 /* NAME_MAX (255) less the '/' */
#define TRIES 100
/* A process that removes a name has the lock meanwhile. We wait LEAVING_NS for it, and look
 * every LOOK_NS. */
#define LEAVING_NS 1000000000u
#define LOOK_NS 1000000u

struct file {
	uintptr_t mapping; /* 0: none */
	size_t mapped;
	void *data;
	struct cow__descriptor fd; /* kept, or COW__NO_DESCRIPTOR */
	uint64_t dev, ino;
	uint32_t flags;
	bool made; /* this call made the name */
	char *name; /* as the program gave it; NULL: it gave a descriptor */
	uint32_t name_cap;
	char path[sizeof(SHM_FOLDER) + SHM_NAME]; /* of shared memory */
};

static struct cow__pool files = { .object_bytes = sizeof(struct file) };

static const char *
path_of(const struct file *f)
{
	return f->flags & COW_FILE_SHM ? f->path : f->name;
}

static int
shm_path(const char *name, char *ret)
{
	size_t n;

	while (*name == '/')
		name++;
	n = strlen(name);
	if (n > SHM_NAME)
		return -ENAMETOOLONG;
	if (n == 0 || strchr(name, '/') || strcmp(name, ".") == 0 ||
	    strcmp(name, "..") == 0)
		return -EINVAL;
	memcpy(ret, SHM_FOLDER, sizeof(SHM_FOLDER) - 1);
	memcpy(ret + sizeof(SHM_FOLDER) - 1, name, n + 1);
	return 0;
}

/* ---- The end ------------------------------------------------------------------ */

/* Removes the name if no other storage holds the file's lock. On a failure the next user
 * of the name does it. */
static void
counted_end(const struct file *f)
{
	struct cow__descriptor d;

	if (cow__file_open(f->path,
	                   COW__FILE_READ | COW__FILE_WRITE | COW__FILE_NO_LINK,
	                   0, &d) < 0)
		return;
	if (d.dev == f->dev && d.ino == f->ino &&
	    cow__memfd_lock_take(&d, 0, false) == 0 &&
	    cow__file_named(f->path, &d) == 1)
		(void)cow__file_unlink(f->path);
	cow__descriptor_close(&d);
}

static void
file_free(struct file *f)
{
	if (f->mapping)
		(void)cow__map_release(f->mapping, f->mapped);
	cow__descriptor_close(&f->fd);
	if (f->ino && (f->flags & COW_FILE_COUNTED))
		counted_end(f);
	cow__array_free(f->name, f->name_cap, 1);
	cow__pool_give(&files, f);
}

static void
file_deleted(void *context)
{
	file_free(context);
}

static const struct file *
file_of(const struct cow_storage *s)
{
	const struct cow__allocation *a = s->data;

	return a->kind == COW__AT_EXTERNAL && a->ptr.deleter == file_deleted
	               ? a->ptr.context
	               : NULL;
}

/* ---- The beginning ------------------------------------------------------------ */

static int
file_new(const char *name, uint32_t flags, struct file **ret)
{
	struct file *f = cow__pool_take(&files);
	size_t n = name ? strlen(name) + 1 : 0;
	int r = 0;

	if (!f)
		return -ENOMEM;
	f->mapping = 0;
	f->fd = COW__NO_DESCRIPTOR;
	f->dev = f->ino = 0;
	f->flags = flags;
	f->made = false;
	f->name = NULL;
	f->name_cap = 0;
	if (n > 4096)
		r = -ENAMETOOLONG;
	else if (name)
		r = cow__array_reserve((void **)&f->name, &f->name_cap, 1,
		                       (uint32_t)n);
	if (r == 0 && name)
		memcpy(f->name, name, n);
	if (r == 0 && (flags & COW_FILE_SHM))
		r = shm_path(name, f->path);
	if (r < 0) {
		file_free(f);
		return r;
	}
	*ret = f;
	return 0;
}

/* Opens the file or makes it, and notes which of the two. */
static int
open_or_make(struct file *f)
{
	unsigned how = COW__FILE_READ;
	int r = -ENOENT;

	if (f->flags & COW_FILE_SHARED)
		how |= COW__FILE_WRITE;
	if (f->flags & COW_FILE_SHM)
		how |= COW__FILE_NO_LINK;
	f->made = false;
	for (int i = 0; i < TRIES; i++) {
		if (!(f->flags & COW_FILE_EXCLUSIVE))
			r = cow__file_open(path_of(f), how, 0, &f->fd);
		if (r != -ENOENT || !(f->flags & COW_FILE_SHARED) ||
		    (f->flags & COW_FILE_NO_CREATE))
			return r;
		r = cow__file_open(path_of(f),
		                   how | COW__FILE_CREATE | COW__FILE_EXCLUSIVE,
		                   0600, &f->fd);
		if (r == 0)
			f->made = true;
		if (r != -EEXIST || (f->flags & COW_FILE_EXCLUSIVE))
			return r;
		/* Another process made it in between, and may have removed it. */
		r = -ENOENT;
	}
	return -EEXIST; /* a link to nowhere, most likely */
}

/* Removes the name if this call made it and it still means this file. */
static void
unmake(struct file *f)
{
	if (f->made && cow__file_named(path_of(f), &f->fd) == 1)
		(void)cow__file_unlink(path_of(f));
	f->made = false;
	cow__descriptor_close(&f->fd);
}

/* Undoes all. A counted file that another process found meanwhile stays its own. A file
 * that was there before keeps its name. (If its last user leaves at this moment, the next
 * user removes it.) */
static void
file_fail(struct file *f)
{
	if ((f->flags & COW_FILE_COUNTED) && f->made && f->fd.fd >= 0) {
		f->dev = f->fd.dev;
		f->ino = f->fd.ino;
	} else {
		unmake(f);
	}
	file_free(f);
}

static int
open_counted(struct file *f)
{
	uint64_t until = cow__now() + LEAVING_NS;
	uint32_t nobody = 0;
	bool last = false;
	int r;

	for (int i = 0; !last; i++) {
		/* This process may be stopped until it is late. So one try follows. */
		last = i >= TRIES && cow__now() >= until;
		r = open_or_make(f);
		if (r < 0)
			return r;
		r = cow__memfd_lock_take(&f->fd, 0, true);
		if (r == 0) {
			r = cow__file_named(path_of(f), &f->fd);
			if (r == 1)
				return 0;
		}
		if (r < 0 && r != -EAGAIN) {
			unmake(f);
			return r;
		}
		/* Its last user is about to remove the name, or has. Nothing is lost: the
		 * file was empty, or its users had freed it. */
		cow__descriptor_close(&f->fd);
		if (i < TRIES)
			cow__yield();
		else
			cow__wait(&nobody, 0, LOOK_NS);
	}
	return -EAGAIN;
}

static int
map_part(struct file *f, uint64_t offset, size_t bytes)
{
	uint64_t from = offset & ~(uint64_t)(cow__page - 1);
	size_t skip = (size_t)(offset - from);
	bool shared = f->flags & COW_FILE_SHARED;
	int r;

	f->mapped = cow__round_up(bytes + skip, cow__page);
	r = cow__map_reserve(f->mapped, f->mapped < 2 * MIB ? cow__page : 2 * MIB,
	                     &f->mapping);
	if (r < 0) {
		f->mapping = 0;
		return r;
	}
	r = shared ? cow__map_shared(f->mapping, f->mapped, &f->fd, from, true)
	           : cow__map_private(f->mapping, f->mapped, &f->fd, from, true);
	f->data = (void *)(f->mapping + skip);
	return r;
}

/* Leaves the sentence about a failure: what failed, and for which name. */
static int
about(int r, const char *what, const struct file *f)
{
	return cow__error_about(r, what, f->name ? f->name : "(a descriptor)");
}

static int
check_length(struct file *f, uint64_t end, int error)
{
	struct cow__file_facts facts;
	int r = cow__file_facts(f->fd.fd, &facts);

	if (r < 0)
		return about(r, "looking at", f);
	return facts.bytes < end ? about(error, "mapping", f) : 0;
}

static int
settle_size(struct file *f, uint64_t offset, size_t bytes)
{
	bool grows = f->name && (f->flags & COW_FILE_SHARED) &&
	             !(f->flags & COW_FILE_NO_CREATE);
	struct cow__file_facts facts;
	int r = cow__file_facts(f->fd.fd, &facts);

	if (r < 0)
		return about(r, "looking at", f);
	if (!facts.regular)
		return about(-ENODEV, "mapping", f);
	if (!facts.readable ||
	    ((f->flags & COW_FILE_SHARED) && !facts.writable))
		return about(-EBADF, "mapping", f);
	if (!grows && facts.bytes < offset + bytes)
		return about(-ENODATA, "mapping", f);
	r = map_part(f, offset, bytes);
	if (r < 0)
		return about(r, "mapping", f);
	if (grows) {
		r = cow__file_grow(f->fd.fd, offset + bytes);
		if (r < 0)
			return about(r,
			             f->flags & COW_FILE_SHM
			                     ? "allocating shared memory for"
			                     : "making room in",
			             f);
	}
	r = check_length(f, offset + bytes, -ESTALE);
	if (r < 0)
		return r;
	cow__file_sequential(f->fd.fd, offset, bytes);
	return 0;
}

/* Makes the storage, which owns `f`. A failure frees `f`. */
static int
storage(struct file *f, size_t bytes, struct cow_storage **ret)
{
	struct cow_data_ptr ptr = { f->data, f, file_deleted,
		                    { COW_DEVICE_CPU, 0 } };
	struct cow_storage *s;
	int r;

	r = cow_storage_new_external(&ptr, bytes, NULL, &s);
	if (r < 0) {
		file_fail(f);
		return r;
	}
	if (f->flags & COW_FILE_UNLINK) {
		r = cow__file_unlink(path_of(f));
		if (r < 0) {
			about(r, "removing the name of", f);
			unmake(f);
			(void)cow_storage_unref(s);
			return r;
		}
	}
	f->dev = f->fd.dev;
	f->ino = f->fd.ino;
	if (!(f->flags & COW_FILE_KEEP_FD))
		cow__descriptor_close(&f->fd);
	*ret = s;
	return 0;
}

static int
flags_check(const char *name, uint32_t flags)
{
	const uint32_t shared_only = COW_FILE_SHM | COW_FILE_EXCLUSIVE |
	                             COW_FILE_UNLINK | COW_FILE_COUNTED;

	if (!name || (flags & ~(uint32_t)KNOWN))
		return cow__error(-EINVAL, "cow_storage_open: no name, or "
		                           "unknown flags");
	if (!(flags & COW_FILE_SHARED) && (flags & shared_only))
		return cow__error(-EINVAL, "cow_storage_open: SHM, EXCLUSIVE, "
		                           "UNLINK and COUNTED need SHARED");
	if ((flags & COW_FILE_EXCLUSIVE) && (flags & COW_FILE_NO_CREATE))
		return cow__error(-EINVAL, "cow_storage_open: EXCLUSIVE and "
		                           "NO_CREATE exclude each other");
	if ((flags & COW_FILE_COUNTED) &&
	    (!(flags & COW_FILE_SHM) ||
	     (flags & (COW_FILE_KEEP_FD | COW_FILE_UNLINK))))
		return cow__error(-EINVAL, "cow_storage_open: COUNTED needs SHM, "
		                           "and excludes KEEP_FD and UNLINK");
	return 0;
}

COW_EXPORT int
cow_storage_open(const char *name, size_t bytes, uint32_t flags,
                 struct cow_storage **ret)
{
	struct file *f;
	int r = flags_check(name, flags);

	if (r < 0)
		return r;
	if (!ret || bytes > (size_t)INT64_MAX)
		return cow__error(-EINVAL, "cow_storage_open: no such size");
	r = file_new(name, flags, &f);
	if (r == -EINVAL || r == -ENAMETOOLONG)
		return cow__error_about(r, "not a name of shared memory:", name);
	if (r < 0)
		return cow__error_from(r, "cow_storage_open");
	if (bytes == 0) {
		file_free(f);
		return cow_storage_new(0, NULL, ret);
	}
	r = flags & COW_FILE_COUNTED ? open_counted(f) : open_or_make(f);
	if (r < 0)
		about(r,
		      flags & COW_FILE_SHM      ? "opening shared memory"
		      : flags & COW_FILE_SHARED ? "opening for reading and writing"
		                                : "opening for reading",
		      f);
	else
		r = settle_size(f, 0, bytes);
	if (r == 0)
		return storage(f, bytes, ret);
	file_fail(f);
	return r;
}

COW_EXPORT int
cow_storage_open_fd(int fd, uint64_t offset, size_t bytes, uint32_t flags,
                    struct cow_storage **ret)
{
	struct cow__descriptor d = cow__descriptor_of(fd);
	struct file *f;
	int r;

	if (!ret || (flags & ~(uint32_t)(COW_FILE_SHARED | COW_FILE_KEEP_FD)))
		return cow__error(-EINVAL,
		                  "cow_storage_open_fd: unknown flags");
	if (offset > INT64_MAX || bytes > (size_t)INT64_MAX - offset)
		return cow__error(-EINVAL, "cow_storage_open_fd: no such size");
	r = file_new(NULL, flags, &f);
	if (r < 0)
		return cow__error_from(r, "cow_storage_open_fd");
	if (bytes == 0) {
		file_free(f);
		return cow_storage_new(0, NULL, ret);
	}
	r = cow__descriptor_dup(&d, &f->fd);
	if (r < 0)
		about(r, "duplicating", f);
	else
		r = settle_size(f, offset, bytes);
	if (r == 0)
		return storage(f, bytes, ret);
	file_fail(f);
	return r;
}

/* ---- Questions ---------------------------------------------------------------- */

COW_EXPORT int
cow_storage_file_fd(const struct cow_storage *s, int *ret)
{
	const struct file *f = s ? file_of(s) : NULL;
	int r;

	if (!ret || !s)
		return cow__error(-EINVAL, "cow_storage_file_fd: NULL");
	if (!f || !(f->flags & COW_FILE_KEEP_FD))
		return cow__error(-ENOENT, "the storage was not opened with "
		                           "COW_FILE_KEEP_FD");
	r = cow__descriptor_give(&f->fd, ret);
	return r < 0 ? cow__error_from(r, "cow_storage_file_fd") : 0;
}

COW_EXPORT const char *
cow_storage_file_name(const struct cow_storage *s)
{
	const struct file *f = s ? file_of(s) : NULL;

	return f ? f->name : NULL;
}

COW_EXPORT int
cow_shm_unlink(const char *name)
{
	char path[sizeof(SHM_FOLDER) + SHM_NAME];
	int r = name ? shm_path(name, path) : -EINVAL;

	if (r == 0)
		r = cow__file_unlink(path);
	return r < 0 ? cow__error_about(r, "removing shared memory",
	                                name ? name : "NULL")
	             : 0;
}
