/* SPDX-License-Identifier: MIT */
/*
 * Broker: storages under names and tokens
 *
 * A token has 16 bytes. The methods describe a storage at the broker by a dict with the
 * members of struct cow_broker_item. A name may have bytes that are not UTF-8. Python sees
 * it as a str with surrogate escapes, as from os.fsdecode(), in any locale.
 */
#include "python/_cowshed/broker.h"
#include "python/_cowshed/storage.h"

#include <errno.h>
#include <string.h>

PyTypeObject *broker_type;

static PyObject *broker_new(PyTypeObject *type, PyObject *args,
                            PyObject *kwargs)
{
	static char *names[] = {"address", "program", "flags", "timeout_ms",
	                        NULL};
	struct cow_broker_options o = {.size = sizeof(o)};
	struct cow_broker *b;
	BrokerObject *self;
	int r;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|zzII:Broker", names,
	                                 &o.address, &o.program, &o.flags,
	                                 &o.timeout_ms))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	r = cow_broker_open(&o, &b);
	Py_END_ALLOW_THREADS
	if (r < 0)
		return raise_error(r);
	self = PyObject_New(BrokerObject, type);
	if (!self)
		(void)cow_broker_unref(b);
	else
		self->broker = b;
	return (PyObject *)self;
}

static void broker_dealloc(PyObject *object)
{
	struct cow_broker *b = ((BrokerObject *)object)->broker;
	PyTypeObject *type = Py_TYPE(object);

	Py_BEGIN_ALLOW_THREADS(void)
	cow_broker_unref(b);
	Py_END_ALLOW_THREADS
	PyObject_Free(object);
	Py_DECREF(type);
}

static int item_name(PyObject *key, struct cow_broker_item *item)
{
	PyObject *bytes =
		PyUnicode_AsEncodedString(key, "utf-8", "surrogateescape");
	Py_ssize_t n;
	char *name;
	int r = -1;

	if (!bytes || PyBytes_AsStringAndSize(bytes, &name, &n) < 0) {
		Py_XDECREF(bytes);
		return -1;
	}
	if (n == 0 || (size_t)n >= sizeof(item->name)) {
		PyErr_Format(PyExc_ValueError,
		             "the name %R has %zd bytes: use 1 to %zu bytes",
		             key, n, sizeof(item->name) - 1);
	} else if (memchr(name, 0, (size_t)n)) {
		PyErr_Format(PyExc_ValueError,
		             "the name %R has a zero byte: remove it", key);
	} else {
		memcpy(item->name, name, (size_t)n);
		r = 0;
	}
	Py_DECREF(bytes);
	return r;
}

/* Takes a name (str) or a token (bytes). */
static int item_key(PyObject *key, struct cow_broker_item *item)
{
	if (PyBytes_Check(key)) {
		if (PyBytes_Size(key) == sizeof(item->token)) {
			memcpy(&item->token, PyBytes_AsString(key),
			       sizeof(item->token));
			return 0;
		}
		PyErr_Format(PyExc_ValueError,
		             "the token has %zd bytes: pass the %zu bytes "
		             "that put() gave as \"token\"",
		             PyBytes_Size(key), sizeof(item->token));
		return -1;
	}
	if (PyUnicode_Check(key))
		return item_name(key, item);
	(void)raise_type("key must be a name (str) or a token (bytes)", key);
	return -1;
}

static PyObject *item_dict(const struct cow_broker_item *i)
{
	PyObject *name = PyUnicode_DecodeUTF8(
		i->name, (Py_ssize_t)strlen(i->name), "surrogateescape");

	if (!name)
		return NULL;
	return Py_BuildValue(
		"{s:N,s:y#,s:K,s:I,s:I,s:I,s:I}", "name", name, "token",
		(const char *)&i->token, (Py_ssize_t)sizeof(i->token), "nbytes",
		(unsigned long long)i->bytes, "mode", i->mode, "permissions",
		i->permissions, "uid", i->uid, "flags", i->flags);
}

/* Makes a storage on the memory of a buffer. It is valid until the caller releases the
 * view; a put copies its bytes before that. */
static struct cow_storage *borrow(PyObject *object, Py_buffer *view)
{
	struct cow_storage *s;
	struct cow_data_ptr ptr;
	int r;

	if (PyObject_GetBuffer(object, view, PyBUF_ANY_CONTIGUOUS) < 0)
		return NULL;
	/* The library needs a context; without a deleter it disposes of nothing. */
	ptr = cow_data_ptr_make(view->buf, view, NULL,
	                        (struct cow_device){COW_DEVICE_CPU, 0});
	r = cow_storage_new_external(&ptr, (size_t)view->len, NULL, &s);
	if (r == 0)
		return s;
	PyBuffer_Release(view);
	(void)raise_error(r);
	return NULL;
}

static PyObject *broker_put(PyObject *object, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"storage",     "key",   "mode",
	                        "permissions", "flags", NULL};
	struct cow_broker_item item = {.mode = COW_SHARE_CLONE,
	                               .permissions = 0600};
	Py_buffer view = {.obj = NULL};
	PyObject *source, *key = Py_None;
	StorageObject *self = NULL;
	struct cow_storage *s;
	int r = 0;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OIII:put", names,
	                                 &source, &key, &item.mode,
	                                 &item.permissions, &item.flags))
		return NULL;
	if (key != Py_None && item_key(key, &item) < 0)
		return NULL;
	if (Py_TYPE(source) == storage_type)
		self = (StorageObject *)source;
	if (self)
		storages_begin(&self, 1);
	s = self ? storage_to_send(self, item.mode) : borrow(source, &view);
	if (s) {
		Py_BEGIN_ALLOW_THREADS
		r = cow_broker_put(((BrokerObject *)object)->broker, s, &item);
		(void)cow_storage_unref(s);
		Py_END_ALLOW_THREADS
	}
	if (self)
		storages_end(&self, 1);
	if (!s)
		return NULL;
	if (view.obj)
		PyBuffer_Release(&view);
	return r < 0 ? raise_error(r) : item_dict(&item);
}

