/* SPDX-License-Identifier: MIT */
/*
 * Storage.__dlpack__(): the bytes of a storage for whoever speaks DLPack
 *
 * The Python side of the protocol alone: the library makes the managed tensor
 * (cow_tensor_to_dlpack()). A capsule that nobody took frees it; who takes it renames
 * the capsule. A readonly storage can only be given to who asks for version 1.
 */
#include "python/_cowshed/module.h"

#include <errno.h>

/* As far as a capsule's destructor must know them. */
struct managed {
	char tensor[48];
	void *context;
	void (*deleter)(struct managed *self);
};

struct managed_versioned {
	uint32_t major, minor;
	void *context;
	void (*deleter)(struct managed_versioned *self);
};

#define PLAIN     "dltensor"
#define VERSIONED "dltensor_versioned"

static void plain_unused(PyObject *capsule)
{
	struct managed *m;

	if (!PyCapsule_IsValid(capsule, PLAIN))
		return;
	m = PyCapsule_GetPointer(capsule, PLAIN);
	if (m->deleter)
		m->deleter(m);
}

static void versioned_unused(PyObject *capsule)
{
	struct managed_versioned *m;

	if (!PyCapsule_IsValid(capsule, VERSIONED))
		return;
	m = PyCapsule_GetPointer(capsule, VERSIONED);
	if (m->deleter)
		m->deleter(m);
}

static PyObject *capsule(StorageObject *self, struct cow_storage *s,
                         int versioned, int readonly)
{
	int64_t size = (int64_t)cow_storage_bytes(s);
	struct cow_tensor *t;
	PyObject *result;
	void *managed = NULL;
	void *address;
	int r;

	/* It is known from here on. */
	if (s == self->storage && storage_address(self, &address) < 0)
		return NULL;
	r = cow_tensor_on(s, COW_UINT8, 1, &size, NULL, 0, &t);
	if (r == 0) {
		r = cow_tensor_to_dlpack(t, versioned, readonly, &managed);
		(void)cow_tensor_unref(t);
	}
	if (r < 0)
		return raise_error(r);
	result = versioned ? PyCapsule_New(managed, VERSIONED, versioned_unused)
	                   : PyCapsule_New(managed, PLAIN, plain_unused);
	if (!result && versioned)
		((struct managed_versioned *)managed)->deleter(managed);
	else if (!result)
		((struct managed *)managed)->deleter(managed);
	return result;
}

/* PyArg_ParseTuple() takes tuples alone, and calls all else a fault of the system. */
static int pair(PyObject *object, const char *what)
{
	if (PyTuple_Check(object))
		return 0;
	PyErr_Format(PyExc_TypeError, "%s is a tuple of two numbers", what);
	return -1;
}

/* Asked for another device than the CPU? */
static int wrong_device(PyObject *device)
{
	long type = 1, index = 0;

	if (device == Py_None)
		return 0;
	if (pair(device, "dl_device") < 0)
		return -1;
	if (!PyArg_ParseTuple(device, "ll;dl_device is a pair of numbers",
	                      &type, &index))
		return -1;
	if (type == 1)
		return 0;
	PyErr_SetString(
		PyExc_BufferError,
		"the storage is in the CPU's memory: move it there first");
	return -1;
}

PyObject *storage_dlpack(PyObject *object, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"stream", "max_version", "dl_device", "copy",
	                        NULL};
	StorageObject *self = (StorageObject *)object;
	PyObject *stream = Py_None, *version = Py_None, *device = Py_None,
		 *copy = Py_None, *result;
	int versioned = 0, copies, r;
	struct cow_storage *clone;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__",
	                                 names, &stream, &version, &device,
	                                 &copy))
		return NULL;
	if (wrong_device(device) < 0)
		return NULL;
	if (version != Py_None) {
		int major, minor;

		if (pair(version, "max_version") < 0)
			return NULL;
		if (!PyArg_ParseTuple(version,
		                      "ii;max_version is a pair of numbers",
		                      &major, &minor))
			return NULL;
		versioned = major >= 1;
	}
	copies = PyObject_IsTrue(copy);
	if (copies < 0)
		return NULL;
	if (copies) {
		storages_begin(&self, 1);
		Py_BEGIN_ALLOW_THREADS
		r = cow_storage_lazy_clone(self->storage, &clone);
		Py_END_ALLOW_THREADS
		storages_end(&self, 1);
		if (r < 0)
			return raise_error(r);
		result = capsule(self, clone, versioned, 0);
		(void)cow_storage_unref(clone);
		return result;
	}
	/* Its consumer would not learn that it must not write. */
	if (self->readonly && !versioned) {
		PyErr_SetString(
			PyExc_BufferError,
			"the storage is read-only, which only version 1 of "
			"DLPack can say: pass copy=True");
		return NULL;
	}
	return capsule(self, self->storage, versioned, self->readonly);
}

PyObject *storage_dlpack_device(PyObject *object, PyObject *unused)
{
	(void)object;
	(void)unused;
	return Py_BuildValue("(ii)", 1, 0);
}
