/* SPDX-License-Identifier: MIT */
/*
 * freeze_objects(): all objects that can be reached from others become immortal
 *
 * First a walk finds all containers (walk.h). Then each of them is frozen, with the objects in it
 * that are no containers. So the call fails before anything is changed, if memory is short.
 *
 * No Python code runs meanwhile, and no other thread. With the GIL that follows from what is
 * called here: besides the walk, methods of built-in types. Without the GIL all threads are stopped
 * by PyUnstable_GC_VisitObjects(): its first callback does all of it.
 *
 * Some containers keep their reference counts, though the objects in them do not:
 *
 *     with a finalizer   an open file, a generator or an object with __del__ is to end as ever
 *     frames             they run

 * A tuple or frozenset to which neither an object nor a variable refers may be in the making. C
 * code that fills it would fail if it had one more reference. So the walk does not begin at these.
 */
#include "python/_cowshed/immortal.h"
#include "python/_cowshed/walk.h"

#include <dlfcn.h>
#include <stdlib.h>

#ifdef Py_GIL_DISABLED
enum { GC_HEAD = 0 };
#else
enum { GC_HEAD = 16 };
#endif

static void (*visit_objects)(int (*)(PyObject *, void *), void *);

/* __sizeof__() of the types whose objects have memory elsewhere. The first type serves all others. */
static struct {
	PyTypeObject *type;
	PyObject *size_of;
} sizes[] = {
	{&PyBaseObject_Type, NULL}, {&PyUnicode_Type, NULL}, {&PyDict_Type, NULL},
	{&PyList_Type, NULL},       {&PyLong_Type, NULL},    {&PySet_Type, NULL},
	{&PyFrozenSet_Type, NULL},
};
#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static unsigned long long size_of(PyObject *op)
{
	PyObject *size;
	size_t i = SIZES;
	long long n = 0;

	while (--i && Py_TYPE(op) != sizes[i].type)
		;
	if (!i && PyType_IsSubtype(Py_TYPE(op), &PyDict_Type))
		i = 2;
	size = PyObject_CallFunctionObjArgs(sizes[i].size_of, op, NULL);
	if (size)
		n = PyLong_AsLongLong(size);
	Py_DecRef(size);
	PyErr_Clear();
	return n > 0 ? (unsigned long long)n : 0;
}

/* Whether the hash of an object is computed without code of the program. */
static bool has_plain_hash(PyObject *op, int depth)
{
	PyTypeObject *type = Py_TYPE(op);

	if (type == &PyUnicode_Type || type == &PyBytes_Type || type == &PyLong_Type ||
	    type == &PyFloat_Type || type == &PyBool_Type || type == &PyFrozenSet_Type ||
	    type == &PyComplex_Type || op == Py_None)
		return true;
	if (type != &PyTuple_Type || !depth)
		return false;
	for (Py_ssize_t i = 0; i < PyTuple_Size(op); i++)
		if (!has_plain_hash(PyTuple_GetItem(op, i), depth - 1))
			return false;
	return true;
}

/* Makes an object keep its hash, if its type keeps hashes and no code of the program is called. */
static void hash(struct walk *w, PyObject *op)
{
	PyTypeObject *type = Py_TYPE(op);
	struct held *h;
	bool wanted;

	if (type == &PyUnicode_Type || type == &PyBytes_Type || type == &PyFrozenSet_Type) {
		wanted = true;
	} else if (type == &PyTuple_Type) {
		wanted = Py_Version >= 0x030e0000 && has_plain_hash(op, 4);
	} else if ((h = walk_held_of(w, op)) && h->is_date) {
		/* A date with a time zone asks it. */
		PyObject *zone = h->names[0] ? PyObject_GetAttr(op, h->names[0]) : NULL;

		wanted = !zone || zone == Py_None;
		Py_DecRef(zone);
	} else {
		return;
	}
	if (wanted)
		PyObject_Hash(op);
	PyErr_Clear();
}

static void freeze(struct walk *w, PyObject *op)
{
	hash(w, op);
	if (!immortal_set(op)) {
		w->left++;
		return;
	}
	w->objects++;
	w->bytes += size_of(op) + (walk_is_collected(walk_type_of(w, op), op) ? GC_HEAD : 0);
}

static int freeze_in(PyObject *op, void *arg)
{
	struct walk *w = arg;

	if (!immortal_is(op) && !walk_is_collected(walk_type_of(w, op), op) && !walk_held_of(w, op))
		freeze(w, op);
	return 0;
}

static void freeze_found(struct walk *w)
{
	for (Py_ssize_t i = 0; i < PyList_Size(w->groups); i++) {
		PyObject *group = PyList_GetItem(w->groups, i);

		for (Py_ssize_t j = 0; j < PyList_Size(group); j++)
			freeze_in(PyList_GetItem(group, j), w);
	}
	for (size_t i = 0; i < w->found.n; i++) {
		PyObject *op = w->found.all[i];
		struct type *t;

		walk_visit_in(w, op, freeze_in);
		t = walk_type_of(w, op);
		if (immortal_is(op))
			continue;
		if (t->keeps) {
			w->left++;
			continue;
		}
		freeze(w, op);
		if (immortal_is(op) && walk_is_collected(t, op))
			PyObject_GC_UnTrack(op);
	}
}

