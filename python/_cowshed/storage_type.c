/* SPDX-License-Identifier: MIT */
/*
 * Storage: bytes with the buffer protocol
 *
 * What Python sees of a storage: its buffers, attributes and methods. storage.c has what they
 * are made of.
 */
#include "python/_cowshed/dlpack.h"
#include "python/_cowshed/guard.h"
#include "python/_cowshed/sites.h"
#include "python/_cowshed/storage.h"

#include <structmember.h>

static void storage_dealloc(PyObject *object)
{
	StorageObject *self = (StorageObject *)object;
	PyTypeObject *type = Py_TYPE(object);

	objects_remove(self);
	if (self->weakrefs)
		PyObject_ClearWeakRefs(object);
	Py_XDECREF(self->finder);
	(void)cow_storage_unref(self->storage);
	PyObject_Free(object);
	Py_DECREF(type);
}

/* ---- Buffers ------------------------------------------------------------------- */

static int storage_getbuffer(PyObject *object, Py_buffer *view, int flags)
{
	static char nothing[1];
	StorageObject *self = (StorageObject *)object;
	void *address;

	if (storage_address(self, &address) < 0) {
		view->obj = NULL;
		return -1;
	}
	if (!address)
		address = nothing;
	if (PyBuffer_FillInfo(view, object, address,
	                      (Py_ssize_t)cow_storage_bytes(self->storage),
	                      self->readonly, flags) < 0)
		return -1;
	(void)__atomic_add_fetch(&self->exports, 1, __ATOMIC_RELAXED);
	return 0;
}

static void storage_releasebuffer(PyObject *object, Py_buffer *view)
{
	(void)view;
	(void)__atomic_sub_fetch(&((StorageObject *)object)->exports, 1, __ATOMIC_RELAXED);
}

static Py_ssize_t storage_length(PyObject *object)
{
	return (Py_ssize_t)cow_storage_bytes(
		((StorageObject *)object)->storage);
}

/* ---- Attributes ------------------------------------------------------------------- */

static PyObject *get_nbytes(PyObject *object, void *closure)
{
	(void)closure;
	return PyLong_FromSsize_t(storage_length(object));
}

static PyObject *get_address(PyObject *object, void *closure)
{
	void *address;

	(void)closure;
	if (storage_address((StorageObject *)object, &address) < 0)
		return NULL;
	return PyLong_FromVoidPtr(address);
}

static PyObject *get_kind(PyObject *object, void *closure)
{
	static const char *const names[] = {"own", "alias", "file"};

	(void)closure;
	return PyUnicode_FromString(names[((StorageObject *)object)->kind]);
}

static PyObject *get_name(PyObject *object, void *closure)
{
	const char *name =
		cow_storage_file_name(((StorageObject *)object)->storage);

	(void)closure;
	if (!name)
		Py_RETURN_NONE;
	return PyUnicode_DecodeFSDefault(name);
}

static PyObject *get_id(PyObject *object, void *closure)
{
	(void)closure;
	return PyLong_FromVoidPtr(((StorageObject *)object)->storage);
}

