/* SPDX-License-Identifier: MIT */
/*
 * Load and save
 *
 *   save   writes a lazy clone, which is held during the call: nobody writes its bytes,
 *          and a freeze does not change them. The clone is made before there is a ring,
 *          because beside a ring transparent storages would be copied
 *   load   reads to memory that no other thread has yet
 *
 * How the bytes move: share/transfer.h.
 */
#include "core/memory/apart.h"
#include "core/base/error.h"
#include "core/storage/storage.h"
#include "cowshed-file.h"
#include "memfd/file.h"
#include "memfd/map.h"
#include "memfd/process.h"
#include "share/fork.h"
#include "share/transfer.h"

#define LOAD_FLAGS (COW_IO_DIRECT | COW_IO_PLAIN)
#define SAVE_FLAGS                                                             \
	(COW_IO_DIRECT | COW_IO_PLAIN | COW_SAVE_SYNC | COW_SAVE_ATOMIC |      \
	 COW_SAVE_TRUNCATE)
#define HUGE_BYTES (2 * MIB)
#define PATH 4096

static const char descriptor[] = "(a descriptor)";

/* ---- Files ---------------------------------------------------------------------- */

static int
about(int r, const char *what, const struct cow__job *j)
{
	return cow__error_about(r, what, j->name);
}

/* Looks at the open file, and finds the offset at which to begin. */
static int
begin_job(struct cow__job *j, uint64_t offset, bool write)
{
	int r = cow__file_facts(j->file.fd, &j->facts);

	if (r < 0)
		return about(r, "looking at", j);
	if (write ? !j->facts.writable : !j->facts.readable)
		return about(-EBADF, write ? "writing" : "reading", j);
	if (!j->facts.seekable && j->own && offset == 0)
		offset = COW_FROM_HERE;
	if (offset != COW_FROM_HERE &&
	    (!j->facts.seekable || (write && j->facts.appends) ||
	     offset > INT64_MAX))
		return cow__error(-EINVAL, "a pipe, a device and a file opened with "
		                           "O_APPEND take no offset, and no file "
		                           "takes one beyond 2^63");
	j->t.offset = offset;
	j->t.write = write;
	if (offset == COW_FROM_HERE && j->facts.seekable &&
	    !(write && j->facts.appends)) {
		r = cow__file_position(j->file.fd, &j->t.offset);
		if (r < 0)
			return about(r, "looking at", j);
	}
	return 0;
}

/* Moves the file's position if the transfer began there. */
static void
moved(const struct cow__job *j, uint64_t offset, size_t done)
{
	if (offset == COW_FROM_HERE && j->t.offset != COW__FILE_STREAM)
		(void)cow__file_seek(j->file.fd, j->t.offset + done);
}

/* ---- Load ----------------------------------------------------------------------- */

/* Makes huge pages of the memory that is read to next. */
static void
ready(void *arg, size_t offset, size_t bytes)
{
	struct cow__allocation *a = arg;

	(void)bytes;
	if (a->kind == COW__AT_TILE && offset % HUGE_BYTES == 0)
		cow__commit_range(a->tile, offset,
		                  cow__min(HUGE_BYTES, a->bytes - offset));
}

static int
length(struct cow__job *j, size_t *bytes)
{
	uint64_t from = j->t.offset, has = j->facts.bytes;

	if (*bytes != COW_TO_END && *bytes > (size_t)INT64_MAX)
		return cow__error(-EINVAL, "cow_storage_load: no such size");
	if (from == COW__FILE_STREAM || !j->facts.seekable) {
		if (*bytes == COW_TO_END)
			return cow__error(-EINVAL, "cow_storage_load: a pipe or "
			                           "device needs a number of bytes");
		return 0;
	}
	if (from > has || (*bytes != COW_TO_END && *bytes > has - from))
		return about(-ENODATA, "reading", j);
	if (*bytes == COW_TO_END)
		*bytes = (size_t)(has - from);
	return 0;
}

