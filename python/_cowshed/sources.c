/* SPDX-License-Identifier: MIT */
/*
 * Where storages come from: fresh memory, addresses, descriptors, files
 */
#include "python/_cowshed/guard.h"
#include "python/_cowshed/sites.h"
#include "python/_cowshed/sources.h"
#include "python/_cowshed/storage.h"

#include <errno.h>

static PyObject *new_storage(PyObject *module, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"nbytes", "zero", "strict", "tracked", NULL};
	struct cow_storage_options o = {.size = sizeof(o),
	                                .flags = COW_STORAGE_TRANSPARENT};
	struct cow_storage *s;
	int zero = 0, strict = 0, tracked = 0, r;
	Py_ssize_t n;

	(void)module;
	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "n|$ppp:new", names, &n,
	                                 &zero, &strict, &tracked))
		return NULL;
	if (n < 0) {
		PyErr_Format(PyExc_ValueError,
		             "nbytes is %zd: pass a size of 0 or more", n);
		return NULL;
	}
	if (tracked)
		o.flags &= ~(uint32_t)COW_STORAGE_TRANSPARENT;
	if (zero)
		o.flags |= COW_STORAGE_ZERO;
	if (strict)
		o.flags |= COW_STORAGE_STRICT;
	Py_BEGIN_ALLOW_THREADS
	r = cow_storage_new((size_t)n, &o, &s);
	Py_END_ALLOW_THREADS
	if (r < 0)
		return raise_error(r);
	return storage_wrap(s, KIND_OWN, 0);
}

static PyObject *from_address(PyObject *module, PyObject *args)
{
	unsigned long long address;
	struct cow_storage *s;
	PyObject *object;
	size_t offset;
	int r;

	(void)module;
	if (!PyArg_ParseTuple(args, "K:from_address", &address))
		return NULL;
	r = cow_storage_from_ptr((const void *)(uintptr_t)address, &offset, &s);
	if (r == -ENOENT)
		Py_RETURN_NONE;
	if (r < 0)
		return raise_error(r);
	object = storage_wrap(s, KIND_OWN, 0);
	if (!object)
		return NULL;
	return Py_BuildValue("(Nn)", object, (Py_ssize_t)offset);
}

static PyObject *import_fd(PyObject *module, PyObject *args)
{
	unsigned long long offset;
	struct cow_storage *s;
	Py_ssize_t bytes;
	unsigned mode;
	int fd, r;

	(void)module;
	if (!PyArg_ParseTuple(args, "iKnI:import_fd", &fd, &offset, &bytes,
	                      &mode))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	r = cow_storage_import(fd, offset, (size_t)bytes,
	                       (enum cow_share_mode)mode, &s);
	Py_END_ALLOW_THREADS
	if (r < 0)
		return raise_error(r);
	return storage_wrap(s, mode == COW_SHARE_ALIAS ? KIND_ALIAS : KIND_OWN,
	                    mode == COW_SHARE_SEALED);
}

/* Raises ValueError for what can't be mapped. */
static int check_mapping(Py_ssize_t bytes, int by_path, uint64_t offset)
{
	if (bytes < 0)
		PyErr_Format(PyExc_ValueError,
		             "nbytes is %zd: pass how many bytes to map",
		             bytes);
	else if (by_path && offset)
		PyErr_Format(PyExc_ValueError,
		             "offset is %llu, but a mapping by path begins at "
		             "0: pass a descriptor of the file instead",
		             (unsigned long long)offset);
	else
		return 0;
	return -1;
}

