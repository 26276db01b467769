/* SPDX-License-Identifier: MIT */
/*
 * An operation whose result takes the place of its argument: see rewrite.c
 */
#ifndef COWSHED_PYTHON_REWRITE_H
#define COWSHED_PYTHON_REWRITE_H

#include "python/_cowshed/base.h"

/* Does an operation on other pages. plan: ((address, nbytes), make, (view, size, stride),
 * operation, args, keywords, after). make(pages) is a tensor on the pages, view(it, size, stride)
 * the result's, operation(*args, **keywords, out=that) writes it, and after() is called when its
 * bytes are shown. No code of Python may run meanwhile: these are functions in C. Returns 1 if it
 * was done, 0 if it has to be done in place, -1 with an exception. */
int rewrite_call(PyObject *plan);

#endif