static int
load_bytes(struct cow__job *j, uint64_t offset, size_t bytes, struct cow_storage **ret)
{
	const struct cow_storage like = { .resizable = true };
	struct cow__allocation *a;
	size_t done = 0;
	int r = begin_job(j, offset, false);

	if (r == 0)
		r = length(j, &bytes);
	if (r < 0)
		return r;
	if (bytes == 0)
		return cow_storage_new(0, NULL, ret);
	r = cow__allocation_new(bytes, COW__ALLOCATION_WHOLE, NULL, &a);
	if (r < 0)
		return cow__error_from(r, "cow_storage_load");
	j->t.data = a->data;
	j->t.bytes = bytes;
	j->t.ready = ready;
	j->t.arg = a;
	r = cow__job_transfer(j, &done);
	moved(j, offset, r < 0 ? 0 : done);
	if (r < 0) {
		about(r, "reading", j);
	} else {
		r = cow__storage_on(a, bytes, &like, ret);
		if (r < 0)
			cow__error_from(r, "cow_storage_load");
	}
	if (r < 0)
		cow__allocation_unref(a);
	return r;
}

static int
load_check(uint32_t flags, struct cow_storage **ret)
{
	cow__share_fork_init();
	if (!ret || (flags & ~(uint32_t)LOAD_FLAGS))
		return cow__error(-EINVAL, "cow_storage_load: unknown flags");
	return 0;
}

COW_EXPORT int
cow_storage_load(const char *path, uint64_t offset, size_t bytes, uint32_t flags,
                 struct cow_storage **ret)
{
	struct cow__job j = { .name = path, .own = true, .flags = flags };
	int r = load_check(flags, ret);

	if (r < 0)
		return r;
	if (!path)
		return cow__error(-EINVAL, "cow_storage_load: no path");
	r = cow__file_open(path, COW__FILE_READ, 0, &j.file);
	if (r < 0)
		return about(r, "opening", &j);
	r = load_bytes(&j, offset, bytes, ret);
	cow__descriptor_close(&j.file);
	return r;
}

COW_EXPORT int
cow_storage_load_fd(int fd, uint64_t offset, size_t bytes, uint32_t flags,
                    struct cow_storage **ret)
{
	struct cow__job j = { .name = descriptor, .flags = flags };
	int r = load_check(flags, ret);

	if (r < 0)
		return r;
	if (flags & COW_IO_DIRECT)
		return cow__error(-EINVAL, "cow_storage_load_fd: DIRECT needs a path");
	j.file = cow__descriptor_of(fd);
	return load_bytes(&j, offset, bytes, ret);
}

/* ---- Save ----------------------------------------------------------------------- */

/* Holds the bytes: by a lazy clone, unless there are none or others write them unseen. */
static int
hold_bytes(struct cow_storage *s, struct cow_storage **ret)
{
	if (cow__unwatched(s) || s->bytes == 0)
		return cow__storage_beside(s, ret);
	return cow_storage_lazy_clone(s, ret);
}

/*
 * The bytes of the storage from `at` on that are written together. To read a hole would make its
 * pages, so holes of 2 MiB and more are written from `zeros`, which has as many bytes and no
 * memory. NULL: there are none.
 */
static size_t
next_part(const struct cow_storage *s, size_t at, const char *zeros, const char **ret)
{
	size_t start, end, hole = 0;
	int r = zeros ? cow__allocation_data(s->data, at, s->bytes, &start, &end) : -EINVAL;

	if (r >= 0)
		hole = (r ? cow__round_down(start, HUGE_BYTES) : s->bytes) - at;
	if (r > 0 && hole > s->bytes) /* it begins before */
		hole = 0;
	*ret = hole >= HUGE_BYTES ? zeros : (const char *)s->data->data + at;
	if (hole >= HUGE_BYTES)
		return HUGE_BYTES;
	return r > 0 ? cow__min(cow__round_up(end, HUGE_BYTES), s->bytes) - at : s->bytes - at;
}

