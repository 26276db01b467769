/* SPDX-License-Identifier: MIT */
/*
 * Broker: storages under names and tokens
 *
 * A token is 16 bytes. What the broker knows of a storage is a dict with the members
 * of struct cow_broker_item. A name is any bytes, of which not all are UTF-8: they are
 * a str as in os.fsdecode(), whatever the locale.
 */
#include "python/_cowshed/module.h"

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
	if (n > 0 && (size_t)n < sizeof(item->name) &&
	    !memchr(name, 0, (size_t)n)) {
		memcpy(item->name, name, (size_t)n);
		r = 0;
	} else {
		PyErr_Format(PyExc_ValueError,
		             "a name has 1 to %zu bytes, none of them 0",
		             sizeof(item->name) - 1);
	}
	Py_DECREF(bytes);
	return r;
}

/* A name, or the bytes of a token. */
static int item_key(PyObject *key, struct cow_broker_item *item)
{
	if (PyBytes_Check(key)) {
		if (PyBytes_Size(key) == sizeof(item->token)) {
			memcpy(&item->token, PyBytes_AsString(key),
			       sizeof(item->token));
			return 0;
		}
		PyErr_SetString(PyExc_ValueError, "a token has 16 bytes");
		return -1;
	}
	if (PyUnicode_Check(key))
		return item_name(key, item);
	PyErr_SetString(PyExc_TypeError, "a name (str) or a token (bytes)");
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

/* A buffer, as a storage that lasts as long as its view: a put copies the bytes. */
static struct cow_storage *borrow(PyObject *object, Py_buffer *view)
{
	struct cow_storage *s;
	struct cow_data_ptr ptr;
	int r;

	if (PyObject_GetBuffer(object, view, PyBUF_ANY_CONTIGUOUS) < 0)
		return NULL;
	/* The context is nothing that is to be disposed of. */
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
         "Under a name or a token; None: a new token. Of a buffer: a copy. What it is "
         "kept as, as a dict."},
	{"get", broker_get, METH_O,
         "get(key)\n--\n\nThe storage under a name or a token."},
	{"drop", broker_drop, METH_O,
         "drop(key)\n--\n\nWho has the storage keeps it."},
	{"list", broker_list, METH_NOARGS,
         "list()\n--\n\nWhat this user may see, as dicts."},
	{"refresh", broker_refresh, METH_NOARGS,
         "refresh()\n--\n\nConnects again if the broker was restarted. FileExistsError: a name "
         "or token is somebody else's now."},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
	{Py_tp_new, broker_new},
	{Py_tp_dealloc, broker_dealloc},
	{Py_tp_methods, methods},
	{Py_tp_doc,
         "Broker(address=None, program=None, flags=0, timeout_ms=0)\n"
         "--\n\nA connection to a `cowshed broker`."},
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