/* Takes a path or a descriptor. Reads the file (`loads`), or maps it. */
static PyObject *from_file(PyObject *args, PyObject *kwargs, int loads)
{
	static char *names[] = {"path",  "offset",   "nbytes",
	                        "flags", "readonly", NULL};
	unsigned long long offset = 0;
	Py_ssize_t bytes = -1;
	struct cow_storage *s;
	unsigned flags = 0;
	PyObject *path, *name = NULL;
	int fd = -1, readonly = 0, r;
	size_t n;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|KnI$p", names, &path,
	                                 &offset, &bytes, &flags, &readonly))
		return NULL;
	if (PyLong_Check(path)) {
		fd = PyObject_AsFileDescriptor(path);
		if (fd < 0)
			return NULL;
	} else if (!PyUnicode_FSConverter(path, &name)) {
		return NULL;
	}
	n = bytes < 0 ? COW_TO_END : (size_t)bytes;
	if (!loads && check_mapping(bytes, name != NULL, offset) < 0) {
		Py_XDECREF(name);
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS
	if (loads)
		r = name ? cow_storage_load(PyBytes_AsString(name), offset, n,
		                            flags, &s)
		         : cow_storage_load_fd(fd, offset, n, flags, &s);
	else
		r = name ? cow_storage_open(PyBytes_AsString(name), n, flags,
		                            &s)
		         : cow_storage_open_fd(fd, offset, n, flags, &s);
	Py_END_ALLOW_THREADS
	Py_XDECREF(name);
	if (r < 0)
		return raise_error(r);
	return storage_wrap(s, loads ? KIND_OWN : KIND_FILE, readonly);
}

static PyObject *load(PyObject *module, PyObject *args, PyObject *kwargs)
{
	(void)module;
	return from_file(args, kwargs, 1);
}

static PyObject *open_file(PyObject *module, PyObject *args, PyObject *kwargs)
{
	(void)module;
	return from_file(args, kwargs, 0);
}

/* The engine copies memory that is not its own, and counts it (COW_FALLBACK_FOREIGN). */
static PyObject *clone_foreign(PyObject *module, PyObject *args)
{
	struct cow_storage *external, *clone;
	struct cow_data_ptr ptr;
	char here; /* the context; without a deleter nothing is disposed of */
	Py_buffer view;
	uint64_t begin = site_begin();
	int r;

	(void)module;
	if (!PyArg_ParseTuple(args, "y*:clone_foreign", &view))
		return NULL;
	if (view.len == 0) {
		PyBuffer_Release(&view);
		PyErr_SetString(PyExc_ValueError,
		                "the buffer has 0 bytes: pass one with bytes");
		return NULL;
	}
	if (guard_check(view.buf, (size_t)view.len) < 0) {
		PyBuffer_Release(&view);
		return NULL;
	}
	ptr = cow_data_ptr_make(view.buf, &here, NULL,
	                        (struct cow_device){COW_DEVICE_CPU, 0});
	Py_BEGIN_ALLOW_THREADS
	r = cow_storage_new_external(&ptr, (size_t)view.len, NULL, &external);
	if (r == 0) {
		r = cow_storage_lazy_clone(external, &clone);
		(void)cow_storage_unref(external);
	}
	Py_END_ALLOW_THREADS
	if (r == 0)
		site_count(begin, 0, (uint64_t)view.len);
	PyBuffer_Release(&view);
	return r < 0 ? raise_error(r) : storage_wrap(clone, KIND_OWN, 0);
}

static PyObject *wrap_all(struct cow_storage **clones, Py_ssize_t n)
{
	PyObject *list = PyList_New(n);

	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *one = list ? storage_wrap(clones[i], KIND_OWN, 0)
		                     : NULL;

		if (list && !one)
			Py_CLEAR(list);
		else if (!list)
			(void)cow_storage_unref(clones[i]);
		else
			(void)PyList_SetItem(list, i, one);
	}
	return list;
}

