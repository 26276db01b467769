/* SPDX-License-Identifier: MIT */
/*
 * Write intents, for hooks: see sources.c
 */
#ifndef COWSHED_PYTHON_SOURCES_H
#define COWSHED_PYTHON_SOURCES_H

#include "python/_cowshed/base.h"

/* The function write_intent() of the module; `module` is not used. */
PyObject *write_intent(PyObject *module, PyObject *args);

#endif
