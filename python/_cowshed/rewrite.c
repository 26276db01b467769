/* SPDX-License-Identifier: MIT */
/*
 * Rewrite: new pages for memory whose new bytes are computed from the old ones
 *
 * A Rewrite is a writable buffer of the new bytes. end() shows them at the address of the
 * old ones. An object that goes before end() gives them up, so an exception loses nothing.
 */
#include "python/_cowshed/objects.h"

#include <errno.h>
#include <stdbool.h>

typedef struct {
	PyObject_HEAD struct cow_rewrite *rewrite; /* NULL: ended */
	void *at;
	Py_ssize_t bytes;
	Py_ssize_t exports; /* state_lock() guards this and `rewrite` */
} RewriteObject;

static PyTypeObject *rewrite_type;

static void rewrite_free(PyObject *object)
{
	RewriteObject *self = (RewriteObject *)object;
	PyTypeObject *type = Py_TYPE(object);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	if (self->rewrite)
		(void)cow_rewrite_end(self->rewrite, false);
	release(object);
	Py_DECREF(type);
}

static int rewrite_buffer(PyObject *object, Py_buffer *view, int flags)
{
	RewriteObject *self = (RewriteObject *)object;
	bool open;

	state_lock();
	open = self->rewrite != NULL;
	self->exports += open;
	state_unlock();
	if (!open) {
		PyErr_SetString(PyExc_BufferError, "the rewrite has ended");
		view->obj = NULL;
		return -1;
	}
	if (PyBuffer_FillInfo(view, object, self->at, self->bytes, 0, flags) == 0)
		return 0;
	state_lock();
	self->exports--;
	state_unlock();
	return -1;
}

static void rewrite_release(PyObject *object, Py_buffer *view)
{
	(void)view;
	state_lock();
	((RewriteObject *)object)->exports--;
	state_unlock();
}

static PyObject *rewrite_end(PyObject *object, PyObject *unused)
{
	RewriteObject *self = (RewriteObject *)object;
	struct cow_rewrite *rewrite;
	bool used;
	int r;

	(void)unused;
	state_lock();
	rewrite = self->rewrite;
	used = self->exports > 0;
	if (!used)
		self->rewrite = NULL;
	state_unlock();
	if (!rewrite) {
		PyErr_SetString(PyExc_ValueError, "the rewrite has ended already");
		return NULL;
	}
	if (used) {
		PyErr_SetString(PyExc_BufferError,
		                "release the buffers of the new bytes before end()");
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS
	r = cow_rewrite_end(rewrite, true);
	Py_END_ALLOW_THREADS
	if (r < 0)
		return raise_error(r);
	return Py_NewRef(Py_None);
}

static PyObject *rewrite_begin(PyObject *module, PyObject *args)
{
	allocfunc alloc = (allocfunc)PyType_GetSlot(rewrite_type, Py_tp_alloc);
	unsigned long long start;
	struct cow_range range;
	RewriteObject *self;
	Py_ssize_t bytes;
	int r;

	(void)module;
	if (!PyArg_ParseTuple(args, "Kn:rewrite_begin", &start, &bytes))
		return NULL;
	self = (RewriteObject *)alloc(rewrite_type, 0);
	if (!self)
		return NULL;
	range = (struct cow_range){ (void *)(uintptr_t)start, (size_t)bytes };
	self->bytes = bytes;
	Py_BEGIN_ALLOW_THREADS
	r = cow_rewrite_begin(&range, &self->at, &self->rewrite);
	Py_END_ALLOW_THREADS
	if (r == 0)
		return (PyObject *)self;
	self->rewrite = NULL;
	Py_DECREF(self);
	/* What can't be rewritten so can be written in place. */
	return r == -EINVAL ? raise_error(r) : Py_NewRef(Py_None);
}

/* Whether the operation was done, and x has its result. -1: an exception that is not the
 * operation's. */
static int compute(PyObject *pages, PyObject *make, PyObject *like, PyObject *operation,
                   PyObject *args, PyObject *keywords)
{
	PyObject *flat = PyObject_CallFunctionObjArgs(make, pages, NULL), *new = NULL, *result = NULL;
	PyObject *method, *size, *stride;

	if (flat && PyArg_ParseTuple(like, "OOO", &method, &size, &stride))
		new = PyObject_CallFunctionObjArgs(method, flat, size, stride, NULL);
	if (new && PyDict_SetItemString(keywords, "out", new) == 0)
		result = PyObject_Call(operation, args, keywords);
	if (new && PyDict_DelItemString(keywords, "out") < 0)
		PyErr_Clear();
	Py_XDECREF(result);
	Py_XDECREF(new);
	Py_XDECREF(flat);
	if (result)
		return 1;
	if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
		return -1;
	PyErr_Clear(); /* in place it says what is wrong */
	return 0;
}

int rewrite_call(PyObject *plan)
{
	PyObject *make, *like, *operation, *args, *keywords, *after, *pages, *place, *done;
	int r;

	if (!PyArg_ParseTuple(plan, "O!OOOO!O!O", &PyTuple_Type, &place, &make, &like,
	                      &operation, &PyTuple_Type, &args, &PyDict_Type, &keywords, &after))
		return -1;
	pages = rewrite_begin(NULL, place);
	if (!pages)
		return -1;
	r = pages == Py_None ? 0 : compute(pages, make, like, operation, args, keywords);
	if (r > 0) {
		done = rewrite_end(pages, NULL);
		r = done != NULL;
		Py_XDECREF(done);
		done = r ? PyObject_CallNoArgs(after) : NULL;
		Py_XDECREF(done);
		PyErr_Clear(); /* a child of fork() has the old bytes still */
	}
	Py_DECREF(pages);
	return r;
}

static PyMethodDef methods[] = {
	{"end", rewrite_end, METH_NOARGS,
         "end()\n--\n\n"
         "Shows the new bytes at the address of the old ones. Copies nothing. BufferError: a "
         "buffer of the new bytes is in use. ValueError: it has ended already."},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
	{Py_tp_doc, "A rewrite of memory that others read: a buffer of the new bytes."},
	{Py_tp_dealloc, (void *)rewrite_free},
	{Py_tp_methods, methods},
	{Py_bf_getbuffer, (void *)rewrite_buffer},
	{Py_bf_releasebuffer, (void *)rewrite_release},
	{0, NULL},
};

static PyType_Spec spec = {
	.name = "cowshed._cowshed.Rewrite",
	.basicsize = sizeof(RewriteObject),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = slots,
};

static PyMethodDef functions[] = {
	{"rewrite_begin", rewrite_begin, METH_VARARGS,
         "rewrite_begin(address, nbytes)\n--\n\n"
         "Returns a Rewrite of all bytes of a storage: a buffer for the new bytes.\n\n"
         "The old ones stay readable at the address. None: write them in place, since nobody "
         "else reads them, or their pages can't be replaced. ValueError: the range wraps "
         "around."},
	{NULL, NULL, 0, NULL},
};

int rewrite_init(PyObject *module)
{
	return PyModule_AddFunctions(module, functions) < 0
	               ? -1
	               : add_type(module, &spec, &rewrite_type);
}