static PyGetSetDef getset[] = {
	{"nbytes", get_nbytes, NULL, "The size in bytes.", NULL},
	{"address", get_address, NULL,
         "The address of the first byte. After the first request a writable storage does "
         "not move.",
         NULL},
	{"kind", get_kind, NULL,
         "'own', 'alias' (other processes write it, too) or 'file' (a mapped file, or "
         "foreign memory).",
         NULL},
	{"name", get_name, NULL,
         "The name of the file by which the storage was opened, or None.", NULL},
	{"id", get_id, NULL, "A number that no other living storage has.",
         NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef members[] = {
	{"__weaklistoffset__", T_PYSSIZET, offsetof(StorageObject, weakrefs),
         READONLY, NULL},
	{"readonly", T_BOOL, offsetof(StorageObject, readonly), READONLY,
         "Whether the bytes are only for reading."},
	{"exports", T_PYSSIZET, offsetof(StorageObject, exports), READONLY,
         "How many buffers of the storage are in use."},
	{NULL, 0, 0, 0, NULL},
};

/* ---- Methods ------------------------------------------------------------------------ */

static PyObject *storage_clone(PyObject *object, PyObject *args,
                               PyObject *kwargs)
{
	static char *names[] = {"lazy", "readonly", NULL};
	StorageObject *self = (StorageObject *)object;
	struct cow_storage *clone;
	uint64_t begin = site_begin(), bytes = cow_storage_bytes(self->storage);
	uint64_t copied = bytes;
	int lazy = 1, readonly = 0, r;
	void *address;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|p$p:clone", names,
	                                 &lazy, &readonly))
		return NULL;
	if (self->kind == KIND_FILE &&
	    (storage_address(self, &address) < 0 || guard_check(address, bytes) < 0))
		return NULL;
	storages_begin(&self, 1);
	Py_BEGIN_ALLOW_THREADS
	r = !lazy ? cow_storage_clone(self->storage, &clone)
	    : begin ? cow_storages_lazy_clone(&self->storage, 1, &copied, &clone)
	            : cow_storage_lazy_clone(self->storage, &clone);
	Py_END_ALLOW_THREADS
	storages_end(&self, 1);
	if (r < 0)
		return raise_error(r);
	site_count(begin, bytes - copied, copied);
	return storage_wrap(clone, KIND_OWN, readonly);
}

static PyObject *storage_info(PyObject *object, PyObject *unused)
{
	static const char *const states[] = {"owned", "lazy", "view",
	                                     "foreign"};
	struct cow_storage_info i = {.size = sizeof(i)};
	StorageObject *self = (StorageObject *)object;
	int r;

	(void)unused;
	storages_begin(&self, 1);
	r = cow_storage_get_info(self->storage, &i);
	storages_end(&self, 1);
	if (r < 0)
		return raise_error(r);
	return Py_BuildValue("{s:s,s:K,s:K,s:K,s:K,s:O,s:O}", "state",
	                     i.state < 4 ? states[i.state] : "?", "sharers",
	                     (unsigned long long)i.sharers, "mappings",
	                     (unsigned long long)i.mappings, "bytes_own",
	                     (unsigned long long)i.bytes_own, "bytes_written_back",
	                     (unsigned long long)i.bytes_written_back, "frozen",
	                     i.frozen ? Py_True : Py_False, "transparent",
	                     i.flags & COW_STORAGE_TRANSPARENT ? Py_True
	                                                       : Py_False);
}

static PyObject *storage_export(PyObject *object, PyObject *args)
{
	StorageObject *self = (StorageObject *)object;
	struct cow_storage *s;
	unsigned mode;
	uint64_t offset;
	int fd, r;

	if (!PyArg_ParseTuple(args, "I:export", &mode))
		return NULL;
	storages_begin(&self, 1);
	s = storage_to_send(self, mode);
	if (!s) {
		storages_end(&self, 1);
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS
	r = cow_storage_export(s, (enum cow_share_mode)mode, &fd, &offset);
	(void)cow_storage_unref(s);
	Py_END_ALLOW_THREADS
	if (r >= 0 && mode == COW_SHARE_ALIAS)
		__atomic_store_n(&self->kind, KIND_ALIAS, __ATOMIC_RELAXED);
	storages_end(&self, 1);
	if (r < 0)
		return raise_error(r);
	return Py_BuildValue("(iK)", fd, (unsigned long long)offset);
}

static PyObject *storage_save(PyObject *object, PyObject *args,
                              PyObject *kwargs)
{
	static char *names[] = {"path", "offset", "flags", NULL};
	StorageObject *self = (StorageObject *)object;
	struct cow_storage *s = self->storage;
	unsigned long long offset = 0;
	unsigned flags = 0;
	PyObject *path;
	int r, fd;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|KI:save", names,
	                                 &path, &offset, &flags))
		return NULL;
	if (PyLong_Check(path)) {
		fd = PyObject_AsFileDescriptor(path);
		if (fd < 0)
			return NULL;
		storages_begin(&self, 1);
		Py_BEGIN_ALLOW_THREADS
		r = cow_storage_save_fd(s, fd, offset, flags, NULL);
		Py_END_ALLOW_THREADS
		storages_end(&self, 1);
	} else {
		PyObject *bytes;

		if (!PyUnicode_FSConverter(path, &bytes))
			return NULL;
		storages_begin(&self, 1);
		Py_BEGIN_ALLOW_THREADS
		r = cow_storage_save(s, PyBytes_AsString(bytes), offset, flags,
		                     NULL);
		Py_END_ALLOW_THREADS
		storages_end(&self, 1);
		Py_DECREF(bytes);
	}
	if (r < 0)
		return raise_error(r);
	Py_RETURN_NONE;
}