static PyObject *clone_all(PyObject *module, PyObject *storages)
{
	struct cow_storage **from = NULL, **clones = NULL;
	StorageObject **objects = NULL;
	PyObject *tuple = PySequence_Tuple(storages), *list = NULL;
	Py_ssize_t n;
	uint64_t begin = site_begin(), copied = 0, bytes = 0;
	int r;

	(void)module;
	if (!tuple)
		return NULL;
	n = PyTuple_Size(tuple);
	from = PyMem_Calloc((size_t)n + 1, sizeof(*from));
	clones = PyMem_Calloc((size_t)n + 1, sizeof(*clones));
	objects = PyMem_Calloc((size_t)n + 1, sizeof(*objects));
	if (!from || !clones || !objects) {
		PyErr_NoMemory();
		goto out;
	}
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *one = PyTuple_GetItem(tuple, i);

		if (!PyObject_TypeCheck(one, storage_type)) {
			(void)raise_type("storages must be Storage objects",
			                 one);
			goto out;
		}
		objects[i] = (StorageObject *)one;
		from[i] = objects[i]->storage;
		bytes += cow_storage_bytes(from[i]);
	}
	storages_begin(objects, n);
	Py_BEGIN_ALLOW_THREADS
	r = cow_storages_lazy_clone(from, (size_t)n, &copied, clones);
	Py_END_ALLOW_THREADS
	storages_end(objects, n);
	if (r < 0)
		(void)raise_error(r);
	else
		list = wrap_all(clones, n);
	if (list)
		site_count(begin, bytes - copied, copied);
out:
	PyMem_Free(from);
	PyMem_Free(clones);
	PyMem_Free(objects);
	Py_DECREF(tuple);
	return list ? Py_BuildValue("(NK)", list, (unsigned long long)copied)
	            : NULL;
}

/* Reads a sequence of (address, nbytes). The caller frees the array. NULL: an exception. */
static struct cow_range *ranges_of(PyObject *list, size_t *ret_n)
{
	PyObject *tuple = PySequence_Tuple(list);
	struct cow_range *ranges;
	unsigned long long start;
	Py_ssize_t n, bytes;

	if (!tuple)
		return NULL;
	n = PyTuple_Size(tuple);
	ranges = PyMem_Calloc((size_t)n + 1, sizeof(*ranges));
	if (!ranges)
		(void)PyErr_NoMemory();
	for (Py_ssize_t i = 0; i < n && ranges; i++) {
		PyObject *one = PyTuple_GetItem(tuple, i);
		int good = PyTuple_Check(one);

		if (!good)
			(void)raise_type("ranges must be tuples", one);
		if (!good || !PyArg_ParseTuple(one, "Kn", &start, &bytes)) {
			PyMem_Free(ranges);
			ranges = NULL;
			break;
		}
		ranges[i] = (struct cow_range){ (void *)(uintptr_t)start, (size_t)bytes };
	}
	Py_DECREF(tuple);
	*ret_n = (size_t)n;
	return ranges;
}

PyObject *write_intent(PyObject *module, PyObject *args)
{
	struct cow_range *ranges;
	PyObject *list;
	uint64_t begin = site_begin(), copied = 0;
	int all, r;
	size_t n;

	(void)module;
	if (!PyArg_ParseTuple(args, "Op:write_intent", &list, &all))
		return NULL;
	ranges = ranges_of(list, &n);
	if (!ranges)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	r = cow_write_intent(ranges, n, all ? COW_WRITE_ALL : COW_WRITE_AUTO, &copied);
	Py_END_ALLOW_THREADS
	PyMem_Free(ranges);
	if (r >= 0)
		site_count(begin, 0, copied);
	return r < 0 ? raise_error(r) : PyLong_FromUnsignedLongLong(copied);
}

static PyObject *is_frozen(PyObject *module, PyObject *unused)
{
	(void)module;
	(void)unused;
	return PyBool_FromLong(cow_is_frozen());
}

static PyObject *address_of(PyObject *module, PyObject *object)
{
	PyObject *result;
	Py_buffer view;

	(void)module;
	if (PyObject_GetBuffer(object, &view, PyBUF_ANY_CONTIGUOUS) < 0)
		return NULL;
	result = Py_BuildValue("(KnN)", (unsigned long long)(uintptr_t)view.buf,
	                       view.len, PyBool_FromLong(view.readonly));
	PyBuffer_Release(&view);
	return result;
}

