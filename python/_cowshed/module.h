/* SPDX-License-Identifier: MIT */
/*
 * cowshed._cowshed: the public headers, as Python objects
 *
 * One type for each handle of the library, a method for each of its calls, and no
 * policy: what an array is, when something is shared and how, is said in Python.
 *
 *   Storage    struct cow_storage, with the buffer protocol      storage.c, sources.c, dlpack.c
 *   Group      struct cow_group                                  group.c
 *   Channel    struct cow_channel                                channel.c
 *   Broker     struct cow_broker                                 broker.c
 *   Lock       a mutex in a storage, for several processes       lock.c
 *   stats...   counters, options, features                       stats.c
 *   picker     what travels beside a pickle                      pickle.c
 *
 * The stable ABI of CPython 3.11 (Py_LIMITED_API): one build for that and all later
 * versions. Calls that can take long are made without the GIL.
 *
 * Errors. -EINVAL is ValueError, -ENOMEM MemoryError, all else OSError or the
 * subclass that goes with its number; the text is cow_last_error()'s.
 */
#ifndef COWSHED_MODULE_H
#define COWSHED_MODULE_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>

#include <cowshed-broker.h>
#include <cowshed-file.h>
#include <cowshed-share.h>
#include <cowshed-tensor.h>
#include <cowshed.h>

/* What a storage's bytes are, and so where its address comes from. */
enum kind {
	KIND_OWN,   /* this process's: writable ones are exposed at first use */
	KIND_ALIAS, /* written by other processes, too: in place */
	KIND_FILE,  /* a mapping of a file, or foreign memory: in place */
};

typedef struct {
	PyObject_HEAD struct cow_storage *storage;
	PyObject *weakrefs;
	Py_ssize_t exports; /* buffers that know its address */
	unsigned char kind;
	unsigned char readonly;
	unsigned char known; /* somebody may have its address, and for ever */
	int busy; /* 0, or the process in which a call has it, without the GIL */
} StorageObject;

typedef struct {
	PyObject_HEAD struct cow_group *group;
} GroupObject;

typedef struct {
	PyObject_HEAD struct cow_broker *broker;
} BrokerObject;

extern PyTypeObject *storage_type, *group_type, *channel_type, *broker_type,
	*lock_type;

int storage_init(PyObject *module);
int sources_init(PyObject *module);
int group_init(PyObject *module);
int channel_init(PyObject *module);
int broker_init(PyObject *module);
int lock_init(PyObject *module);
int stats_init(PyObject *module);
int pickle_init(PyObject *module);

/* Raises what `r`, a -errno of the library, stands for. Returns NULL. */
PyObject *raise_error(int r);

/* Adds a type made from `spec` under its last name. */
int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **ret);

/* The object for a storage, whose reference is taken over, also on failure: the one
 * there is, or a new one. */
PyObject *storage_wrap(struct cow_storage *s, enum kind kind, int readonly);

/* A storage whose address is known stays where it is. Until then a call may move it: calls
 * without the GIL are between these two, so that each has it alone. All of them at once, or
 * two threads would wait for each other. */
void storages_begin(StorageObject *const *all, Py_ssize_t n);
void storages_end(StorageObject *const *all, Py_ssize_t n);

/* Its address, for writing unless it is readonly; stable from here on. 0 or an
 * exception. */
int storage_address(StorageObject *self, void **ret);

/* The object for a group, whose reference is taken over. */
PyObject *group_wrap(PyTypeObject *type, struct cow_group *g);

/* Methods of Storage that are in dlpack.c. */
PyObject *storage_dlpack(PyObject *object, PyObject *args, PyObject *kwargs);
PyObject *storage_dlpack_device(PyObject *object, PyObject *unused);

/* What to send in its place, a new reference: if its address is known and could
 * move, a lazy clone. NULL with an exception. Between begin and end. */
struct cow_storage *storage_to_send(StorageObject *self, unsigned mode);

#endif
