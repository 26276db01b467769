/* SPDX-License-Identifier: MIT */
/*
 * cowshed._cowshed: the public headers, as Python objects
 *
 * The module has one type for each handle of the library, and one method for each call.
 * It has no policy: the Python modules decide what an array is, and what is shared how.
 *
 *   Storage    struct cow_storage, with the buffer protocol      storage.c, sources.c, dlpack.c
 *   Group      struct cow_group                                  group.c
 *   Channel    struct cow_channel                                channel.c
 *   Broker     struct cow_broker                                 broker.c
 *   Lock       a mutex in a storage, for several processes       lock.c
 *   stats...   counters, options, features                       stats.c
 *   picker     finds what travels beside a pickle                pickle.c
 *   freeze_objects     makes objects immortal                    freeze.c, walk.c, immortal.c
 *   Hook       gives a write intent before it calls a function   hook.c
 *   Pages      of an operation's result, before they are shown   rewrite.c
 *   count_sites        clones and copies by call site            sites.c
 *   peek, check_file   files that become shorter                 guard.c
 *
 * The module uses the stable ABI of CPython 3.11 (Py_LIMITED_API), so one build serves
 * that version and all later ones. Calls that can take long run without the GIL.
 *
 * A Python without the GIL (3.13t) has no stable ABI, so it gets a build of its own. The module
 * says that it needs no GIL. Its own state has a lock (objects.h). Lists of the caller, which
 * another thread may change, are copied into tuples, or their items are taken with a reference.
 *
 * Errors. -EINVAL, -E2BIG and -ERANGE become ValueError, -ENOMEM becomes MemoryError, -ECHILD (in
 * a forked child, of a device that its parent started) becomes RuntimeError. All
 * others become OSError, or the subclass that Python has for the number. The text is
 * that of cow_last_error().
 */
#ifndef COWSHED_MODULE_H
#define COWSHED_MODULE_H

#define PY_SSIZE_T_CLEAN
#include <pyconfig.h>
#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030b0000
#endif
#include <Python.h>

#include <cowshed-broker.h>
#include <cowshed-file.h>
#include <cowshed-share.h>
#include <cowshed-tensor.h>
#include <cowshed.h>

/* What the bytes of a storage are. storage_address() chooses the call by it. */
enum kind {
	KIND_OWN,   /* this process's; a writable one is exposed at first use */
	KIND_ALIAS, /* other processes write it, too; written in place */
	KIND_FILE,  /* a mapping of a file, or foreign memory; written in place */
};

typedef struct storage_object {
	PyObject_HEAD struct cow_storage *storage;
	struct storage_object *next; /* objects.c has these two */
	PyObject *finder;            /* NULL, or a weak reference on this object */
	PyObject *weakrefs;
	Py_ssize_t exports; /* buffers that are not released */
	unsigned char kind;
	unsigned char readonly;
	unsigned char known; /* the address was given away; never reset */
	int busy; /* 0, or the ID of the process in which a call uses the
	           * storage without the GIL */
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
int freeze_init(PyObject *module);
int hook_init(PyObject *module);
int rewrite_init(PyObject *module);
int sites_init(PyObject *module);
int guard_init(PyObject *module);

/* Around a call that clones or copies, with the GIL and without an exception: counts it for the
 * line of the program that made it. site_begin() returns 0 if sites are not counted. */
uint64_t site_begin(void);
void site_count(uint64_t begin, uint64_t shared, uint64_t copied);

/* Before a large copy of memory: -1 with OSError (ENODATA) if it lies in a mapped file whose last
 * byte is gone. Else 0. */
int guard_check(const void *low, size_t bytes);

/* The function write_intent() of the module; `module` is not used. */
PyObject *write_intent(PyObject *module, PyObject *args);

/* Does an operation on other pages. plan: ((address, nbytes), make, (view, size, stride),
 * operation, args, keywords, after). make(pages) is a tensor on the pages, view(it, size, stride)
 * the result's, operation(*args, **keywords, out=that) writes it, and after() is called when its
 * bytes are shown. No code of Python may run meanwhile: these are functions in C. Returns 1 if it
 * was done, 0 if it has to be done in place, -1 with an exception. */
int rewrite_call(PyObject *plan);

/* Raises the exception for `r`, a -errno of the library. Returns NULL. */
PyObject *raise_error(int r);

/* Raises TypeError: `what`, and the type of `object`. Returns NULL. */
PyObject *raise_type(const char *what, PyObject *object);

/* Makes a type from `spec` and adds it to the module, under the last part of its name.
 * Returns 0, or -1 with an exception. */
int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **ret);

/* Returns the object of a storage, a new reference: the one that exists, or a new one.
 * Takes over the caller's reference on the storage, also on failure. NULL: an exception. */
PyObject *storage_wrap(struct cow_storage *s, enum kind kind, int readonly);

/* A storage whose address is known stays where it is. Until then a call may move it. So
 * each call without the GIL runs between these two functions, which make other threads
 * wait for the storage. A call with several storages passes all of them at once: else two
 * threads could wait for each other. With the GIL; begin releases it while it waits. */
void storages_begin(StorageObject *const *all, Py_ssize_t n);
void storages_end(StorageObject *const *all, Py_ssize_t n);

/* Gives the address of a storage: for writing, or for reading if it is readonly. From this
 * call on the address does not change. Returns 0, or -1 with an exception. */
int storage_address(StorageObject *self, void **ret);

/* Returns the object of a group. Takes over the caller's reference, also on failure. */
PyObject *group_wrap(PyTypeObject *type, struct cow_group *g);

/* Methods of Storage that are in dlpack.c. */
PyObject *storage_dlpack(PyObject *object, PyObject *args, PyObject *kwargs);
PyObject *storage_dlpack_device(PyObject *object, PyObject *unused);

/* Returns the storage to send in place of `self`, a new reference. That is a lazy clone if
 * sending could move the storage although its address is known, else the storage itself.
 * NULL: an exception. The caller calls it between storages_begin() and storages_end(). */
struct cow_storage *storage_to_send(StorageObject *self, unsigned mode);

#endif
