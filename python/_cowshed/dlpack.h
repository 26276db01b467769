/* SPDX-License-Identifier: MIT */
/*
 * The methods of Storage for consumers of DLPack
 */
#ifndef COWSHED_PYTHON_DLPACK_H
#define COWSHED_PYTHON_DLPACK_H

#include "python/_cowshed/base.h"

PyObject *storage_dlpack(PyObject *object, PyObject *args, PyObject *kwargs);
PyObject *storage_dlpack_device(PyObject *object, PyObject *unused);

#endif
