/* SPDX-License-Identifier: MIT */
/*
 * Storages as descriptors, aliases in place, and new storages in a group's memory
 */
#include "core/base/error.h"
#include "memfd/memfd.h"
#include "share/channel.h"
#include "share/parcel.h"

COW_EXPORT int
cow_group_storage_new(struct cow_group *g, size_t bytes, enum cow_share_mode mode,
                      struct cow_storage **ret)
{
	struct cow_storage *s;
	struct cow__home *h;
	int r;

	if (!g || !ret || (mode != COW_SHARE_ALIAS && mode != COW_SHARE_CLONE) ||
	    bytes > (size_t)INT64_MAX)
		return cow__error(-EINVAL,
		                  "cow_group_storage_new: no group, or no such "
		                  "mode or size");
	if (bytes == 0)
		return cow_storage_new(0, NULL, ret);
	r = cow__home_new(g,
	                  mode == COW_SHARE_ALIAS ? COW__HOME_ALIAS
	                                          : COW__HOME_PACKED,
	                  NULL, bytes, &h);
	if (r < 0)
		return cow__error_from(r, "cow_group_storage_new");
	cow__share_enter();
	r = cow__home_storage(h, &s);
	if (r < 0)
		cow__home_unref(h);
	cow__share_leave();
	if (r < 0)
		return cow__error_from(r, "cow_group_storage_new");
	*ret = s;
	return 0;
}

static int
device_export(struct cow_storage *s, enum cow_share_mode mode, int *ret_fd,
              uint64_t *ret_offset)
{
	int r = cow__parcels()->export(s, mode, ret_fd);

	if (r == 0)
		*ret_offset = 0;
	return r;
}

COW_EXPORT int
cow_storage_export(struct cow_storage *s, enum cow_share_mode mode, int *ret_fd,
                   uint64_t *ret_offset)
{
	struct cow__home *h;
	uint64_t offset;
	int r;

	if (!s || !ret_fd || !ret_offset || (unsigned)mode > COW_SHARE_SEALED)
		return cow__error(-EINVAL, "cow_storage_export: no storage, or "
		                           "no such mode");
	if (!s->elements && s->bytes && s->device.type == COW_DEVICE_CUDA &&
	    cow__parcels())
		return device_export(s, mode, ret_fd, ret_offset);
	if (s->elements || s->device.type != COW_DEVICE_CPU)
		return cow__error(-EOPNOTSUPP,
		                  "cow_storage_export: only plain bytes in the CPU's "
		                  "memory can be exported");
	if (s->bytes == 0)
		return cow__error(-EINVAL,
		                  "cow_storage_export: a storage of zero bytes has "
		                  "no descriptor");
	r = cow__home_for(s, mode == COW_SHARE_CLONE ? COW_SHARE_SEALED : mode,
	                  NULL, &h);
	if (r < 0)
		return r;
	offset = h->offset;
	r = cow__descriptor_give(&h->file, ret_fd);
	cow__share_enter();
	cow__home_unref(h);
	cow__share_leave();
	if (r < 0)
		return cow__error_from(r, "cow_storage_export");
	*ret_offset = offset;
	return 0;
}

COW_EXPORT int
cow_storage_share_in_place(struct cow_storage *s)
{
	const struct cow__home *h;
	int r;

	if (!s || !s->bytes)
		return cow__error(-EINVAL, "cow_storage_share_in_place: no "
		                           "storage, or no bytes");
	cow__share_enter();
	h = cow__home_of(s);
	cow__share_leave();
	if (h && h->kind == COW__HOME_ALIAS)
		return 0;
	if (!cow__transparent(s) || s->data->kind != COW__AT_TILE)
		return cow__error(-EOPNOTSUPP,
		                  "cow_storage_share_in_place: not a transparent "
		                  "storage in the engine's memory");
	r = cow__home_share_in_place(s);
	if (r == -EBUSY)
		return cow__error(r, "cow_storage_share_in_place: a clone or a "
		                     "forked process reads its pages, or memory "
		                     "may be under I/O");
	return r < 0 ? cow__error_from(r, "cow_storage_share_in_place") : 0;
}

/* Imports a descriptor of a device's memory. 1: it is none. */
static int
device_import(int fd, uint64_t offset, size_t bytes, enum cow_share_mode mode,
              struct cow_storage **ret)
{
	int r;

	cow__error_begin();
	r = cow__parcels()->import(fd, offset, bytes, mode, ret);
	cow__error_stands();
	if (r == -EBADMSG)
		return 1;
	return r < 0 ? cow__error_passed(r, "cow_storage_import") : 0;
}

/* A storage on a memfd. Takes `d` over on success, if there is no home yet. */
static int
memfd_storage(const struct cow__home_key *key, struct cow__descriptor *d, size_t bytes,
              enum cow_share_mode mode, struct cow_storage **ret)
{
	struct cow__home *h;
	int r = mode == COW_SHARE_ALIAS ? cow__home_alias_back(key, bytes, ret) : 0;

	if (r != 0)
		return r < 0 ? r : 0;
	cow__share_enter();
	r = cow__home_open(mode == COW_SHARE_ALIAS ? COW__HOME_ALIAS : COW__HOME_SEALED,
	                   key, d, bytes, &h);
	if (r == 0) {
		r = cow__home_storage(h, ret);
		if (r < 0)
			cow__home_unref(h);
	}
	cow__share_leave();
	return r;
}

static int
import_sentence(int r)
{
	if (r == -EBADMSG)
		return cow__error(-EBUSY, "cow_storage_import: this process has a "
		                          "storage of another size or mode there");
	if (r == -EPERM || r == -EACCES)
		return cow__error(-EBADMSG, "cow_storage_import: the kernel does "
		                            "not map the memfd in this mode");
	return cow__error_from(r, "cow_storage_import");
}

COW_EXPORT int
cow_storage_import(int fd, uint64_t offset, size_t bytes,
                   enum cow_share_mode mode, struct cow_storage **ret)
{
	struct cow__home_key key = { .offset = offset };
	bool alias = mode == COW_SHARE_ALIAS;
	struct cow__descriptor d = cow__descriptor_of(fd);
	struct cow_storage *s;
	uint64_t has;
	int r, of_device;

	if (!ret || (unsigned)mode > COW_SHARE_SEALED)
		return cow__error(-EINVAL, "cow_storage_import: no such mode");
	r = cow__memfd_check(fd, alias ? COW__SEALED_SIZE : COW__SEALED_WRITE,
	                     &has);
	if (r < 0 && bytes && cow__parcels()) {
		of_device = device_import(fd, offset, bytes, mode, ret);
		if (of_device <= 0)
			return of_device;
	}
	if (r < 0)
		return cow__error(-EBADMSG, alias ? "cow_storage_import: not a memfd "
		                             "whose size is sealed"
		                           : "cow_storage_import: not a memfd "
		                             "that is sealed against writing");
	if (offset > has || bytes > has - offset)
		return cow__error_number(-EINVAL,
		                         "cow_storage_import: the memfd has # "
		                         "bytes", has);
	if (bytes == 0)
		return cow_storage_new(0, NULL, ret);
	r = cow__descriptor_dup(&d, &d);
	if (r < 0)
		return cow__error_from(r, "cow_storage_import");
	key.dev = d.dev;
	key.ino = d.ino;
	key.file_bytes = has;
	r = memfd_storage(&key, &d, bytes, mode, &s);
	cow__descriptor_close(&d);
	if (r < 0)
		return import_sentence(r);
	*ret = s;
	return 0;
}