static PyObject *storage_repr(PyObject *object)
{
	StorageObject *self = (StorageObject *)object;
	PyObject *kind = get_kind(object, NULL), *text;

	if (!kind)
		return NULL;
	/* The id tells a clone from its source. */
	text = PyUnicode_FromFormat("<cowshed.Storage %p of %zd bytes, %U%s>",
	                            (void *)self->storage, storage_length(object), kind,
	                            self->readonly ? ", read-only" : "");
	Py_DECREF(kind);
	return text;
}

static PyMethodDef methods[] = {
	{"clone", (PyCFunction)(void (*)(void))storage_clone,
         METH_VARARGS | METH_KEYWORDS,
         "clone(lazy=True, *, readonly=False)\n--\n\n"
         "Returns another storage with the same bytes.\n\n"
         "lazy: both share pages; the kernel copies a page at its first write. Small or "
         "foreign memory is copied at once. readonly: of the clone. MemoryError."},
	{"info", storage_info, METH_NOARGS,
         "info()\n--\n\n"
         "Returns what the storage shares, as a dict.\n\n"
         "state: 'owned', 'lazy', 'view' or 'foreign'. sharers: storages that read its "
         "bytes, this one too. mappings: how many it has. bytes_own: bytes of pages that "
         "only it has. bytes_written_back: bytes of copied pages that were written back to "
         "shared memory so far. frozen, transparent: True or False."},
	{"export", storage_export, METH_VARARGS,
         "export(mode)\n--\n\n"
         "Returns (descriptor, offset), for a protocol of the program; see import_fd().\n\n"
         "The caller closes the descriptor. mode: ALIAS moves the storage there; CLONE "
         "and SEALED give a sealed memfd."},
	{"save", (PyCFunction)(void (*)(void))storage_save,
         METH_VARARGS | METH_KEYWORDS,
         "save(path_or_fd, offset=0, flags=0)\n--\n\n"
         "Writes the bytes of this moment to a file, without the GIL.\n\n"
         "A descriptor stays the caller's. flags: SAVE_SYNC, SAVE_ATOMIC, SAVE_TRUNCATE, "
         "IO_DIRECT. OSError: as from write()."},
	{"__dlpack__", (PyCFunction)(void (*)(void))storage_dlpack,
         METH_VARARGS | METH_KEYWORDS,
         "__dlpack__(*, stream=None, max_version=None, dl_device=None, "
         "copy=None)\n--\n\n"
         "Returns the bytes as a DLPack capsule: a one-dimensional array of uint8.\n\n"
         "copy: True gives a lazy clone. BufferError: a device other than the CPU, or a "
         "read-only storage without max_version of 1 or more."},
	{"__dlpack_device__", storage_dlpack_device, METH_NOARGS,
         "__dlpack_device__()\n--\n\nReturns (1, 0): the CPU."},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
	{Py_tp_dealloc, storage_dealloc},
	{Py_tp_repr, storage_repr},
	{Py_tp_methods, methods},
	{Py_tp_getset, getset},
	{Py_tp_members, members},
	{Py_bf_getbuffer, storage_getbuffer},
	{Py_bf_releasebuffer, storage_releasebuffer},
	{Py_sq_length, storage_length},
	{Py_tp_doc,
         "Bytes that are cloned and shared without being copied.\n\n"
         "A program reads and writes them through the buffer protocol: "
         "memoryview(storage), numpy.frombuffer(storage). Functions such as "
         "cowshed.storage_of() and Storage.clone() return storages; the type can't be "
         "called. Any thread may call any method."},
	{0, NULL},
};

static PyType_Spec spec = {
	.name = "cowshed.Storage",
	.basicsize = sizeof(StorageObject),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = slots,
};

int storage_init(PyObject *module)
{
	return objects_init() == 0 ? add_type(module, &spec, &storage_type) : -1;
}
