/* SPDX-License-Identifier: MIT */
/*
 * Finding all objects that can be reached. See walk.h.
 */
#include "python/_cowshed/walk.h"

#include <stdlib.h>

/* ---- The set and the lists ---------------------------------------------- */

bool walk_push(struct list *list, PyObject *op)
{
	if (list->n == list->room) {
		size_t room = list->room ? 2 * list->room : 1024;
		PyObject **moved = realloc(list->all, room * sizeof(*moved));

		if (!moved)
			return false;
		list->all = moved;
		list->room = room;
	}
	list->all[list->n++] = op;
	return true;
}

static uintptr_t *slot_of(uintptr_t *slots, size_t mask, uintptr_t address)
{
	size_t i = (address >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20 & mask;

	while (slots[i] && slots[i] != address)
		i = (i + 1) & mask;
	return &slots[i];
}

static bool grow(struct walk *w)
{
	size_t mask = w->mask ? 2 * w->mask + 1 : 4095;
	uintptr_t *slots = calloc(mask + 1, sizeof(*slots));

	if (!slots)
		return false;
	for (size_t i = 0; w->mask && i <= w->mask; i++)
		if (w->slots[i])
			*slot_of(slots, mask, w->slots[i]) = w->slots[i];
	free(w->slots);
	w->slots = slots;
	w->mask = mask;
	return true;
}

/* Puts an object into the set, and into `list` if that is not NULL and it is new. -1: no memory. */
static int note(struct walk *w, PyObject *op, struct list *list)
{
	uintptr_t *slot;

	if (w->used * 2 >= w->mask && !grow(w))
		goto failed;
	slot = slot_of(w->slots, w->mask, (uintptr_t)op);
	if (!*slot) {
		if (list && !walk_push(list, op))
			goto failed;
		*slot = (uintptr_t)op;
		w->used++;
	}
	return 0;
failed:
	w->failed = true;
	return -1;
}

/* ---- Types --------------------------------------------------------------- */

struct type *walk_type_of(struct walk *w, PyObject *op)
{
	PyTypeObject *type = Py_TYPE(op);
	struct type *t = &w->types[(uintptr_t)type / 64 % TYPES];

	if (t->type == type)
		return t;
	t->type = type;
	t->traverse = NULL;
	t->is_gc = NULL;
	if (PyType_GetFlags(type) & Py_TPFLAGS_HAVE_GC) {
		t->traverse = (traverseproc)PyType_GetSlot(type, Py_tp_traverse);
		t->is_gc = (inquiry)PyType_GetSlot(type, Py_tp_is_gc);
	}
	t->keeps = PyType_GetSlot(type, Py_tp_finalize) || PyType_GetSlot(type, Py_tp_del) ||
	           type == w->frame;
	return t;
}

bool walk_is_collected(struct type *t, PyObject *op)
{
	return t->traverse && (!t->is_gc || t->is_gc(op));
}

struct held *walk_held_of(struct walk *w, PyObject *op)
{
	for (struct held *h = w->held; h->type; h++)
		if (Py_TYPE(op) == h->type)
			return h;
	return NULL;
}

int walk_visit_in(struct walk *w, PyObject *op, visitproc visit)
{
	struct type *t = walk_type_of(w, op);
	struct held *h;

	if (walk_is_collected(t, op) && t->traverse(op, visit, w) < 0)
		return -1;
	h = walk_held_of(w, op);
	for (PyObject **name = h ? h->names : NULL; name && *name; name++) {
		PyObject *in = PyObject_GetAttr(op, *name);
		int r = in ? visit(in, w) : 0;

		/* `op` has a reference of its own, except for what the call has made. */
		Py_DecRef(in);
		PyErr_Clear();
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- Finding ------------------------------------------------------------- */

static int visit(PyObject *op, void *arg)
{
	struct walk *w = arg;

	if (w->kind && PyType_IsSubtype(Py_TYPE(op), w->kind)) {
		size_t before = w->kinds.n;
		int r = note(w, op, &w->kinds);

		if (w->kinds.n > before)
			Py_IncRef(op);
		return r;
	}
	if (walk_is_collected(walk_type_of(w, op), op) || walk_held_of(w, op))
		return note(w, op, &w->found);
	return 0;
}

void walk_find(struct walk *w)
{
	Py_ssize_t n = PyList_Size(w->groups);

	/* The caller frees the lists. */
	note(w, w->groups, NULL);
	note(w, w->apart, NULL);
	for (Py_ssize_t i = 0; i < n; i++)
		note(w, PyList_GetItem(w->groups, i), NULL);
	for (Py_ssize_t i = 0; i < PyList_Size(w->apart); i++)
		note(w, PyList_GetItem(w->apart, i), NULL);
	for (size_t i = 0; i < w->tracked.n && !w->failed; i++)
		visit(w->tracked.all[i], w);
	for (Py_ssize_t i = 0; i < n; i++) {
		PyObject *group = PyList_GetItem(w->groups, i);

		for (Py_ssize_t j = 0; j < PyList_Size(group) && !w->failed; j++)
			visit(PyList_GetItem(group, j), w);
	}
	for (size_t i = 0; i < w->found.n && !w->failed; i++)
		walk_visit_in(w, w->found.all[i], visit);
}
