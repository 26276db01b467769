/* SPDX-License-Identifier: MIT */
/*
 * Test support: the files of a random program
 *
 * A file has an array, as a storage has. Storages that lie on the file have the same one. A private
 * mapping has an array of its own, and nobody writes the file meanwhile: what the mapping would
 * show is open then. An atomic save makes another file of that name; storages keep the old one.
 */
#include "tests/support/folder.h"
#include "tests/support/model.h"

static size_t file_most(const struct program *p)
{
	return 2 * p->largest + 8 * PAGE;
}

void files_begin(struct program *p)
{
	if (folder[0] == '\0')
		enter();
	for (int i = 0; i < MODEL_FILES; i++)
		snprintf(p->files[i].path, sizeof(p->files[i].path), "%s/%d-%d", folder,
		         p->thread, i);
	snprintf(p->shm.path, sizeof(p->shm.path), "%s-%d", shm, p->thread);
}

static void file_forget(struct model_file *f)
{
	if (f->inode)
		array_unref(f->inode);
	f->inode = NULL;
}

void files_end(struct program *p)
{
	for (int i = 0; i < MODEL_FILES; i++) {
		must((unlink(p->files[i].path) == 0) == (p->files[i].inode != NULL));
		file_forget(&p->files[i]);
	}
	must(p->shm.inode == NULL);
	rmdir(folder); /* the last thread does it */
}

/* An array of a file, with room to grow. */
static struct array *inode_new(const struct program *p)
{
	struct array *a = array_new(file_most(p), NULL);

	a->n = 0;
	a->common = true;
	a->resize = RESIZE_NOT;
	return a;
}

/* The last storage on a counted name takes the name with it. The children of other threads have it,
 * too, and end without a word, as if they were killed: then the name may stay. */
void shm_released(struct program *p)
{
	char path[160];

	if (!p->shm.inode || p->alone)
		return;
	snprintf(path, sizeof(path), "/dev/shm%s", p->shm.path);
	if (p->shm.inode->users > 1) {
		must(access(path, F_OK) == 0);
		return;
	}
	must((access(path, F_OK) < 0 && errno == ENOENT) || p->beside);
	if (p->beside)
		(void)cow_shm_unlink(p->shm.path);
	file_forget(&p->shm);
}

static void check_file(struct program *p, const struct model_file *f)
{
	size_t n = f->inode->n, i = 0;
	unsigned char *is = malloc(n + 1);
	int fd = open(f->path, O_RDONLY | O_CLOEXEC);

	must(fd >= 0 && is != NULL);
	if (pread(fd, is, n + 1, 0) != (ssize_t)n)
		program_fails(p, "%s has not %zu bytes", f->path, n);
	if (memcmp(is, f->inode->bytes, n) != 0) {
		while (is[i] == f->inode->bytes[i])
			i++;
		program_fails(p, "%s, byte %zu of %zu is %d, not %d", f->path, i, n, is[i],
		              f->inode->bytes[i]);
	}
	close(fd);
	free(is);
}

/* ---- Saving --------------------------------------------------------------------- */

static uint32_t draw_save_flags(struct program *p, bool by_name)
{
	uint32_t flags = draw(p, 2) ? COW_IO_PLAIN : 0;

	if (draw(p, 16) == 0)
		flags |= COW_SAVE_SYNC;
	if (draw(p, 3) == 0)
		flags |= COW_SAVE_TRUNCATE;
	if (by_name && draw(p, 4) == 0)
		flags |= COW_IO_DIRECT;
	return flags;
}

