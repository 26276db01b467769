/* SPDX-License-Identifier: MIT */
/*
 * Channel: storages to and from other processes
 *
 * A channel sends and receives over a descriptor. The caller keeps it open, and closes it
 * after the channel is gone. A message is a list of (storage, offset, length, mode) and a
 * note of at most NOTE_MAX bytes. The channel is made for sockets that do not block:
 * BlockingIOError means that the caller has to wait.
 */
#include "python/_cowshed/broker.h"
#include "python/_cowshed/group.h"
#include "python/_cowshed/storage.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

static PyTypeObject *channel_type;

/* The most parcels that one message of the library can have. */
#define PARCELS 1024

typedef struct {
	PyObject_HEAD struct cow_channel *channel;
} ChannelObject;

static PyObject *channel_new(PyTypeObject *type, PyObject *args,
                             PyObject *kwargs)
{
	static char *names[] = {"fd", "group", "flags", NULL};
	PyObject *group = Py_None;
	struct cow_channel *c;
	ChannelObject *self;
	unsigned flags = 0;
	int fd, r;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i|OI:Channel", names,
	                                 &fd, &group, &flags))
		return NULL;
	if (group != Py_None && !PyObject_TypeCheck(group, group_type))
		return raise_type("group must be a Group or None", group);
	r = cow_channel_new(
		fd, group == Py_None ? NULL : ((GroupObject *)group)->group,
		flags, &c);
	if (r < 0)
		return raise_error(r);
	self = PyObject_New(ChannelObject, type);
	if (!self)
		(void)cow_channel_free(c);
	else
		self->channel = c;
	return (PyObject *)self;
}

static void channel_dealloc(PyObject *object)
{
	PyTypeObject *type = Py_TYPE(object);

	(void)cow_channel_free(((ChannelObject *)object)->channel);
	PyObject_Free(object);
	Py_DECREF(type);
}

static void parcels_end(struct cow_parcel *parcels, StorageObject **objects,
                        Py_ssize_t n)
{
	for (Py_ssize_t i = 0; i < n; i++) {
		(void)cow_storage_unref(parcels[i].storage);
		Py_DECREF((PyObject *)objects[i]);
	}
	PyMem_Free(parcels);
	PyMem_Free(objects);
}

/* Reads (storage, offset, length, mode[, strategy]). send_all() sets the storage. */
static int parcel_from(PyObject *item, struct cow_parcel *ret,
                       StorageObject **ret_object)
{
	unsigned long long offset, length;
	unsigned mode, strategy = 0;
	PyObject *storage;

	/* PyArg_ParseTuple() raises SystemError for objects that are no tuples. */
	if (!PyTuple_Check(item)) {
		(void)raise_type("a parcel must be a tuple (storage, offset, "
		                 "length, mode[, strategy])",
		                 item);
		return -1;
	}
	if (!PyArg_ParseTuple(item,
	                      "OKKI|I;a parcel must be (storage, offset, "
	                      "length, mode[, strategy])",
	                      &storage, &offset, &length, &mode, &strategy))
		return -1;
	if (!PyObject_TypeCheck(storage, storage_type)) {
		(void)raise_type("a parcel must begin with a Storage", storage);
		return -1;
	}
	*ret = (struct cow_parcel){
		.offset = offset,
		.length = length,
		.mode = mode,
		.strategy = strategy,
	};
	Py_INCREF(storage);
	*ret_object = (StorageObject *)storage;
	return 0;
}

/* Returns how many parcels the library took, or -1 with an exception. */
static long send_all(struct cow_channel *c, struct cow_parcel *parcels,
                     StorageObject **objects, Py_ssize_t count,
                     const Py_buffer *note)
{
	Py_ssize_t n = 0;
	long r;

	storages_begin(objects, count);
	for (; n < count; n++) {
		parcels[n].storage =
			storage_to_send(objects[n], parcels[n].mode);
		if (!parcels[n].storage)
			break;
	}
	if (n < count) {
		r = -1;
	} else {
		Py_BEGIN_ALLOW_THREADS
		r = cow_channel_send(c, parcels, (size_t)count, note->buf,
		                     (size_t)note->len);
		Py_END_ALLOW_THREADS
		if (r < 0) {
			(void)raise_error((int)r);
			r = -1;
		}
	}
	storages_end(objects, count);
	return r;
}

