/* SPDX-License-Identifier: MIT */
/*
 * Hook: stands in the place of a function that rewrites memory
 *
 * A hook asks `plan` for a write intent, gives it, and calls the function. It takes the
 * place of a method of a type, or of a function of a module:
 *
 *   nothing is copy-on-write    it only calls the function
 *   nothing is large            the same: the first argument, or each item of it if that is
 *                               a list, is of other types or has less than `least` bytes
 *   else                        plan(args, names) returns None, or (ranges, all) for
 *                               write_intent(), or what rewrite_call() does instead of the
 *                               function. An Exception of it counts as None.
 *                               args ends with the values of the keywords in `names`
 *
 * An intent with `all` loses the old bytes, so nothing may come between it and the function.
 * A signal handler of Python runs, and may raise, between two steps of Python code. So both
 * calls are made here, in C.
 *
 * Who looks at a hook sees the function: its class, names, documentation, pickle, hash and
 * equality. PyTorch has tables whose keys are functions. It finds the hook there.
 */
#include "python/_cowshed/rewrite.h"
#include "python/_cowshed/sources.h"

#include <stddef.h>
#include <structmember.h>

/* CPython has these since 3.9, and promises since 3.12 that they stay. A call without them
 * makes a tuple, and takes three times as long. */
#if defined(Py_LIMITED_API) && Py_LIMITED_API + 0 < 0x030c0000
typedef PyObject *(*vectorcallfunc)(PyObject *, PyObject *const *, size_t, PyObject *);
PyObject *PyObject_Vectorcall(PyObject *, PyObject *const *, size_t, PyObject *);
PyObject *PyVectorcall_Call(PyObject *, PyObject *, PyObject *);
#define Py_TPFLAGS_HAVE_VECTORCALL (1UL << 11)
#endif
#define ELSEWHERE 7 /* the length of a plan of rewrite_call() */
#define ARGUMENTS_OFFSET ((size_t)1 << (8 * sizeof(size_t) - 1))

typedef struct {
	PyObject_HEAD vectorcallfunc call;
	PyObject *weakrefs;
	PyObject *function;
	PyObject *plan;
	PyObject *types; /* a tuple */
	PyObject *modes; /* counts what would notice a look at an argument */
	Py_ssize_t least;
} HookObject;

static PyTypeObject *hook_type;
static PyObject *nbytes_name;

static int visit_all(PyObject *object, visitproc visit, void *arg)
{
	HookObject *self = (HookObject *)object;

	Py_VISIT(self->function);
	Py_VISIT(self->plan);
	Py_VISIT(self->types);
	Py_VISIT(self->modes);
	Py_VISIT(Py_TYPE(object));
	return 0;
}

static int clear_all(PyObject *object)
{
	HookObject *self = (HookObject *)object;

	Py_CLEAR(self->function);
	Py_CLEAR(self->plan);
	Py_CLEAR(self->types);
	Py_CLEAR(self->modes);
	return 0;
}

static void hook_free(PyObject *object)
{
	PyTypeObject *type = Py_TYPE(object);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	PyObject_GC_UnTrack(object);
	if (((HookObject *)object)->weakrefs)
		PyObject_ClearWeakRefs(object);
	(void)clear_all(object);
	release(object);
	Py_DECREF(type);
}

/* An integer that a look at an argument gives; `otherwise` if it gives none. */
static Py_ssize_t look(PyObject *number, Py_ssize_t otherwise)
{
	Py_ssize_t n = number ? PyLong_AsSsize_t(number) : -1;

	Py_XDECREF(number);
	if (PyErr_Occurred()) {
		PyErr_Clear();
		return otherwise;
	}
	return n;
}

