/* SPDX-License-Identifier: MIT */
/*
 * Lock: a mutex that is released when its owner dies
 *
 * A Lock is a robust mutex of POSIX threads in an alias storage. The kernel releases it
 * when the thread that holds it ends, in any way. (A semaphore, which multiprocessing uses,
 * stays taken for ever then.) acquire() does not tell that the last owner died. So the data
 * that the lock guards must be valid at every moment.
 *
 * Every process that has the storage can make a Lock on it. The process that makes the
 * first one initializes the bytes before another process gets them.
 *
 * Each thread has a list of the robust mutexes that it holds, and the links of the list lie
 * in the mutexes. The memory of a mutex that is held must not be freed: the next lock of
 * the thread would write into it. So the destructor of a Lock releases a mutex that the
 * calling thread holds (a Pool that ends leaves one in that state). It keeps the storage
 * for ever if another thread of this process holds the mutex.
 */
#include "python/_cowshed/storage.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

static PyTypeObject *lock_type;

typedef struct {
	PyObject_HEAD PyObject *storage;
	pthread_mutex_t *mutex;
	/* Only the thread that holds the mutex writes these two. */
	pthread_t thread; /* acquired it by this object; valid if pid is not 0 */
	pid_t pid;        /* process of the thread; 0: not held by this object */
} LockObject;

#define SLICE_NS 100000000 /* a waiting acquire() handles signals so often */

static int initialize(pthread_mutex_t *m)
{
	pthread_mutexattr_t a;
	int r = pthread_mutexattr_init(&a);

	if (r)
		return r;
	(void)pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	(void)pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	r = pthread_mutex_init(m, &a);
	(void)pthread_mutexattr_destroy(&a);
	return r;
}

/* Returns 0 if a lock can lie at this offset, else -1 with an exception. */
static int check_place(const StorageObject *s, Py_ssize_t offset)
{
	size_t bytes = cow_storage_bytes(s->storage);

	if (s->kind != KIND_ALIAS)
		PyErr_SetString(
			PyExc_ValueError,
			"the storage is not an alias: pass one that "
			"Group.storage(nbytes, ALIAS) made");
	else if (offset < 0 || offset % 64 ||
	         (size_t)offset + sizeof(pthread_mutex_t) > bytes)
		PyErr_Format(PyExc_ValueError,
		             "offset is %zd in a storage of %zu bytes: pass a "
		             "multiple of 64 with %zu bytes behind it",
		             offset, bytes, sizeof(pthread_mutex_t));
	else
		return 0;
	return -1;
}

static PyObject *lock_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"storage", "offset", "new", NULL};
	PyObject *storage;
	StorageObject *s;
	Py_ssize_t offset = 0;
	LockObject *self;
	int is_new = 0, r = 0;
	void *address;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!|np:Lock", names,
	                                 storage_type, &storage, &offset,
	                                 &is_new))
		return NULL;
	s = (StorageObject *)storage;
	if (check_place(s, offset) < 0 || storage_address(s, &address) < 0)
		return NULL;
	self = PyObject_New(LockObject, type);
	if (!self)
		return NULL;
	Py_INCREF(storage);
	self->storage = storage;
	self->pid = 0;
	self->mutex = (void *)((char *)address + offset);
	if (is_new)
		r = initialize(self->mutex);
	if (r) {
		Py_DECREF(self);
		errno = r;
		return PyErr_SetFromErrno(PyExc_OSError);
	}
	return (PyObject *)self;
}

/* Does the calling thread hold the mutex, acquired by this object? The thread is written before the
 * process, so a thread that sees itself here has acquired it last. */
static bool is_mine(LockObject *self)
{
	return __atomic_load_n(&self->pid, __ATOMIC_ACQUIRE) == getpid() &&
	       pthread_equal(__atomic_load_n(&self->thread, __ATOMIC_RELAXED), pthread_self());
}

static void lock_dealloc(PyObject *object)
{
	LockObject *self = (LockObject *)object;
	PyTypeObject *type = Py_TYPE(object);

	/* In a forked child no list contains the mutexes that the parent holds. */
	if (self->pid != getpid() || (is_mine(self) && pthread_mutex_unlock(self->mutex) == 0))
		Py_DECREF(self->storage);
	PyObject_Free(object);
	Py_DECREF(type);
}