static PyObject *channel_send(PyObject *object, PyObject *args)
{
	struct cow_channel *c = ((ChannelObject *)object)->channel;
	struct cow_parcel *parcels;
	StorageObject **objects;
	Py_ssize_t count, n = 0;
	PyObject *list, *tuple;
	Py_buffer note;
	long r = -1;

	if (!PyArg_ParseTuple(args, "O!y*:send", &PyList_Type, &list, &note))
		return NULL;
	/* Another thread may change the list. */
	tuple = PyList_AsTuple(list);
	if (!tuple) {
		PyBuffer_Release(&note);
		return NULL;
	}
	count = PyTuple_Size(tuple);
	parcels = PyMem_Calloc((size_t)count + 1, sizeof(*parcels));
	objects = PyMem_Calloc((size_t)count + 1, sizeof(*objects));
	if (!parcels || !objects) {
		PyErr_NoMemory();
		goto out;
	}
	while (n < count && parcel_from(PyTuple_GetItem(tuple, n), &parcels[n],
	                                &objects[n]) == 0)
		n++;
	if (n < count)
		goto out;
	/* With the GIL: a note alone takes microseconds, which is less than to get the GIL
	 * back from another thread. */
	if (count == 0) {
		r = cow_channel_send(c, parcels, 0, note.buf, (size_t)note.len);
		if (r < 0)
			(void)raise_error((int)r);
	} else {
		r = send_all(c, parcels, objects, count, &note);
	}
out:
	parcels_end(parcels, objects, n);
	Py_DECREF(tuple);
	PyBuffer_Release(&note);
	return r < 0 ? NULL : PyLong_FromLong(r);
}

/* No signal handler of Python runs while this function waits. After an exception of a
 * handler the caller could not tell whether the message was sent. */
static PyObject *channel_flush(PyObject *object, PyObject *args)
{
	struct cow_channel *c = ((ChannelObject *)object)->channel;
	struct pollfd p = {.fd = -1, .events = POLLOUT};
	int milliseconds = 0, r;

	if (!PyArg_ParseTuple(args, "|ii:flush", &p.fd, &milliseconds))
		return NULL;
	/* With the GIL: in the common case nothing is left to send. See channel_send(). */
	r = cow_channel_flush(c);
	if (r == -EAGAIN && milliseconds > 0) {
		Py_BEGIN_ALLOW_THREADS
		(void)poll(&p, 1, milliseconds);
		Py_END_ALLOW_THREADS
		r = cow_channel_flush(c);
	}
	if (r < 0)
		return raise_error(r);
	Py_RETURN_NONE;
}

/* Takes over the caller's references on the storages, also on failure. */
static PyObject *parcels_list(const struct cow_parcel *parcels, long count)
{
	PyObject *list = PyList_New(count);

	for (long i = 0; i < count; i++) {
		const struct cow_parcel *p = &parcels[i];
		PyObject *item = NULL, *storage;

		if (!list) {
			(void)cow_storage_unref(p->storage);
			continue;
		}
		storage = storage_wrap(p->storage,
		                       p->mode == COW_SHARE_ALIAS ? KIND_ALIAS
		                                                  : KIND_OWN,
		                       p->mode == COW_SHARE_SEALED);
		if (storage)
			item = Py_BuildValue("(NKKI)", storage,
			                     (unsigned long long)p->offset,
			                     (unsigned long long)p->length,
			                     p->mode);
		if (!item || PyList_SetItem(list, i, item) < 0)
			Py_CLEAR(list);
	}
	return list;
}

/* Waits for an event of the descriptor, and handles signals meanwhile. Returns 0, or -1
 * with an exception. */
static int wait_for(int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};
	int n, error;

	for (;;) {
		Py_BEGIN_ALLOW_THREADS
		n = poll(&p, 1, -1);
		error = errno;
		Py_END_ALLOW_THREADS
		if (n > 0)
			return 0;
		if (n < 0 && error != EINTR) {
			errno = error;
			(void)PyErr_SetFromErrno(PyExc_OSError);
			return -1;
		}
		if (PyErr_CheckSignals() < 0)
			return -1;
	}
}

static PyObject *received(const struct cow_parcel *parcels, long count,
                          const char *note, size_t note_bytes)
{
	PyObject *list = parcels_list(parcels, count), *bytes;

	if (!list)
		return NULL;
	bytes = PyBytes_FromStringAndSize(note, (Py_ssize_t)note_bytes);
	if (!bytes) {
		Py_DECREF(list);
		return NULL;
	}
	return Py_BuildValue("(NN)", list, bytes);
}

static PyObject *channel_receive(PyObject *object, PyObject *args)
{
	struct cow_channel *c = ((ChannelObject *)object)->channel;
	struct cow_parcel *parcels;
	PyObject *result = NULL;
	size_t note_bytes = 0;
	int fd = -1;
	char *buf;
	long r;

	if (!PyArg_ParseTuple(args, "|i:receive", &fd))
		return NULL;
	parcels = PyMem_Malloc(PARCELS * sizeof(*parcels));
	buf = PyMem_Malloc(COW_NOTE_MAX);
	if (!parcels || !buf) {
		PyErr_NoMemory();
		goto done;
	}
	do {
		Py_BEGIN_ALLOW_THREADS
		r = cow_channel_receive(c, parcels, PARCELS, buf, COW_NOTE_MAX,
		                        &note_bytes);
		Py_END_ALLOW_THREADS
	} while (r == -EAGAIN && fd >= 0 && wait_for(fd, POLLIN) == 0);
	if (r >= 0)
		result = received(parcels, r, buf, note_bytes);
	else if (!PyErr_Occurred())
		(void)raise_error((int)r);
done:
	PyMem_Free(parcels);
	PyMem_Free(buf);
	return result;
}