static PyObject *broker_get(PyObject *object, PyObject *key)
{
	struct cow_broker_item item = {.bytes = 0}, got;
	struct cow_storage *s;
	int r;

	if (item_key(key, &item) < 0)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	r = cow_broker_get(((BrokerObject *)object)->broker, &item, &s, &got);
	Py_END_ALLOW_THREADS
	if (r < 0)
		return raise_error(r);
	return storage_wrap(s,
	                    got.mode == COW_SHARE_ALIAS ? KIND_ALIAS : KIND_OWN,
	                    got.mode == COW_SHARE_SEALED);
}

static PyObject *broker_drop(PyObject *object, PyObject *key)
{
	struct cow_broker_item item = {.bytes = 0};
	int r;

	if (item_key(key, &item) < 0)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	r = cow_broker_drop(((BrokerObject *)object)->broker, &item);
	Py_END_ALLOW_THREADS
	if (r < 0)
		return raise_error(r);
	Py_RETURN_NONE;
}

static PyObject *broker_release(PyObject *object, PyObject *key)
{
	struct cow_broker_item item = {.bytes = 0};
	int r;

	if (item_key(key, &item) < 0)
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	r = cow_broker_release(((BrokerObject *)object)->broker, &item);
	Py_END_ALLOW_THREADS
	if (r < 0)
		return raise_error(r);
	Py_RETURN_NONE;
}

static PyObject *broker_list(PyObject *object, PyObject *unused)
{
	PyObject *list = PyList_New(0), *dict;
	struct cow_broker_item item;
	uint64_t cursor = 0;
	int r = 1;

	(void)unused;
	while (list && r > 0) {
		Py_BEGIN_ALLOW_THREADS
		r = cow_broker_list(((BrokerObject *)object)->broker, &cursor,
		                    &item);
		Py_END_ALLOW_THREADS
		if (r < 1)
			break;
		dict = item_dict(&item);
		if (!dict || PyList_Append(list, dict) < 0)
			Py_CLEAR(list);
		Py_XDECREF(dict);
	}
	if (r < 0) {
		Py_XDECREF(list);
		return raise_error(r);
	}
	return list;
}

static PyObject *broker_refresh(PyObject *object, PyObject *unused)
{
	int r;

	(void)unused;
	Py_BEGIN_ALLOW_THREADS
	r = cow_broker_refresh(((BrokerObject *)object)->broker);
	Py_END_ALLOW_THREADS
	if (r < 0)
		return raise_error(r);
	Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
	{"put", (PyCFunction)(void (*)(void))broker_put,
         METH_VARARGS | METH_KEYWORDS,
         "put(storage, key=None, mode=CLONE, permissions=0o600, flags=0)\n--\n\n"
         "Gives the broker a storage, or a copy of the bytes of a buffer.\n\n"
         "key: a name (str), a token (16 bytes), or None for a new token. mode: ALIAS, "
         "CLONE or SEALED. permissions: as of a file. flags: EPHEMERAL, ONCE.\n\n"
         "Returns a dict: name, token, nbytes, mode, permissions, uid, flags. "
         "FileExistsError: the name is taken, or the token has another storage. OSError: "
         "the broker does not answer, or its limit is reached (ENOSPC)."},
	{"get", broker_get, METH_O,
         "get(key)\n--\n\n"
         "Returns the storage under a name (str) or a token (bytes), without a copy.\n\n"
         "FileNotFoundError: the broker has none. PermissionError: it is another user's."},
	{"drop", broker_drop, METH_O,
         "drop(key)\n--\n\n"
         "The broker forgets a name or a token. Processes that have the storage keep it."},
	{"release", broker_release, METH_O,
         "release(key)\n--\n\n"
         "Gives back the pages that this process keeps of what it put under a name or a "
         "token.\n\n"
         "The broker keeps it, but does not get it again after a restart. "
         "FileNotFoundError: this process keeps none."},
	{"list", broker_list, METH_NOARGS,
         "list()\n--\n\n"
         "Returns a list of what this user may see, as dicts like that of put().\n\n"
         "The tokens of other connections are zero bytes."},
	{"refresh", broker_refresh, METH_NOARGS,
         "refresh()\n--\n\n"
         "Connects again if the broker was restarted, and registers again what this "
         "process put there.\n\n"
         "FileExistsError: another process took one of the names or tokens; all others "
         "are registered."},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
	{Py_tp_new, broker_new},
	{Py_tp_dealloc, broker_dealloc},
	{Py_tp_methods, methods},
	{Py_tp_doc,
         "Broker(address=None, program=None, flags=0, timeout_ms=0)\n--\n\n"
         "A connection to a `cowshed broker`.\n\n"
         "address: a path, or \"@name\"; None: /run/user/UID/cowshed/broker. program: what "
         "the flag START runs; None: \"cowshed\" of PATH. flags: START, ANY_USER. "
         "timeout_ms: for one answer; 0: 5000.\n\n"
         "Any thread may call any method; calls run without the GIL. A forked child gets a "
         "connection of its own, and holds nothing of what its parent put. OSError: there "
         "is no broker, or it does not answer or does not serve this user."},
	{0, NULL},
};

static PyType_Spec spec = {
	.name = "cowshed._cowshed.Broker",
	.basicsize = sizeof(BrokerObject),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = slots,
};

int broker_init(PyObject *module)
{
	return add_type(module, &spec, &broker_type);
}