/* ---- The calls ------------------------------------------------------------ */

/* A callback of PyUnstable_GC_VisitObjects(), as the next one: returns 0 to end it. */
static int add_tracked(PyObject *op, void *arg)
{
	struct walk *w = arg;

	if (Py_TYPE(op) == &PyTuple_Type || Py_TYPE(op) == &PyFrozenSet_Type)
		return 1;
	if (!walk_push(&w->tracked, op)) {
		w->failed = true;
		return 0;
	}
	Py_IncRef(op);
	return 1;
}

static int find_and_freeze(PyObject *unused, void *arg)
{
	struct walk *w = arg;

	(void)unused;
	walk_find(w);
	if (!w->failed && !w->kind)
		freeze_found(w);
	return 0;
}

static void run(struct walk *w, int everything)
{
	if (everything)
		visit_objects(add_tracked, w);
	if (w->failed)
		return;
#ifdef Py_GIL_DISABLED
	visit_objects(find_and_freeze, w);
#else
	find_and_freeze(NULL, w);
#endif
}

static void unref(struct list *list)
{
	for (size_t i = 0; i < list->n; i++)
		Py_DecRef(list->all[i]);
	free(list->all);
}

static PyObject *end(struct walk *w)
{
	PyObject *result = NULL;

	if (w->failed)
		PyErr_NoMemory();
	else if (PyErr_Occurred())
		result = NULL;
	else if (w->kind)
		result = PyList_New((Py_ssize_t)w->kinds.n);
	else
		result = Py_BuildValue("(KKK)", w->objects, w->bytes, w->left);
	for (size_t i = 0; result && w->kind && i < w->kinds.n; i++) {
		Py_IncRef(w->kinds.all[i]);
		PyList_SetItem(result, (Py_ssize_t)i, w->kinds.all[i]);
	}
	for (struct held *h = w->held; h->type; h++)
		for (int i = 0; h->names[i]; i++)
			Py_DecRef(h->names[i]);
	free(w->slots);
	free(w->found.all);
	unref(&w->kinds);
	unref(&w->tracked);
	free(w);
	return result;
}

/* Reads {type: (name of an attribute, ...)}. */
static int read_held(struct walk *w, PyObject *dict)
{
	PyObject *type, *names;
	Py_ssize_t at = 0;
	int n = 0;

	while (PyDict_Next(dict, &at, &type, &names)) {
		struct held *h = &w->held[n++];

		if (n > HELD || !PyType_Check(type) || !PyTuple_Check(names) ||
		    PyTuple_Size(names) > NAMES) {
			PyErr_SetString(PyExc_TypeError, "held is not a dict of few types, with "
			                                 "tuples of few names");
			return -1;
		}
		for (Py_ssize_t i = 0; i < PyTuple_Size(names); i++) {
			h->names[i] = PyTuple_GetItem(names, i);
			Py_IncRef(h->names[i]);
		}
		h->is_date = PyTuple_Size(names) < 2;
		h->type = (PyTypeObject *)type;
	}
	return 0;
}

static PyObject *freeze_objects(PyObject *module, PyObject *args)
{
	PyObject *groups, *apart, *held, *frame, *kind;
	struct walk *w;
	const char *why = "lacks PyUnstable_GC_VisitObjects()";
	int everything;

	(void)module;
	if (!PyArg_ParseTuple(args, "O!O!pO!O!O:freeze_objects", &PyList_Type, &groups,
	                      &PyList_Type, &apart, &everything, &PyDict_Type, &held, &PyType_Type, &frame, &kind))
		return NULL;
	if (!immortal_known(&why) || !visit_objects) {
		PyErr_SetString(PyExc_NotImplementedError, why);
		return NULL;
	}
	w = calloc(1, sizeof(*w));
	if (!w)
		return PyErr_NoMemory();
	w->groups = groups;
	w->apart = apart;
	w->frame = (PyTypeObject *)frame;
	w->kind = kind == Py_None ? NULL : (PyTypeObject *)kind;
	if (read_held(w, held) == 0)
		run(w, everything);
	return end(w);
}

static PyMethodDef functions[] = {
	{"freeze_objects", freeze_objects, METH_VARARGS,
         "freeze_objects(groups, apart, everything, held, frame, kind, /)\n--\n\n"
         "Freezes all objects that can be reached; returns (objects, bytes, left).\n\n"
         "groups: a list of lists of objects. apart: a list of objects that are not frozen, nor "
         "what only they refer to. everything: also from all objects that the "
         "garbage collector knows. held: {type: (attribute, ...)} for types that it does not "
         "know. frame: the type of frames. kind: None; or a type, then nothing is frozen, and "
         "the objects of that type are returned as a list.\n\n"
         "NotImplementedError: this interpreter can't. MemoryError: nothing was frozen."},
	{NULL, NULL, 0, NULL},
};

int freeze_init(PyObject *module)
{
	*(void **)&visit_objects = dlsym(RTLD_DEFAULT, "PyUnstable_GC_VisitObjects");
	for (size_t i = 0; i < SIZES; i++) {
		sizes[i].size_of = PyObject_GetAttrString((PyObject *)sizes[i].type, "__sizeof__");
		if (!sizes[i].size_of)
			return -1;
	}
	return PyModule_AddFunctions(module, functions);
}
