/* SPDX-License-Identifier: MIT */
/*
 * A hash table of StorageObject, with a list for each value of the hash. See objects.h.
 */
#include "python/_cowshed/objects.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

static StorageObject **table;
static size_t mask, used; /* mask: the number of lists less 1 */

#ifdef Py_GIL_DISABLED

static PyMutex lock;

void state_lock(void)
{
	PyMutex_Lock(&lock);
}

void state_unlock(void)
{
	PyMutex_Unlock(&lock);
}

/* os.fork() stops all other threads, and they stop where they do not have the lock. Threads that
 * wait for it are missing in the child, so it must not wake them. */
static void unlocked_in_child(void)
{
	lock = (PyMutex){0};
}

static int start_lock(void)
{
	return pthread_atfork(NULL, NULL, unlocked_in_child);
}

static int make_finder(StorageObject *self)
{
	self->finder = PyWeakref_NewRef((PyObject *)self, NULL);
	return self->finder ? 0 : -1;
}

/* A new reference, or NULL: the last one was dropped, and the destructor is on its way. */
static PyObject *living(StorageObject *self)
{
	PyObject *object;

	(void)PyWeakref_GetRef(self->finder, &object);
	return object;
}

#else

static int start_lock(void)
{
	return 0;
}

static int make_finder(StorageObject *self)
{
	(void)self;
	return 0;
}

static PyObject *living(StorageObject *self)
{
	return Py_NewRef((PyObject *)self);
}

#endif

static StorageObject **list_of(const struct cow_storage *s)
{
	return &table[((uintptr_t)s >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 32 & mask];
}

static PyObject *find_locked(struct cow_storage *s)
{
	PyObject *object = NULL;

	for (StorageObject *o = *list_of(s); o && !object; o = o->next)
		if (o->storage == s)
			object = living(o);
	return object;
}

PyObject *objects_find(struct cow_storage *s)
{
	PyObject *object;

	state_lock();
	object = find_locked(s);
	state_unlock();
	return object;
}

static void put_locked(StorageObject *self)
{
	StorageObject **list = list_of(self->storage);

	self->next = *list;
	*list = self;
}

/* Doubles the table when there are as many objects as lists. If there is no memory for it, the
 * lists get longer. */
static void grow_locked(void)
{
	StorageObject **old = table, **bigger;
	size_t lists = mask + 1;

	if (used < lists)
		return;
	bigger = calloc(2 * lists, sizeof(*bigger));
	if (!bigger)
		return;
	table = bigger;
	mask = 2 * lists - 1;
	for (size_t i = 0; i < lists; i++)
		for (StorageObject *o = old[i], *next; o; o = next) {
			next = o->next;
			put_locked(o);
		}
	free(old);
}

PyObject *objects_enter(StorageObject *self)
{
	PyObject *object;

	if (make_finder(self) < 0)
		return NULL;
	state_lock();
	object = find_locked(self->storage);
	if (!object) {
		grow_locked();
		put_locked(self);
		used++;
		object = Py_NewRef((PyObject *)self);
	}
	state_unlock();
	return object;
}

void objects_remove(StorageObject *self)
{
	state_lock();
	for (StorageObject **at = list_of(self->storage); *at; at = &(*at)->next)
		if (*at == self) {
			*at = self->next;
			used--;
			break;
		}
	state_unlock();
}

int objects_init(void)
{
	enum { LISTS = 64 };

	table = calloc(LISTS, sizeof(*table));
	if (!table) {
		PyErr_NoMemory();
		return -1;
	}
	mask = LISTS - 1;
	return start_lock() == 0 ? 0 : -1;
}