static int
write_bytes(struct cow__job *j, const struct cow_storage *s, size_t *done)
{
	uint64_t offset = j->t.offset;
	void *zeros = NULL;
	int r = 0;

	if (s->bytes >= 2 * HUGE_BYTES && cow__map_meta(HUGE_BYTES, &zeros) < 0)
		zeros = NULL;
	for (*done = 0; r == 0 && *done < s->bytes;) {
		const char *data;
		size_t n = 0;

		j->t.bytes = next_part(s, *done, zeros, &data);
		j->t.data = (char *)data;
		if (offset != COW__FILE_STREAM)
			j->t.offset = offset + *done;
		r = cow__job_transfer(j, &n);
		*done += n;
	}
	j->t.offset = offset;
	if (zeros)
		(void)cow__map_release((uintptr_t)zeros, HUGE_BYTES);
	return r;
}

static int
write_all(struct cow__job *j, const struct cow_storage *s, uint64_t offset,
          size_t *done)
{
	uint64_t start;
	int r = begin_job(j, offset, true);

	if (r < 0)
		return r;
	start = j->t.offset == COW__FILE_STREAM ? j->facts.bytes : j->t.offset;
	if (j->facts.regular && s->bytes &&
	    (start > (uint64_t)INT64_MAX - s->bytes ||
	     start + s->bytes > cow__file_limit()))
		return about(-EFBIG, "writing", j);
	r = write_bytes(j, s, done);
	moved(j, offset, *done);
	if (r < 0)
		return about(r, "writing", j);
	if ((j->flags & COW_SAVE_TRUNCATE) && j->facts.regular &&
	    j->t.offset != COW__FILE_STREAM) {
		r = cow__file_truncate(j->file.fd, j->t.offset + s->bytes);
		if (r < 0)
			return about(r, "cutting", j);
	}
	if (j->flags & COW_SAVE_SYNC) {
		r = cow__file_sync(j->file.fd);
		if (r < 0)
			return about(r, "syncing", j);
	}
	return 0;
}

/* A random name in the same directory. */
static int
beside(const char *path, char *ret)
{
	static const char digits[] = "0123456789abcdef", prefix[] = ".cowshed-";
	const char *slash = strrchr(path, '/');
	size_t n = slash ? (size_t)(slash - path) + 1 : 0;
	unsigned char random[8];
	int r = cow__random(random, sizeof(random));

	if (r < 0)
		return r;
	if (n + sizeof(prefix) + 2 * sizeof(random) > PATH)
		return -ENAMETOOLONG;
	memcpy(ret, path, n);
	memcpy(ret + n, prefix, sizeof(prefix) - 1);
	n += sizeof(prefix) - 1;
	for (size_t i = 0; i < sizeof(random); i++) {
		ret[n++] = digits[random[i] >> 4];
		ret[n++] = digits[random[i] & 15];
	}
	ret[n] = '\0';
	return 0;
}

static int
replace_file(const char *path, const struct cow_storage *s, uint32_t flags,
             size_t *done)
{
	char name[PATH];
	struct cow__job j = { .name = name, .own = true, .flags = flags };
	uint32_t mode;
	int r = beside(path, name), old = cow__file_mode(path, &mode);

	/* A user who may not read the old file must not read the new one, not even for a
	 * moment. */
	if (r == 0)
		r = cow__file_open(name,
		                   COW__FILE_WRITE | COW__FILE_CREATE |
		                           COW__FILE_EXCLUSIVE,
		                   old == 0 ? 0600 : 0666, &j.file);
	if (r < 0)
		return cow__error_about(r, "making a new file for", path);
	if (old == 0)
		r = cow__file_chmod(j.file.fd, mode);
	else if (old != -ENOENT)
		r = old;
	if (r < 0)
		cow__error_about(r, "taking over the permissions of", path);
	else
		r = write_all(&j, s, 0, done);
	if (r == 0) {
		r = cow__file_rename(name, path);
		if (r < 0)
			cow__error_about(r, "replacing", path);
	}
	cow__descriptor_close(&j.file);
	if (r < 0) {
		(void)cow__file_unlink(name);
		*done = 0;
	}
	return r;
}

