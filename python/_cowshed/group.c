/* SPDX-License-Identifier: MIT */
/*
 * Group: members that share memory
 */
#include "python/_cowshed/group.h"
#include "python/_cowshed/storage.h"

#include <string.h>

PyTypeObject *group_type;

PyObject *group_wrap(PyTypeObject *type, struct cow_group *g)
{
	GroupObject *self = PyObject_New(GroupObject, type);

	if (!self)
		(void)cow_group_unref(g);
	else
		self->group = g;
	return (PyObject *)self;
}

static PyObject *group_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = {"fd", NULL};
	struct cow_group *g;
	int fd = -1, r;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|i:Group", names, &fd))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	r = fd < 0 ? cow_group_new(&g) : cow_group_join(fd, &g);
	Py_END_ALLOW_THREADS
	return r < 0 ? raise_error(r) : group_wrap(type, g);
}

static void group_dealloc(PyObject *object)
{
	PyTypeObject *type = Py_TYPE(object);

	(void)cow_group_unref(((GroupObject *)object)->group);
	PyObject_Free(object);
	Py_DECREF(type);
}

static PyObject *group_fd(PyObject *object, PyObject *unused)
{
	int fd, r;

	(void)unused;
	r = cow_group_fd(((GroupObject *)object)->group, &fd);
	return r < 0 ? raise_error(r) : PyLong_FromLong(fd);
}

static PyObject *group_storage(PyObject *object, PyObject *args)
{
	struct cow_storage *s;
	Py_ssize_t bytes;
	unsigned mode;
	int r;

	if (!PyArg_ParseTuple(args, "nI:storage", &bytes, &mode))
		return NULL;
	if (bytes < 0) {
		PyErr_Format(PyExc_ValueError,
		             "nbytes is %zd: pass a size of 0 or more", bytes);
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS
	r = cow_group_storage_new(((GroupObject *)object)->group, (size_t)bytes,
	                          (enum cow_share_mode)mode, &s);
	Py_END_ALLOW_THREADS
	if (r < 0)
		return raise_error(r);
	return storage_wrap(s, mode == COW_SHARE_ALIAS ? KIND_ALIAS : KIND_OWN,
	                    0);
}

/* Copies the bytes once: into the memory from which they are sent. */
static PyObject *group_copy(PyObject *object, PyObject *args)
{
	struct cow_storage *s;
	Py_buffer view;
	unsigned mode;
	void *to;
	int r;

	if (!PyArg_ParseTuple(args, "y*I:copy", &view, &mode))
		return NULL;
	Py_BEGIN_ALLOW_THREADS
	r = cow_group_storage_new(((GroupObject *)object)->group,
	                          (size_t)view.len, (enum cow_share_mode)mode,
	                          &s);
	if (r == 0) {
		r = cow_storage_data_mut(s, &to);
		if (r == 0 && view.len)
			memcpy(to, view.buf, (size_t)view.len);
		if (r < 0)
			(void)cow_storage_unref(s);
	}
	Py_END_ALLOW_THREADS
	PyBuffer_Release(&view);
	if (r < 0)
		return raise_error(r);
	return storage_wrap(s, mode == COW_SHARE_ALIAS ? KIND_ALIAS : KIND_OWN,
	                    0);
}

static PyMethodDef group_methods[] = {
	{"copy", group_copy, METH_VARARGS,
         "copy(buffer, mode)\n--\n\n"
         "Returns a storage in the group's memory with a copy of the buffer's bytes.\n\n"
         "buffer: contiguous. mode: CLONE or ALIAS. Copies without the GIL."},
	{"fd", group_fd, METH_NOARGS,
         "fd()\n--\n\n"
         "Returns a new descriptor by which another process can become a member.\n\n"
         "The caller closes it. A process that has it can read and write all that the "
         "group shares."},
	{"storage", group_storage, METH_VARARGS,
         "storage(nbytes, mode)\n--\n\n"
         "Returns a storage of zeros in the group's memory: sending it copies nothing.\n\n"
         "mode: CLONE or ALIAS; SEALED is a ValueError."},
	{NULL, NULL, 0, NULL},
};

static PyType_Slot group_slots[] = {
	{Py_tp_new, group_new},
	{Py_tp_dealloc, group_dealloc},
	{Py_tp_methods, group_methods},
	{Py_tp_doc,
         "Group(fd=-1)\n--\n\n"
         "A group of processes that trust each other and share memory.\n\n"
         "fd: -1 makes a new group, which needs /proc/self/fd. Else this process joins "
         "the group of the descriptor, which stays the caller's.\n\n"
         "A forked child is a member, too. A process stays a member while it has a Group "
         "or a storage of the group. OSError: EBADMSG, the descriptor is not a group's; "
         "EAGAIN, the group has 256 members and messages already."},
	{0, NULL},
};

static PyType_Spec group_spec = {
	.name = "cowshed._cowshed.Group",
	.basicsize = sizeof(GroupObject),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = group_slots,
};

int group_init(PyObject *module)
{
	return add_type(module, &group_spec, &group_type);
}
