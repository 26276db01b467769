/* SPDX-License-Identifier: MIT */
/*
 * An operation whose result takes the place of its argument: rewrite_call()
 *
 * The pages of the result are a writable buffer, Pages. Those that are not shown are given
 * up with the object, so an operation that fails changes nothing.
 */
#include "python/_cowshed/rewrite.h"

typedef struct {
	PyObject_HEAD struct cow_rewrite *rewrite; /* NULL: ended */
	void *at;
	Py_ssize_t bytes;
} PagesObject;

static PyTypeObject *pages_type;

static void pages_free(PyObject *object)
{
	PagesObject *self = (PagesObject *)object;
	PyTypeObject *type = Py_TYPE(object);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	if (self->rewrite)
		(void)cow_rewrite_end(self->rewrite, false);
	release(object);
	Py_DECREF(type);
}

static int pages_buffer(PyObject *object, Py_buffer *view, int flags)
{
	PagesObject *self = (PagesObject *)object;

	return PyBuffer_FillInfo(view, object, self->at, self->bytes, 0, flags);
}

/* Pages for the bytes at `place`, (address, nbytes). NULL without an exception: they have to be
 * written in place. */
static PyObject *begin(PyObject *place)
{
	allocfunc alloc = (allocfunc)PyType_GetSlot(pages_type, Py_tp_alloc);
	unsigned long long start;
	struct cow_range range;
	PagesObject *self;
	Py_ssize_t bytes;
	int r;

	if (!PyArg_ParseTuple(place, "Kn", &start, &bytes))
		return NULL;
	self = (PagesObject *)alloc(pages_type, 0);
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
	return NULL;
}

/* Shows them. Returns 0 if something still has them, or in a forked child: then nothing has
 * changed. */
static int show(PyObject *object)
{
	PagesObject *self = (PagesObject *)object;
	struct cow_rewrite *rewrite = self->rewrite;
	int r;

	if (Py_REFCNT(object) != 1)
		return 0;
	self->rewrite = NULL;
	Py_BEGIN_ALLOW_THREADS
	r = cow_rewrite_end(rewrite, true);
	Py_END_ALLOW_THREADS
	return r == 0;
}

/* 1: the result is in the pages, and nothing refers to them any more. 0: the operation failed.
 * -1: an exception that is none of its own. */
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
	pages = begin(place);
	if (!pages)
		return PyErr_Occurred() ? -1 : 0;
	r = compute(pages, make, like, operation, args, keywords);
	if (r > 0)
		r = show(pages);
	Py_DECREF(pages);
	if (r <= 0)
		return r;
	done = PyObject_CallNoArgs(after);
	Py_XDECREF(done);
	return done ? 1 : -1;
}

static PyType_Slot slots[] = {
	{Py_tp_doc, "Pages of an operation's result."},
	{Py_tp_dealloc, (void *)pages_free},
	{Py_bf_getbuffer, (void *)pages_buffer},
	{0, NULL},
};

static PyType_Spec spec = {
	.name = "cowshed._cowshed.Pages",
	.basicsize = sizeof(PagesObject),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = slots,
};

int rewrite_init(PyObject *module)
{
	/* Nobody else needs it, so the module has no name for it. */
	pages_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
	return pages_type ? 0 : -1;
}
