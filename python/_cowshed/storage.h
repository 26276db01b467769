/* SPDX-License-Identifier: MIT */
/*
 * Storages, for the files that use them. storage_type.c has the type that Python sees.
 */
#ifndef COWSHED_PYTHON_STORAGE_H
#define COWSHED_PYTHON_STORAGE_H

#include "python/_cowshed/objects.h"

extern PyTypeObject *storage_type;

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

/* Returns the storage to send in place of `self`, a new reference. That is a lazy clone if
 * sending could move the storage although its address is known, else the storage itself.
 * NULL: an exception. The caller calls it between storages_begin() and storages_end(). */
struct cow_storage *storage_to_send(StorageObject *self, unsigned mode);

#endif
