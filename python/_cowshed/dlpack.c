/* SPDX-License-Identifier: MIT */
/*
 * Storage.__dlpack__(): the bytes of a storage for consumers of DLPack
 *
 * This file has only the Python side of the protocol. The library makes the managed tensor
 * (cow_tensor_to_dlpack()). A consumer takes the tensor and renames the capsule; the
 * destructor of a capsule that was not renamed frees the tensor. Only version 1 of the
 * protocol has a flag for read-only memory, so older consumers get no readonly storage.
 */
#include "python/_cowshed/dlpack.h"
#include "python/_cowshed/storage.h"

#include <errno.h>

/* The beginning of DLPack's structures, up to what the destructor of a capsule needs. */
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

	/* The consumer knows the address from here on, so it must not change. */
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

/* PyArg_ParseTuple() raises SystemError for objects that are no tuples. */
static int check_tuple(PyObject *object, const char *what)
{
	if (PyTuple_Check(object))
		return 0;
	(void)raise_type(what, object);
	return -1;
}

/* Returns 0 if the CPU is asked for, else -1 with an exception. */
static int check_device(PyObject *device)
{
	long type = 1, index = 0;

	if (device == Py_None)
		return 0;
	if (check_tuple(device, "dl_device must be a tuple of two integers") <
	    0)
		return -1;
	if (!PyArg_ParseTuple(device,
	                      "ll;dl_device must be a tuple of two integers",
	                      &type, &index))
		return -1;
	if (type == 1)
		return 0;
	PyErr_Format(PyExc_BufferError,
	             "dl_device is (%ld, %ld), but the storage is in CPU "
	             "memory: ask for (1, 0) and copy the result to the device",
	             type, index);
	return -1;
}

/* Returns 1 if the consumer knows version 1 of DLPack, 0 if not, or -1 with an exception. */
static int is_versioned(PyObject *version)
{
	int major, minor;

	if (version == Py_None)
		return 0;
	if (check_tuple(version,
	                "max_version must be a tuple of two integers") < 0)
		return -1;
	if (!PyArg_ParseTuple(version,
	                      "ii;max_version must be a tuple of two integers",
	                      &major, &minor))
		return -1;
	return major >= 1;
}

PyObject *storage_dlpack(PyObject *object, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"stream", "max_version", "dl_device", "copy",
	                        NULL};
	StorageObject *self = (StorageObject *)object;
	PyObject *stream = Py_None, *version = Py_None, *device = Py_None,
		 *copy = Py_None, *result;
	int versioned, copies, r;
	struct cow_storage *clone;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|$OOOO:__dlpack__",
	                                 names, &stream, &version, &device,
	                                 &copy))
		return NULL;
	if (check_device(device) < 0)
		return NULL;
	versioned = is_versioned(version);
	if (versioned < 0)
		return NULL;
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
	/* The consumer would not learn that it must not write. */
	if (self->readonly && !versioned) {
		PyErr_SetString(
			PyExc_BufferError,
			"the storage is read-only, which DLPack can say only "
			"from version 1 on: pass max_version=(1, 0) or "
			"copy=True");
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
