/* SPDX-License-Identifier: MIT */
/*
 * Errors and types, for all files of the module
 */
#include "python/_cowshed/base.h"

#include <errno.h>

PyObject *raise_error(int r)
{
	const char *sentence = cow_last_error();
	PyObject *args;

	if (!*sentence)
		sentence = "the library gave no reason for this error";
	if (r == -EINVAL || r == -E2BIG || r == -ERANGE) {
		PyErr_SetString(PyExc_ValueError, sentence);
		return NULL;
	}
	if (r == -ENOMEM) {
		PyErr_SetString(PyExc_MemoryError, sentence);
		return NULL;
	}
	if (r == -ECHILD) { /* this process is one, and has none that it should know */
		PyErr_SetString(PyExc_RuntimeError, sentence);
		return NULL;
	}
	args = Py_BuildValue("(is)", -r, sentence);
	if (args) {
		PyErr_SetObject(PyExc_OSError, args);
		Py_DECREF(args);
	}
	return NULL;
}

PyObject *raise_type(const char *what, PyObject *object)
{
	PyObject *name = PyType_GetName(Py_TYPE(object));

	if (name)
		PyErr_Format(PyExc_TypeError, "%s, not %U", what, name);
	Py_XDECREF(name);
	return NULL;
}

int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **ret)
{
	PyObject *type = PyType_FromSpec(spec);

	if (!type)
		return -1;
	*ret = (PyTypeObject *)type;
	return PyModule_AddType(module, *ret);
}
