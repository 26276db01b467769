/* SPDX-License-Identifier: MIT */
/*
 * cowshed._cowshed: the public headers, as Python objects
 *
 * The module has one type for each handle of the library, and one method for each call.
 * It has no policy: the Python modules decide what an array is, and what is shared how.
 *
 *   Storage    struct cow_storage, with the buffer protocol      storage_type.c, storage.c,
 *                                                                sources.c, dlpack.c
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
#ifndef COWSHED_BASE_H
#define COWSHED_BASE_H

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

/* Each adds to the module what its file has. module.c calls them. */
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

/* Raises the exception for `r`, a -errno of the library. Returns NULL. */
PyObject *raise_error(int r);

/* Raises TypeError: `what`, and the type of `object`. Returns NULL. */
PyObject *raise_type(const char *what, PyObject *object);

/* Makes a type from `spec` and adds it to the module, under the last part of its name.
 * Returns 0, or -1 with an exception. */
int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **ret);

#endif
