/* SPDX-License-Identifier: MIT */
/*
 * picker(): finds the objects that travel beside a pickle
 *
 * A pickler asks for the persistent id of every object, also of each number in a list.
 * Only storages, regions, buffers and long bytes objects travel beside the pickle. The
 * function that picker() makes calls its `callback` for these. It returns None for all
 * other objects and runs no Python code for them.
 */
#include "python/_cowshed/storage.h"

/* Bytes objects and bytearrays of this size and more travel beside the pickle. */
#define LARGE 65536

/* `self` is (callback, type, type, ...). */
static PyObject *persistent_id(PyObject *self, PyObject *object)
{
	PyObject *type = (PyObject *)Py_TYPE(object);
	int beside = type == (PyObject *)storage_type;

	if (type == (PyObject *)&PyBytes_Type)
		beside = PyBytes_Size(object) >= LARGE;
	else if (type == (PyObject *)&PyByteArray_Type)
		beside = PyByteArray_Size(object) >= LARGE;
	for (Py_ssize_t i = 1; !beside && i < PyTuple_Size(self); i++)
		beside = type == PyTuple_GetItem(self, i);
	if (!beside)
		Py_RETURN_NONE;
	return PyObject_CallFunctionObjArgs(PyTuple_GetItem(self, 0), object,
	                                    NULL);
}

static PyMethodDef persistent_id_def = {
	"persistent_id", persistent_id, METH_O,
	"persistent_id(object)\n--\n\n"
	"Returns what stands for the object in the pickle, or None: it is pickled."};

static PyObject *picker(PyObject *module, PyObject *args)
{
	(void)module;
	if (PyTuple_Size(args) < 1) {
		PyErr_SetString(PyExc_TypeError,
		                "picker() got no argument: pass a callback "
		                "first, then types");
		return NULL;
	}
	return PyCFunction_New(&persistent_id_def, args);
}

static PyMethodDef functions[] = {
	{"picker", picker, METH_VARARGS,
         "picker(callback, *types)\n--\n\n"
         "Returns a persistent_id() for a pickler.\n\n"
         "It returns callback(object) for storages, for bytes and bytearrays of LARGE "
         "bytes and more, and for objects of exactly these types. It returns None for all "
         "others."},
	{NULL, NULL, 0, NULL},
};

int pickle_init(PyObject *module)
{
	if (PyModule_AddIntConstant(module, "LARGE", LARGE) < 0)
		return -1;
	return PyModule_AddFunctions(module, functions);
}