/* Is `one` of `types` and of `least` bytes or more? Never raises. */
static int is_large(const HookObject *self, PyObject *one)
{
	PyObject *type = (PyObject *)Py_TYPE(one);

	for (Py_ssize_t i = 0; i < PyTuple_Size(self->types); i++)
		if (type == PyTuple_GetItem(self->types, i))
			return look(PyObject_GetAttr(one, nbytes_name), 0) >= self->least;
	return 0;
}

/* An item of a list or tuple, with a reference. NULL: another thread has made the list shorter. */
static PyObject *item_of(PyObject *sequence, Py_ssize_t i)
{
	PyObject *item;

	if (PyTuple_CheckExact(sequence))
		return Py_XNewRef(PyTuple_GetItem(sequence, i));
#ifdef Py_GIL_DISABLED
	item = PyList_GetItemRef(sequence, i);
#else
	item = Py_XNewRef(PyList_GetItem(sequence, i));
#endif
	if (!item)
		PyErr_Clear();
	return item;
}

/* Is the first argument, or an item of it, large? */
static int may_matter(const HookObject *self, PyObject *first)
{
	Py_ssize_t n = PyList_CheckExact(first)    ? PyList_Size(first)
	               : PyTuple_CheckExact(first) ? PyTuple_Size(first)
	                                           : -1;

	if (look(PyObject_CallNoArgs(self->modes), 1) != 0)
		return 0;
	if (n < 0)
		return is_large(self, first);
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *one = item_of(first, i);
		int large = one && is_large(self, one);

		Py_XDECREF(one);
		if (large || !one)
			return large;
	}
	return 0;
}

/* Asks the plan. Returns it, Py_None, or NULL with an exception. */
static PyObject *ask(const HookObject *self, PyObject *const *args, Py_ssize_t n,
                     PyObject *names)
{
	PyObject *tuple, *plan;

	if (names) /* their values come last */
		n += PyTuple_Size(names);
	tuple = PyTuple_New(n);
	for (Py_ssize_t i = 0; tuple && i < n; i++)
		if (PyTuple_SetItem(tuple, i, Py_NewRef(args[i])) < 0)
			Py_CLEAR(tuple);
	if (!tuple)
		return NULL;
	plan = PyObject_CallFunctionObjArgs(self->plan, tuple, names ? names : Py_None,
	                                    NULL);
	Py_DECREF(tuple);
	return plan;
}

static PyObject *hook_call(PyObject *object, PyObject *const *args, size_t flags,
                           PyObject *names)
{
	HookObject *self = (HookObject *)object;
	Py_ssize_t n = (Py_ssize_t)(flags & ~ARGUMENTS_OFFSET);
	PyObject *plan, *copied = NULL;

	if (cow_is_frozen() && n && may_matter(self, args[0])) {
		plan = ask(self, args, n, names);
		if (!plan && !PyErr_ExceptionMatches(PyExc_Exception))
			return NULL; /* Ctrl-C, for one */
		if (!plan) { /* a kind of argument that the plan does not know */
			PyErr_Clear();
			plan = Py_NewRef(Py_None);
		}
		/* From here to the function no code of Python may run. */
		if (PyTuple_Check(plan) && PyTuple_Size(plan) == ELSEWHERE) {
			int done = rewrite_call(plan);
			PyObject *place = PyTuple_GetItem(plan, 0);

			place = done ? NULL : Py_BuildValue("((O)i)", place, 0);
			Py_DECREF(plan);
			if (done > 0)
				return Py_NewRef(args[0]);
			if (!place)
				return NULL;
			plan = place; /* a write intent instead */
		}
		if (PyTuple_Check(plan))
			copied = write_intent(NULL, plan);
		if (PyTuple_Check(plan) && !copied)
			PyErr_Clear(); /* the function needs no intent */
		Py_XDECREF(copied);
		Py_DECREF(plan);
	}
	return PyObject_Vectorcall(self->function, args, flags, names);
}

