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

#include "python/_cowshed/base.h"

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