static PyMethodDef functions[] = {
	{"clone_foreign", clone_foreign, METH_VARARGS,
         "clone_foreign(buffer)\n--\n\n"
         "Returns a storage with a copy of the bytes of a contiguous buffer.\n\n"
         "The copy counts in stats()[\"fallbacks\"][\"foreign\"]. ValueError: the buffer "
         "has 0 bytes."},
	{"clone_all", clone_all, METH_O,
         "clone_all(storages)\n--\n\n"
         "Returns ([a lazy clone of each storage], how many bytes were copied).\n\n"
         "Clones the storages one after the other. An error leaves no clone."},
	{"write_intent", write_intent, METH_VARARGS,
         "write_intent(ranges, all)\n--\n\n"
         "Says that (address, nbytes) of each range is about to be rewritten; returns the "
         "bytes copied.\n\n"
         "all: every byte will be written, so the bytes may become anything. Works without "
         "the GIL. ValueError: a range wraps around."},
	{"is_frozen", is_frozen, METH_NOARGS,
         "is_frozen()\n--\n\n"
         "Whether any memory of this process is copy-on-write at this moment."},
	{"address_of", address_of, METH_O,
         "address_of(buffer)\n--\n\n"
         "Returns (address, nbytes, readonly) of a contiguous buffer.\n\n"
         "The address is valid as long as the memory under the buffer lives. "
         "BufferError or ValueError: the buffer is not contiguous."},
	{"new", (PyCFunction)(void (*)(void))new_storage,
         METH_VARARGS | METH_KEYWORDS,
         "new(nbytes, *, zero=False, strict=False, tracked=False)\n--\n\n"
         "Returns a new storage of nbytes bytes.\n\n"
         "zero: its bytes are zero; else unspecified. strict: takes the memory at once, "
         "and MemoryError if there is too little; else pages come when they are touched. "
         "tracked: it may move until its address is asked for."},
	{"from_address", from_address, METH_VARARGS,
         "from_address(address)\n--\n\n"
         "Returns (storage, offset) of the memory at an address.\n\n"
         "None: the memory is not the engine's, or its storage is tracked."},
	{"import_fd", import_fd, METH_VARARGS,
         "import_fd(fd, offset, nbytes, mode)\n--\n\n"
         "Returns the storage that Storage.export() gave as a descriptor and an offset.\n\n"
         "The descriptor stays the caller's. OSError (EBADMSG): it is no sealed memfd. "
         "ValueError: it does not have these bytes."},
	{"load", (PyCFunction)(void (*)(void))load,
         METH_VARARGS | METH_KEYWORDS,
         "load(path_or_fd, offset=0, nbytes=-1, flags=0, *, readonly=False)\n--\n\n"
         "Reads bytes of a file into a new storage, without the GIL.\n\n"
         "nbytes: -1 reads up to the end. flags: IO_DIRECT. A descriptor stays the "
         "caller's. OSError (ENODATA): the file ends before."},
	{"open_file", (PyCFunction)(void (*)(void))open_file,
         METH_VARARGS | METH_KEYWORDS,
         "open_file(path_or_fd, offset=0, nbytes, flags=0, *, readonly=False)\n--\n\n"
         "Maps nbytes bytes of a file as a storage; reads nothing.\n\n"
         "A path is mapped from 0 on; a descriptor, which stays the caller's, from any "
         "offset. flags: FILE_SHARED and the like. If another program makes the file "
         "shorter, the next touch of a missing byte is a SIGBUS. OSError (ENODATA): the "
         "file is too short."},
	{NULL, NULL, 0, NULL},
};

int sources_init(PyObject *module)
{
	return PyModule_AddFunctions(module, functions);
}
