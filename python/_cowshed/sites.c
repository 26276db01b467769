/* SPDX-License-Identifier: MIT */
/*
 * Call sites, for `cowshed profile`: which lines of the program clone and copy
 *
 * The command makes a file of slots, which _sites.py maps and gives to count_sites(). Without
 * that a count is one test of a pointer. A slot is taken by a compare-and-swap, as other
 * processes map the file, too. One that dies while it writes the text leaves a slot that
 * nobody uses any more.
 *
 * A site is the innermost frame that is neither of this package nor of a library that calls it,
 * as PyTorch does before a step of an optimizer.
 */
#include "python/_cowshed/sites.h"

#include <string.h>
#include <time.h>

enum { PROBES = 512, TEXT = 208 };
enum { FREE, TAKEN, READY };

/* As struct cli_site of cli/profile.h. */
struct slot {
	uint32_t state, unused;
	uint64_t calls, shared, copied, ns;
	char text[TEXT];
};

static struct slot *slots;
static size_t count;
static Py_buffer file; /* never released: processes count until they end */
/* A tuple of folders, each with a slash at its end: that of the package, and those of libraries. */
static PyObject *folders;

uint64_t site_begin(void)
{
	struct timespec t;

	if (!slots)
		return 0;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Whether the file of a frame's code is in one of the first `n` folders. -1: an exception. */
static int is_inside(PyObject *frame, Py_ssize_t n)
{
	PyObject *code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
	PyObject *name = PyObject_GetAttrString(code, "co_filename");
	Py_ssize_t r = name ? 0 : -1;

	for (Py_ssize_t i = 0; i < n && r == 0; i++)
		r = PyUnicode_Tailmatch(name, PyTuple_GetItem(folders, i), 0, PY_SSIZE_T_MAX, -1);
	Py_XDECREF(name);
	Py_DECREF(code);
	return (int)r;
}

/* The innermost frame whose file is in none of the first `n` folders: a new reference, or NULL. */
static PyObject *frame_outside(Py_ssize_t n)
{
	PyObject *frame = (PyObject *)PyEval_GetFrame(), *next;
	int inside = 0;

	Py_XINCREF(frame);
	while (frame && frame != Py_None && (inside = is_inside(frame, n)) > 0) {
		next = PyObject_GetAttrString(frame, "f_back");
		Py_DECREF(frame);
		frame = next;
	}
	if (frame == Py_None || inside < 0)
		Py_CLEAR(frame);
	return frame;
}

/* "file:line function" of the caller, its end if it is too long. Returns 0, or -1. */
static int describe(char *ret)
{
	PyObject *frame = frame_outside(PyTuple_Size(folders)), *code, *name, *function;
	PyObject *text = NULL, *bytes = NULL;
	const char *s = NULL;
	Py_ssize_t n = 0;

	if (!frame) /* a thread of the library */
		frame = frame_outside(1);
	if (!frame)
		return -1;
	code = (PyObject *)PyFrame_GetCode((PyFrameObject *)frame);
	name = PyObject_GetAttrString(code, "co_filename");
	function = PyObject_GetAttrString(code, "co_name");
	if (name && function)
		text = PyUnicode_FromFormat("%U:%d %U", name,
		                            PyFrame_GetLineNumber((PyFrameObject *)frame), function);
	/* A name of a file may have bytes that are no text. */
	if (text)
		bytes = PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace");
	if (bytes && PyBytes_AsStringAndSize(bytes, (char **)&s, &n) == 0) {
		s += n >= TEXT ? n - TEXT + 1 : 0;
		while (((unsigned char)*s & 0xc0) == 0x80)
			s++; /* not in the middle of a character */
		strcpy(ret, s);
	}
	n = s ? 0 : -1;
	Py_XDECREF(bytes);
	Py_XDECREF(text);
	Py_XDECREF(function);
	Py_XDECREF(name);
	Py_DECREF(code);
	Py_DECREF(frame);
	return (int)n;
}

static size_t hash(const char *text)
{
	uint64_t h = 14695981039346656037u;

	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * 1099511628211u;
	return (size_t)(h ^ h >> 32);
}

/* The slot of a site: the one that it has, or a free one. NULL: there is none. */
static struct slot *slot_of(const char *text)
{
	size_t at = hash(text);

	for (size_t i = 0; i < PROBES; i++) {
		struct slot *slot = &slots[(at + i) % count];
		uint32_t state = FREE;

		if (__atomic_compare_exchange_n(&slot->state, &state, TAKEN, 0, __ATOMIC_ACQUIRE,
		                                __ATOMIC_ACQUIRE)) {
			strcpy(slot->text, text);
			__atomic_store_n(&slot->state, READY, __ATOMIC_RELEASE);
			return slot;
		}
		if (state == READY && strcmp(slot->text, text) == 0)
			return slot;
	}
	return NULL;
}

void site_count(uint64_t begin, uint64_t shared, uint64_t copied)
{
	char text[TEXT];
	struct slot *slot;
	uint64_t end = begin ? site_begin() : 0;

	if (!end)
		return;
	slot = describe(text) == 0 ? slot_of(text) : NULL;
	PyErr_Clear(); /* a profile changes nothing */
	if (slot) {
		(void)__atomic_add_fetch(&slot->calls, 1, __ATOMIC_RELAXED);
		(void)__atomic_add_fetch(&slot->shared, shared, __ATOMIC_RELAXED);
		(void)__atomic_add_fetch(&slot->copied, copied, __ATOMIC_RELAXED);
		(void)__atomic_add_fetch(&slot->ns, end - begin, __ATOMIC_RELAXED);
	}
}

static PyObject *count_sites(PyObject *module, PyObject *args)
{
	PyObject *folder, *map;

	(void)module;
	if (!PyArg_ParseTuple(args, "OU:count_sites", &map, &folder))
		return NULL;
	if (slots)
		Py_RETURN_NONE;
	if (!folders && !(folders = PyTuple_Pack(1, folder)))
		return NULL;
	if (PyObject_GetBuffer(map, &file, PyBUF_WRITABLE) < 0)
		return NULL;
	if (file.len < (Py_ssize_t)sizeof(struct slot)) {
		PyBuffer_Release(&file);
		PyErr_SetString(PyExc_ValueError, "the file of call sites is too short");
		return NULL;
	}
	count = (size_t)file.len / sizeof(struct slot);
	slots = file.buf;
	Py_RETURN_NONE;
}

static PyObject *skip_sites(PyObject *module, PyObject *args)
{
	PyObject *folder, *one, *more;

	(void)module;
	if (!PyArg_ParseTuple(args, "U:skip_sites", &folder))
		return NULL;
	if (!slots)
		Py_RETURN_NONE;
	one = PyTuple_Pack(1, folder);
	more = one ? PySequence_Concat(folders, one) : NULL;
	Py_XDECREF(one);
	if (!more)
		return NULL;
	folders = more; /* the old one stays: another thread may read it */
	Py_RETURN_NONE;
}

static PyObject *note_site(PyObject *module, PyObject *args)
{
	unsigned long long begin, shared, copied;

	(void)module;
	if (!PyArg_ParseTuple(args, "KKK:note_site", &begin, &shared, &copied))
		return NULL;
	site_count(begin, shared, copied);
	Py_RETURN_NONE;
}

static PyObject *begin_site(PyObject *module, PyObject *unused)
{
	(void)module;
	(void)unused;
	return PyLong_FromUnsignedLongLong(site_begin());
}

static PyMethodDef functions[] = {
	{"count_sites", count_sites, METH_VARARGS,
         "count_sites(map, folder)\n--\n\n"
         "Counts clones and copies by call site in `map`, from now on, for `cowshed profile`.\n\n"
         "folder: frames of files in it are no call sites."},
	{"skip_sites", skip_sites, METH_VARARGS,
         "skip_sites(folder)\n--\n\n"
         "Frames of files in this folder, too, are no call sites."},
	{"begin_site", begin_site, METH_NOARGS,
         "begin_site()\n--\n\n"
         "Returns the time for note_site(); 0 if call sites are not counted."},
	{"note_site", note_site, METH_VARARGS,
         "note_site(begin, shared, copied)\n--\n\n"
         "Counts a call: begin_site() was `begin`, and so many bytes were shared and copied."},
	{NULL, NULL, 0, NULL},
};

int sites_init(PyObject *module)
{
	return PyModule_AddFunctions(module, functions);
}
