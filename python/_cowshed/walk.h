/* SPDX-License-Identifier: MIT */
/*
 * A walk over all objects that can be reached from others
 *
 * The walk finds containers, breadth first: `found` is the queue and the result, `slots` the set of
 * its addresses. A container is an object that the garbage collector knows, or one of a type in
 * `held`: its attributes are the objects in it.
 *
 * The walk runs no Python code: it calls tp_traverse, and gets attributes of built-in types.
 */
#ifndef COWSHED_WALK_H
#define COWSHED_WALK_H

#include "python/_cowshed/base.h"

#include <stdbool.h>
#include <stdint.h>

enum { TYPES = 256, HELD = 8, NAMES = 8 };

/* What a walk has to know of a type. */
struct type {
	PyTypeObject *type;
	traverseproc traverse; /* NULL: its objects are no containers */
	inquiry is_gc;         /* NULL: all of its objects are */
	bool keeps;            /* its objects keep their reference counts */
};

/* Attributes of a type whose tp_traverse is missing, or does not visit them. */
struct held {
	PyTypeObject *type;
	PyObject *names[NAMES + 1];
	bool is_date; /* has no names, or that of the time zone */
};

struct list {
	PyObject **all;
	size_t n, room;
};

struct walk {
	PyObject *groups;    /* a list of lists of objects: where the walk begins */
	PyObject *apart;     /* a list of objects: where it ends */
	PyTypeObject *frame; /* the type of frames */
	PyTypeObject *kind;  /* the type of what is looked for, or NULL */
	struct list tracked; /* where it begins, too, each with a reference */
	struct list kinds;   /* the objects of `kind`, each with a reference */
	struct list found;
	uintptr_t *slots;
	size_t used, mask;
	bool failed; /* no memory */
	struct type types[TYPES];
	struct held held[HELD + 1];
	unsigned long long objects, bytes, left; /* for freeze.c */
};

/* Finds all containers. Sets `failed` if memory is short. */
void walk_find(struct walk *w);

/* Adds an object to a list. False: no memory. */
bool walk_push(struct list *list, PyObject *op);

/* Visits all objects in a container. */
int walk_visit_in(struct walk *w, PyObject *op, visitproc visit);

struct type *walk_type_of(struct walk *w, PyObject *op);

/* Whether the collector knows an object. */
bool walk_is_collected(struct type *t, PyObject *op);

/* The entry of the object's type, or NULL. */
struct held *walk_held_of(struct walk *w, PyObject *op);

#endif