static int save(struct program *p, const struct slot *s, const struct model_file *f,
                uint64_t offset, uint32_t flags, uint64_t *done)
{
	bool here = draw(p, 2);
	int fd, r;

	if (flags & (COW_SAVE_ATOMIC | COW_IO_DIRECT) || draw(p, 2))
		return cow_storage_save(s->storage, f->path, offset, flags, done);
	fd = open(f->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	must(fd >= 0);
	if (here)
		must(lseek(fd, (off_t)offset, SEEK_SET) == (off_t)offset);
	r = cow_storage_save_fd(s->storage, fd, here ? COW_FROM_HERE : offset, flags, done);
	if (here)
		must(lseek(fd, 0, SEEK_CUR) == (off_t)(offset + s->n));
	close(fd);
	return r;
}

void slot_to_file(struct program *p, struct slot *s)
{
	struct model_file *f = &p->files[draw(p, MODEL_FILES)];
	struct array *a = f->inode;
	bool atomic = draw(p, 3) == 0 || (a && (a->privates || a == s->array));
	uint32_t flags = draw_save_flags(p, true);
	uint64_t offset = 0, done = 99;

	p->doing = "save";
	if (s->array->elements || s->array->sparse || s->n > file_most(p) / 2)
		return;
	if (atomic)
		flags |= COW_SAVE_ATOMIC;
	else if (draw(p, 2))
		offset = draw(p, (a ? a->n : 0) + PAGE) % (file_most(p) - s->n);
	if (!atomic && a && a->users > 1)
		flags &= ~(uint32_t)COW_SAVE_TRUNCATE;
	gives(p, 0, save(p, s, f, offset, flags, &done));
	must(done == s->n);
	if (atomic)
		file_forget(f);
	if (!f->inode)
		f->inode = inode_new(p);
	a = f->inode;
	memcpy(a->bytes + offset, s->array->bytes + s->at, s->n);
	if (offset + s->n > a->n)
		a->n = offset + s->n;
	if (flags & COW_SAVE_TRUNCATE) {
		memset(a->bytes + offset + s->n, 0, a->n - (offset + s->n));
		a->n = offset + s->n;
	}
	check_file(p, f);
}

/* ---- Loading -------------------------------------------------------------------- */

static void load(struct program *p, struct model_file *f, struct slot *to)
{
	struct array *a = f->inode;
	bool end = draw(p, 4) == 0, here = draw(p, 2);
	uint64_t offset = draw(p, a->n);
	size_t n = end ? a->n - offset : 1 + draw(p, a->n - offset);
	uint32_t flags = draw(p, 2) ? COW_IO_PLAIN : 0;
	struct cow_storage *s = (struct cow_storage *)p;
	int fd;

	p->doing = "load";
	if (draw(p, 8) == 0) {
		gives(p, -ENODATA, cow_storage_load(f->path, offset, a->n - offset + 1, flags, &s));
		gives(p, -EISDIR, cow_storage_load(folder, 0, 1, flags, &s));
		must(s == (struct cow_storage *)p);
	}
	if (draw(p, 2)) {
		if (draw(p, 4) == 0)
			flags |= COW_IO_DIRECT;
		gives(p, 0, cow_storage_load(f->path, offset, end ? COW_TO_END : n, flags, &s));
	} else {
		fd = open(f->path, O_RDONLY | O_CLOEXEC);
		must(fd >= 0 && lseek(fd, (off_t)offset, SEEK_SET) == (off_t)offset);
		gives(p, 0, cow_storage_load_fd(fd, here ? COW_FROM_HERE : offset,
		                                end ? COW_TO_END : n, flags, &s));
		must(lseek(fd, 0, SEEK_CUR) == (off_t)(here ? offset + n : offset));
		close(fd);
	}
	slot_release(p, to);
	slot_take(to, s, array_new(n, a->bytes + offset));
	check_slot(p, to);
}

/* ---- Storages on files ---------------------------------------------------------- */

static void check_kept(struct program *p, const struct cow_storage *s, bool kept, const char *name)
{
	const char *is = cow_storage_file_name(s);
	int fd = -7;

	must(name ? strcmp(is, name) == 0 : is == NULL);
	gives(p, kept ? 0 : -ENOENT, cow_storage_file_fd(s, &fd));
	must((fd >= 0) == kept);
	if (kept)
		close(fd);
}

/* What `to` becomes: a slot on bytes from `at` on. */
static void on_file(struct slot *to, struct cow_storage *s, struct array *a, size_t at, size_t n)
{
	slot_take(to, s, a);
	to->at = at;
	to->n = n;
	a->users++;
}

/* The file is made, and made longer, as it is needed. */
static void open_shared(struct program *p, struct model_file *f, struct slot *to, bool counted)
{
	uint32_t flags = COW_FILE_SHARED;
	struct cow_storage *s = (struct cow_storage *)p;
	size_t n = draw_bytes(p);

	p->doing = counted ? "open counted" : "open shared";
	if (counted)
		flags |= COW_FILE_SHM | COW_FILE_COUNTED;
	if (!counted && draw(p, 2))
		flags |= COW_FILE_KEEP_FD;
	if (f->inode && draw(p, 4) == 0)
		gives(p, -EEXIST, cow_storage_open(f->path, n, flags | COW_FILE_EXCLUSIVE, &s));
	if (!f->inode || f->inode->n < n)
		gives(p, f->inode ? -ENODATA : -ENOENT,
		      cow_storage_open(f->path, n, flags | COW_FILE_NO_CREATE, &s));
	must(s == (struct cow_storage *)p);
	if (!f->inode) {
		f->inode = inode_new(p);
		if (draw(p, 2))
			flags |= COW_FILE_EXCLUSIVE;
	} else if (f->inode->n >= n && draw(p, 2)) {
		flags |= COW_FILE_NO_CREATE;
	}
	if (!counted && draw(p, 6) == 0)
		flags |= COW_FILE_UNLINK;
	gives(p, 0, cow_storage_open(f->path, n, flags, &s));
	check_kept(p, s, flags & COW_FILE_KEEP_FD, f->path);
	if (f->inode->n < n)
		f->inode->n = n;
	on_file(to, s, f->inode, 0, n);
	if (flags & COW_FILE_UNLINK) {
		must(access(f->path, F_OK) < 0);
		file_forget(f);
	}
	check_slot(p, to);
}

/* A part of a file that is there, of a descriptor. */
static void open_fd(struct program *p, struct model_file *f, struct slot *to, bool shared)
{
	struct array *a = f->inode;
	size_t at = draw(p, a->n), n = 1 + draw(p, a->n - at);
	uint32_t flags = (shared ? COW_FILE_SHARED : 0) | (draw(p, 2) ? COW_FILE_KEEP_FD : 0);
	struct cow_storage *s = (struct cow_storage *)p;
	int fd = open(f->path, (shared ? O_RDWR : O_RDONLY) | O_CLOEXEC);

	p->doing = shared ? "open a descriptor shared" : "open a descriptor";
	must(fd >= 0);
	if (draw(p, 4) == 0)
		gives(p, -ENODATA, cow_storage_open_fd(fd, at, a->n - at + 1, flags, &s));
	if (draw(p, 4) == 0 && !shared)
		gives(p, -EBADF, cow_storage_open_fd(fd, at, n, flags | COW_FILE_SHARED, &s));
	must(s == (struct cow_storage *)p);
	gives(p, 0, cow_storage_open_fd(fd, at, n, flags, &s));
	close(fd);
	check_kept(p, s, flags & COW_FILE_KEEP_FD, NULL);
	if (shared) {
		on_file(to, s, a, at, n);
	} else {
		slot_take(to, s, array_new(n, a->bytes + at));
		to->array->resize = RESIZE_NOT;
		to->array->under = a;
		a->privates++;
		a->users++;
	}
	check_slot(p, to);
}

void slot_from_file(struct program *p, struct slot *to)
{
	struct model_file *f = &p->files[draw(p, MODEL_FILES)];
	size_t how = draw(p, 6);

	if (how < 2) {
		slot_release(p, to);
		open_shared(p, how ? f : &p->shm, to, !how);
	} else if (f->inode && f->inode->n) {
		slot_release(p, to);
		if (how < 4)
			load(p, f, to);
		else
			open_fd(p, f, to, how == 4);
	}
}