static int64_t now_ns(clockid_t clock)
{
	struct timespec t;

	(void)clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Waits at most SLICE_NS, and at most until `end` of the monotonic clock. */
static int wait_slice(pthread_mutex_t *m, int64_t end)
{
	int64_t left = end - now_ns(CLOCK_MONOTONIC), until;
	struct timespec t;

	if (left <= 0)
		return pthread_mutex_trylock(m);
	until = now_ns(CLOCK_REALTIME) + (left < SLICE_NS ? left : SLICE_NS);
	t.tv_sec = (time_t)(until / 1000000000);
	t.tv_nsec = (long)(until % 1000000000);
	return pthread_mutex_timedlock(m, &t);
}

static PyObject *lock_acquire(PyObject *object, PyObject *args,
                              PyObject *kwargs)
{
	static char *names[] = {"block", "timeout", NULL};
	LockObject *self = (LockObject *)object;
	pthread_mutex_t *m = self->mutex;
	PyObject *timeout = Py_None;
	int64_t end = INT64_MAX;
	int block = 1, r;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|pO:acquire", names,
	                                 &block, &timeout))
		return NULL;
	if (timeout != Py_None) {
		double seconds = PyFloat_AsDouble(timeout);

		if (seconds == -1.0 && PyErr_Occurred())
			return NULL;
		if (seconds < 1e9)
			end = now_ns(CLOCK_MONOTONIC) +
			      (int64_t)(seconds > 0 ? seconds * 1e9 : 0);
	}
	r = pthread_mutex_trylock(m);
	while (block && (r == EBUSY || r == ETIMEDOUT)) {
		if (end != INT64_MAX && now_ns(CLOCK_MONOTONIC) >= end)
			break;
		Py_BEGIN_ALLOW_THREADS
		r = wait_slice(m, end);
		Py_END_ALLOW_THREADS
		if (r == ETIMEDOUT && PyErr_CheckSignals() < 0)
			return NULL;
	}
	if (r == EOWNERDEAD)
		r = pthread_mutex_consistent(m);
	if (r == 0) {
		__atomic_store_n(&self->thread, pthread_self(), __ATOMIC_RELAXED);
		__atomic_store_n(&self->pid, getpid(), __ATOMIC_RELEASE);
		Py_RETURN_TRUE;
	}
	if (r == EBUSY || r == ETIMEDOUT)
		Py_RETURN_FALSE;
	errno = r;
	return PyErr_SetFromErrno(PyExc_OSError);
}

static PyObject *lock_release(PyObject *object, PyObject *unused)
{
	LockObject *self = (LockObject *)object;

	(void)unused;
	/* Before the unlock: another thread may acquire it by this object right after. */
	if (is_mine(self))
		__atomic_store_n(&self->pid, 0, __ATOMIC_RELEASE);
	if (pthread_mutex_unlock(self->mutex) == 0)
		Py_RETURN_NONE;
	PyErr_SetString(PyExc_RuntimeError,
	                "this thread does not hold the lock: call release() "
	                "in the thread that acquired it");
	return NULL;
}

static PyObject *lock_enter(PyObject *object, PyObject *unused)
{
	PyObject *none = PyTuple_New(0), *result = NULL;

	(void)unused;
	if (none)
		result = lock_acquire(object, none, NULL);
	Py_XDECREF(none);
	return result;
}

static PyObject *lock_exit(PyObject *object, PyObject *args)
{
	(void)args;
	return lock_release(object, NULL);
}

static PyObject *lock_storage(PyObject *object, void *closure)
{
	PyObject *storage = ((LockObject *)object)->storage;

	(void)closure;
	Py_INCREF(storage);
	return storage;
}

static PyMethodDef methods[] = {
	{"acquire", (PyCFunction)(void (*)(void))lock_acquire,
         METH_VARARGS | METH_KEYWORDS,
         "acquire(block=True, timeout=None)\n--\n\n"
         "Acquires the lock; returns whether it did.\n\n"
         "timeout: seconds; None waits for ever. Waits without the GIL, and handles "
         "signals every 0.1 s. A lock whose owner died is free."},
	{"release", lock_release, METH_NOARGS,
         "release()\n--\n\n"
         "Releases the lock. RuntimeError: the calling thread does not hold it."},
	{"__enter__", lock_enter, METH_NOARGS, NULL},
	{"__exit__", lock_exit, METH_VARARGS, NULL},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
	{"storage", lock_storage, NULL, "The storage in which the lock lies.",
         NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
	{Py_tp_new, lock_new},
	{Py_tp_dealloc, lock_dealloc},
	{Py_tp_methods, methods},
	{Py_tp_getset, getset},
	{Py_tp_doc,
         "Lock(storage, offset=0, new=False)\n--\n\n"
         "A mutex for several processes. The kernel releases it when its owner dies.\n\n"
         "storage: an alias; the lock keeps a reference. offset: in bytes, a multiple of "
         "64. new: initializes the lock, which one process does before others have it."},
	{0, NULL},
};

static PyType_Spec spec = {
	.name = "cowshed._cowshed.Lock",
	.basicsize = sizeof(LockObject),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = slots,
};

int lock_init(PyObject *module)
{
	return add_type(module, &spec, &lock_type);
}
