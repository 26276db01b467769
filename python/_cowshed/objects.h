/* SPDX-License-Identifier: MIT */
/*
 * The object of each storage, and the lock of the module's own state
 *
 * There is one object for each storage of the library. The table finds it by the address of the
 * storage. It owns no references.
 *
 * With the GIL that lock guards all of this. A Python without the GIL has a mutex in its place. It
 * is held for some steps of C, never while Python code runs. There another thread may drop the last
 * reference on an object during a search. So each object has a weak reference on itself, by which
 * the search gets a reference or nothing.
 */
#ifndef COWSHED_OBJECTS_H
#define COWSHED_OBJECTS_H

#include "python/_cowshed/module.h"

#ifdef Py_GIL_DISABLED
void state_lock(void);
void state_unlock(void);
#else
static inline void state_lock(void)
{
}
static inline void state_unlock(void)
{
}
#endif

/* Returns a new reference on the object of a storage, or NULL: it has none. Never raises. */
PyObject *objects_find(struct cow_storage *s);

/* Enters an object, unless another thread has entered one of the same storage meanwhile. Returns
 * a new reference on the object that counts. NULL: MemoryError. */
PyObject *objects_enter(StorageObject *self);

/* Removes an object, which was entered or not. The destructor calls it before all else: from then
 * on a search does not find the object. */
void objects_remove(StorageObject *self);

int objects_init(void);

#endif
