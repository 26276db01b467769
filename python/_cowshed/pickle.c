/* SPDX-License-Identifier: MIT */
/*
 * What of a message is not pickled but sent: told apart fast
 *
 * A pickler asks for the persistent id of every object that it meets, each number in
 * a list. Of these few travel beside the pickle: storages, regions of them, buffers,
 * and bytes that are long. The function that is made here says None to all others,
 * without running any Python, and asks its `callback` about these.
 */
#include "python/_cowshed/module.h"

/* Bytes objects of this size and more travel beside the pickle. */
#define LARGE 65536

/* `self` is (callback, type, type, ...). */
static PyObject *persistent_id(PyObject *self, PyObject *object)
{
	PyObject *type = (PyObject *)Py_TYPE(object);
	int ours = type == (PyObject *)storage_type;

	if (type == (PyObject *)&PyBytes_Type)
		ours = PyBytes_Size(object) >= LARGE;
	else if (type == (PyObject *)&PyByteArray_Type)
		ours = PyByteArray_Size(object) >= LARGE;
	for (Py_ssize_t i = 1; !ours && i < PyTuple_Size(self); i++)
		ours = type == PyTuple_GetItem(self, i);
	if (!ours)
		Py_RETURN_NONE;
	return PyObject_CallFunctionObjArgs(PyTuple_GetItem(self, 0), object,
	                                    NULL);
}

static PyMethodDef persistent_id_def = {
	"persistent_id", persistent_id, METH_O,
	"persistent_id(object)\n--\n\nWhat stands for it in the pickle, or None."};

static PyObject *picker(PyObject *module, PyObject *args)
{
	(void)module;
	if (PyTuple_Size(args) < 1) {
		PyErr_SetString(PyExc_TypeError, "picker() takes a callback");
		return NULL;
	}
	return PyCFunction_New(&persistent_id_def, args);
}

static PyMethodDef functions[] = {
	{"picker", picker, METH_VARARGS,
         "picker(callback, *types)\n--\n\nA pickler's persistent_id(): "
         "callback(object) of storages, bytes and bytearrays of LARGE bytes "
         "and objects of exactly these types; else None."},
	{NULL, NULL, 0, NULL},
};

int pickle_init(PyObject *module)
{
	if (PyModule_AddIntConstant(module, "LARGE", LARGE) < 0)
		return -1;
	return PyModule_AddFunctions(module, functions);
}
