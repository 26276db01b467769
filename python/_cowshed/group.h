/* SPDX-License-Identifier: MIT */
/*
 * Group: struct cow_group
 */
#ifndef COWSHED_PYTHON_GROUP_H
#define COWSHED_PYTHON_GROUP_H

#include "python/_cowshed/base.h"

typedef struct {
	PyObject_HEAD struct cow_group *group;
} GroupObject;

extern PyTypeObject *group_type;

/* Returns the object of a group. Takes over the caller's reference, also on failure. */
PyObject *group_wrap(PyTypeObject *type, struct cow_group *g);

#endif