static PyObject *channel_group(PyObject *object, void *closure)
{
	struct cow_group *g =
		cow_channel_group(((ChannelObject *)object)->channel);

	(void)closure;
	if (!g)
		Py_RETURN_NONE;
	return group_wrap(group_type, g);
}

static PyMethodDef channel_methods[] = {
	{"send", channel_send, METH_VARARGS,
         "send(parcels, note)\n--\n\n"
         "Sends a list of parcels and a note; returns how many parcels were taken.\n\n"
         "A parcel is (storage, offset, length, mode[, strategy]), in bytes. The note is "
         "taken with the last parcel; it has at most NOTE_MAX bytes.\n\n"
         "BlockingIOError: nothing was taken. BrokenPipeError: the peer is gone. "
         "PermissionError: this is a forked child, and the channel its parent's."},
	{"flush", channel_flush, METH_VARARGS,
         "flush(fd=-1, milliseconds=0)\n--\n\n"
         "Sends what the channel has taken and not yet sent.\n\n"
         "Waits for room at the socket `fd` up to so many milliseconds, without the GIL "
         "and without handling signals. BlockingIOError: something is still left."},
	{"receive", channel_receive, METH_VARARGS,
         "receive(fd=-1)\n--\n\n"
         "Receives one message, as (list of parcels, note).\n\n"
         "fd: the socket, to wait there for a message, without the GIL; -1 does not wait. "
         "BlockingIOError: there is no message. BrokenPipeError: the peer is gone, and "
         "all was received."},
	{NULL, NULL, 0, NULL},
};

static PyGetSetDef channel_getset[] = {
	{"group", channel_group, NULL,
         "The group that was given or joined, or None.", NULL},
	{NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot channel_slots[] = {
	{Py_tp_new, channel_new},
	{Py_tp_dealloc, channel_dealloc},
	{Py_tp_methods, channel_methods},
	{Py_tp_getset, channel_getset},
	{Py_tp_doc,
         "Channel(fd, group=None, flags=0)\n--\n\n"
         "Sends and receives storages over a Unix socket.\n\n"
         "fd: a connected socket, SOCK_STREAM or SOCK_SEQPACKET; it stays the caller's, "
         "and is used for nothing else. group: where storages that are sent lie; None: "
         "each in a memfd of its own. flags: JOIN, TAKE_ALIASES, SAME_USER, LABELS.\n\n"
         "A channel is its process's: a forked child gets PermissionError."},
	{0, NULL},
};

static PyType_Spec channel_spec = {
	.name = "cowshed._cowshed.Channel",
	.basicsize = sizeof(ChannelObject),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = channel_slots,
};

/* Sets how this process sends messages, and by which broker. */
static PyObject *set_strategy(PyObject *module, PyObject *args)
{
	PyObject *broker = Py_None;
	unsigned strategy;
	int r;

	(void)module;
	if (!PyArg_ParseTuple(args, "I|O:set_strategy", &strategy, &broker))
		return NULL;
	if (broker != Py_None && !PyObject_TypeCheck(broker, broker_type))
		return raise_type("broker must be a Broker or None", broker);
	r = cow_strategy_set(
		(enum cow_strategy)strategy,
		broker == Py_None ? NULL : ((BrokerObject *)broker)->broker);
	if (r < 0)
		return raise_error(r);
	Py_RETURN_NONE;
}

static PyObject *get_strategy(PyObject *module, PyObject *unused)
{
	(void)module;
	(void)unused;
	return PyLong_FromLong(cow_strategy_get());
}

static PyMethodDef functions[] = {
	{"set_strategy", set_strategy, METH_VARARGS,
         "set_strategy(strategy, broker=None)\n--\n\n"
         "Sets how this process sends storages: FD or BROKER.\n\n"
         "broker: keeps the storages that are sent so; None: the broker of an earlier "
         "call. ValueError: BROKER, and there is none."},
	{"get_strategy", get_strategy, METH_NOARGS,
         "get_strategy()\n--\n\nReturns how this process sends storages: FD or BROKER."},
	{NULL, NULL, 0, NULL},
};

int channel_init(PyObject *module)
{
	if (add_type(module, &channel_spec, &channel_type) < 0)
		return -1;
	return PyModule_AddFunctions(module, functions);
}
