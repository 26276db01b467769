/* SPDX-License-Identifier: MIT */
/*
 * Storages: their objects, and their addresses
 *
 * A program that has a buffer writes it without a call. So the first request for the
 * address of a writable storage makes the storage transparent (cow_storage_expose()): it
 * does not move any more. A readonly storage stays tracked, which costs nothing. Sending it
 * could move it. So after the first request for its address a lazy clone is sent in its
 * place. (The number of buffers does not tell: an array of NumPy holds the object only.)
 *
 * There is one object for each storage of the library (objects.h). A storage that is received
 * twice, or found twice by its address, is the same object.
 */
#include "python/_cowshed/storage.h"

#include <time.h>
#include <unistd.h>

PyTypeObject *storage_type;

PyObject *storage_wrap(struct cow_storage *s, enum kind kind, int readonly)
{
	PyObject *object = objects_find(s);
	StorageObject *self;

	if (object) {
		(void)cow_storage_unref(s);
		return object;
	}
	self = PyObject_New(StorageObject, storage_type);
	if (!self) {
		(void)cow_storage_unref(s);
		return NULL;
	}
	self->storage = s;
	self->next = NULL;
	self->finder = NULL;
	self->weakrefs = NULL;
	self->exports = 0;
	self->known = 0;
	self->busy = 0;
	self->kind = (unsigned char)kind;
	self->readonly = (unsigned char)readonly;
	object = objects_enter(self);
	/* Without memory, or if another thread was faster, the reference on `s` goes with it. */
	Py_DECREF((PyObject *)self);
	return object;
}

/* `known` is set once, and never reset. */
static int is_known(const StorageObject *s)
{
	return __atomic_load_n(&s->known, __ATOMIC_ACQUIRE);
}

/* Not a mutex: in a forked child the thread that would unlock it is missing. */
static int is_busy(const StorageObject *s)
{
	int busy = __atomic_load_n(&s->busy, __ATOMIC_ACQUIRE);

	return busy && !is_known(s) && busy == getpid();
}

void storages_begin(StorageObject *const *all, Py_ssize_t n)
{
	static const struct timespec moment = {.tv_nsec = 100000};
	Py_ssize_t i;

	if (n == 1 && is_known(all[0]))
		return;
	for (;;) {
		state_lock();
		for (i = 0; i < n && !is_busy(all[i]); i++)
			;
		if (i == n)
			break;
		state_unlock();
		Py_BEGIN_ALLOW_THREADS
		(void)nanosleep(&moment, NULL);
		Py_END_ALLOW_THREADS
	}
	for (i = 0; i < n; i++)
		if (!is_known(all[i]))
			__atomic_store_n(&all[i]->busy, getpid(), __ATOMIC_RELAXED);
	state_unlock();
}

void storages_end(StorageObject *const *all, Py_ssize_t n)
{
	for (Py_ssize_t i = 0; i < n; i++)
		__atomic_store_n(&all[i]->busy, 0, __ATOMIC_RELEASE);
}

/*
 * Warns once if clones are copies because the process has as many mappings as the kernel allows
 * it. Without the warning a program that makes many clones only finds its memory gone.
 */
static int warn_of_mappings(void)
{
	static unsigned calls, warned;
	struct cow_stats s = {.size = sizeof(s)};

	if (__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) % 64 ||
	    __atomic_load_n(&warned, __ATOMIC_RELAXED) || cow_stats_get(&s) < 0 ||
	    !s.fallbacks[COW_FALLBACK_MAPPINGS] || __atomic_exchange_n(&warned, 1, __ATOMIC_RELAXED))
		return 0;
	return PyErr_WarnEx(PyExc_RuntimeWarning,
	                    "clones are copies from here on, since this process has too many mappings "
	                    "for the kernel (vm.max_map_count): free clones, or raise the limit, as "
	                    "`cowshed doctor` says",
	                    1);
}

int storage_address(StorageObject *self, void **ret)
{
	int r = 0;

	storages_begin(&self, 1);
	if (self->readonly) {
		*ret = (void *)cow_storage_data(self->storage);
	} else {
		Py_BEGIN_ALLOW_THREADS
		r = self->kind == KIND_OWN
		            ? cow_storage_expose(self->storage, ret)
		            : cow_storage_data_mut(self->storage, ret);
		Py_END_ALLOW_THREADS
	}
	if (r == 0)
		__atomic_store_n(&self->known, 1, __ATOMIC_RELEASE);
	storages_end(&self, 1);
	if (r < 0) {
		(void)raise_error(r);
		return -1;
	}
	return warn_of_mappings();
}

struct cow_storage *storage_to_send(StorageObject *self, unsigned mode)
{
	struct cow_storage *clone;
	int r;

	if (mode == COW_SHARE_ALIAS && self->readonly && is_known(self) &&
	    self->kind == KIND_OWN) {
		PyErr_SetString(PyExc_ValueError,
		                "a read-only storage whose address is known "
		                "can't become an alias: send it as CLONE or "
		                "SEALED");
		return NULL;
	}
	/* Exposed storages and aliases do not move. */
	if (mode == COW_SHARE_ALIAS || !self->readonly || !is_known(self))
		return cow_storage_ref(self->storage);
	r = cow_storage_lazy_clone(self->storage, &clone);
	if (r < 0)
		(void)raise_error(r);
	return r < 0 ? NULL : clone;
}