static PyObject *hook_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	PyObject *function, *plan, *types, *modes;
	HookObject *self;
	Py_ssize_t least;

	if (!PyArg_ParseTuple(args, "OOO!On:Hook", &function, &plan, &PyTuple_Type,
	                      &types, &modes, &least))
		return NULL;
	(void)kwargs;
	self = (HookObject *)alloc(type, 0);
	if (!self)
		return NULL;
	self->call = hook_call;
	self->function = Py_NewRef(function);
	self->plan = Py_NewRef(plan);
	self->types = Py_NewRef(types);
	self->modes = Py_NewRef(modes);
	self->least = least;
	return (PyObject *)self;
}

/* A method of an object is that of the function, which knows nothing of the hook. Calls as
 * x.f() don't come here: the flag Py_TPFLAGS_METHOD_DESCRIPTOR says that they need not. */
static PyObject *hook_get(PyObject *object, PyObject *instance, PyObject *owner)
{
	HookObject *self = (HookObject *)object;
	descrgetfunc get;

	if (!instance || instance == Py_None)
		return Py_NewRef(object);
	get = (descrgetfunc)PyType_GetSlot(Py_TYPE(self->function), Py_tp_descr_get);
	return get ? get(self->function, instance, owner) : Py_NewRef(object);
}

static PyObject *hook_attribute(PyObject *object, PyObject *name)
{
	const HookObject *self = (HookObject *)object;

	if (PyUnicode_CompareWithASCIIString(name, "__wrapped__") == 0)
		return Py_NewRef(self->function);
	return PyObject_GetAttr(self->function, name);
}

static PyObject *hook_repr(PyObject *object)
{
	return PyObject_Repr(((HookObject *)object)->function);
}

static Py_hash_t hook_hash(PyObject *object)
{
	return PyObject_Hash(((HookObject *)object)->function);
}

static PyObject *hook_compare(PyObject *object, PyObject *other, int operation)
{
	PyObject *function = ((HookObject *)object)->function;

	if (Py_TYPE(other) == hook_type)
		other = ((HookObject *)other)->function;
	return PyObject_RichCompare(function, other, operation);
}

static PyMemberDef members[] = {
	{"__vectorcalloffset__", T_PYSSIZET, offsetof(HookObject, call), READONLY, NULL},
	{"__weaklistoffset__", T_PYSSIZET, offsetof(HookObject, weakrefs), READONLY, NULL},
	{NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
	{Py_tp_doc, "Hook(function, plan, types, modes, least)\n--\n\n"
                    "Calls plan(args, names of the keywords) before the function.\n\n"
                    "plan: returns None, or the arguments of write_intent(), or an operation that "
                    "writes elsewhere (rewrite.h). It is called "
                    "only while memory is copy-on-write, modes() returns 0, and the first "
                    "argument, or an item of that list, is of exactly one of the types and "
                    "has `least` bytes or more. Else the hook is as the function."},
	{Py_tp_new, (void *)hook_new},
	{Py_tp_dealloc, (void *)hook_free},
	{Py_tp_traverse, (void *)visit_all},
	{Py_tp_clear, (void *)clear_all},
	{Py_tp_call, (void *)PyVectorcall_Call},
	{Py_tp_members, members},
	{Py_tp_descr_get, (void *)hook_get},
	{Py_tp_getattro, (void *)hook_attribute},
	{Py_tp_repr, (void *)hook_repr},
	{Py_tp_hash, (void *)hook_hash},
	{Py_tp_richcompare, (void *)hook_compare},
	{0, NULL},
};

static PyType_Spec spec = {
	.name = "cowshed._cowshed.Hook",
	.basicsize = sizeof(HookObject),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_METHOD_DESCRIPTOR |
	         Py_TPFLAGS_HAVE_VECTORCALL,
	.slots = slots,
};

int hook_init(PyObject *module)
{
	nbytes_name = PyUnicode_InternFromString("nbytes");
	return nbytes_name ? add_type(module, &spec, &hook_type) : -1;
}