static int
in_place(const char *path, const struct cow_storage *s, uint64_t offset,
         uint32_t flags, size_t *done)
{
	struct cow__job j = { .name = path, .own = true, .flags = flags };
	int r = cow__file_open(path, COW__FILE_WRITE | COW__FILE_CREATE, 0666,
	                       &j.file);

	if (r < 0)
		return about(r, "opening for writing", &j);
	r = write_all(&j, s, offset, done);
	cow__descriptor_close(&j.file);
	return r;
}

/* Before anything is changed: a directory may be writable and not readable. */
static int
open_directory(const char *path, uint32_t flags, struct cow__descriptor *ret)
{
	int r = 0;

	*ret = COW__NO_DESCRIPTOR;
	if (flags & COW_SAVE_SYNC)
		r = cow__file_open_directory(path, ret);
	return r < 0 ? cow__error_about(r, "opening the directory of", path) : 0;
}

static int
sync_directory(const char *path, const struct cow__descriptor *d)
{
	int r = d->fd >= 0 ? cow__file_sync(d->fd) : 0;

	return r < 0 ? cow__error_about(r, "syncing the directory of", path) : 0;
}

static int
save_check(const struct cow_storage *s, uint32_t flags)
{
	cow__share_fork_init();
	if (!s || (flags & ~(uint32_t)SAVE_FLAGS))
		return cow__error(-EINVAL, "cow_storage_save: no storage, or "
		                           "unknown flags");
	if (s->elements || s->device.type != COW_DEVICE_CPU)
		return cow__error(-EOPNOTSUPP,
		                  "cow_storage_save: only plain bytes in the "
		                  "CPU's memory can be saved");
	return 0;
}

COW_EXPORT int
cow_storage_save(struct cow_storage *s, const char *path, uint64_t offset,
                 uint32_t flags, uint64_t *ret_done)
{
	struct cow__descriptor dir;
	struct cow_storage *held;
	size_t done = 0;
	int r = save_check(s, flags);

	if (ret_done)
		*ret_done = 0;
	if (r < 0)
		return r;
	if (!path || ((flags & COW_SAVE_ATOMIC) && offset))
		return cow__error(-EINVAL, "cow_storage_save: no path, or ATOMIC "
		                           "with an offset");
	r = open_directory(path, flags, &dir);
	if (r < 0)
		return r;
	r = hold_bytes(s, &held);
	if (r < 0) {
		cow__descriptor_close(&dir);
		return r;
	}
	r = flags & COW_SAVE_ATOMIC
	            ? replace_file(path, held, flags, &done)
	            : in_place(path, held, offset, flags, &done);
	if (r == 0)
		r = sync_directory(path, &dir);
	cow__descriptor_close(&dir);
	(void)cow_storage_unref(held);
	if (ret_done)
		*ret_done = done;
	return r;
}

COW_EXPORT int
cow_storage_save_fd(struct cow_storage *s, int fd, uint64_t offset,
                    uint32_t flags, uint64_t *ret_done)
{
	struct cow__job j = { .name = descriptor, .flags = flags };
	struct cow_storage *held;
	size_t done = 0;
	int r = save_check(s, flags);

	if (ret_done)
		*ret_done = 0;
	if (r < 0)
		return r;
	if (flags & (COW_SAVE_ATOMIC | COW_IO_DIRECT))
		return cow__error(-EINVAL, "cow_storage_save_fd: ATOMIC and "
		                           "DIRECT need a path");
	r = hold_bytes(s, &held);
	if (r < 0)
		return r;
	j.file = cow__descriptor_of(fd);
	r = write_all(&j, held, offset, &done);
	(void)cow_storage_unref(held);
	if (ret_done)
		*ret_done = done;
	return r;
}
