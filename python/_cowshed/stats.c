/* SPDX-License-Identifier: MIT */
/*
 * Counters, options, features, numbers
 *
 * stats() returns the counters as a dict, in the order of struct cow_stats. Its last two
 * entries are dicts of the fallbacks that are not 0.
 */
#include "python/_cowshed/base.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#define MEMBER(m)                                 \
	{                                         \
#m, offsetof(struct cow_stats, m) \
	}

static const struct {
	const char *name;
	size_t offset;
} members[] = {
	MEMBER(bytes_live),
	MEMBER(bytes_peak),
	MEMBER(bytes_served),
	MEMBER(bytes_recycled),
	MEMBER(bytes_warm),
	MEMBER(bytes_returned),
	MEMBER(bytes_collapsed),
	MEMBER(blocks_live),
	MEMBER(blocks_served),
	MEMBER(storages_live),
	MEMBER(clones_lazy),
	MEMBER(clones_paged),
	MEMBER(clones_eager),
	MEMBER(materialized_page),
	MEMBER(materialized_copy),
	MEMBER(steals),
	MEMBER(bytes_copied),
	MEMBER(bytes_not_copied),
	MEMBER(forks),
	MEMBER(fork_ns_last),
	MEMBER(fork_ns_max),
	MEMBER(fork_ns_total),
	MEMBER(freezes),
	MEMBER(bytes_frozen),
	MEMBER(thaws),
	MEMBER(bytes_thawed),
	MEMBER(pages_written_back),
	MEMBER(pages_private),
	MEMBER(bytes_shadow_returned),
	MEMBER(bytes_limbo),
	MEMBER(segments),
	MEMBER(mappings),
	MEMBER(helper_starts),
	MEMBER(heal_ns_total),
	MEMBER(heal_wait_ns_max),
	MEMBER(strangers),
	MEMBER(bytes_marked),
	MEMBER(bytes_border_returned),
	MEMBER(bytes_forwarded),
	MEMBER(bytes_inherited),
	MEMBER(blocks_inherited),
};

static int put(PyObject *dict, const char *name, PyObject *value)
{
	int r = value ? PyDict_SetItemString(dict, name, value) : -1;

	Py_XDECREF(value);
	return r;
}

static PyObject *fallbacks(const uint64_t *all)
{
	PyObject *dict = PyDict_New();

	for (int i = 0; dict && i < COW_FALLBACKS; i++) {
		const char *name = cow_fallback_name((enum cow_fallback)i);

		if (all[i] && name &&
		    put(dict, name, PyLong_FromUnsignedLongLong(all[i])) < 0)
			Py_CLEAR(dict);
	}
	return dict;
}

static PyObject *as_dict(const struct cow_stats *s)
{
	PyObject *dict = PyDict_New();

	for (size_t i = 0; dict && i < sizeof(members) / sizeof(members[0]);
	     i++) {
		uint64_t n = *(const uint64_t *)((const char *)s +
		                                 members[i].offset);

		if (put(dict, members[i].name, PyLong_FromUnsignedLongLong(n)) <
		    0)
			Py_CLEAR(dict);
	}
	if (dict && (put(dict, "fallbacks", fallbacks(s->fallbacks)) < 0 ||
	             put(dict, "fallback_bytes", fallbacks(s->fallback_bytes)) < 0))
		Py_CLEAR(dict);
	return dict;
}

static PyObject *stats(PyObject *module, PyObject *args)
{
	struct cow_stats s = {.size = sizeof(s)};
	int pid = 0, r;

	(void)module;
	if (!PyArg_ParseTuple(args, "|i:stats", &pid))
		return NULL;
	r = pid ? cow_stats_read(pid, &s) : cow_stats_get(&s);
	/* No file is missing: the process has no counters. */
	return r < 0 ? raise_error(r == -ENOENT ? -ESRCH : r) : as_dict(&s);
}

static PyObject *trim(PyObject *module, PyObject *unused)
{
	int r;

	(void)module;
	(void)unused;
	Py_BEGIN_ALLOW_THREADS
	r = cow_trim();
	Py_END_ALLOW_THREADS
	return r < 0 ? raise_error(r) : PyBool_FromLong(r);
}

static PyObject *set_option(PyObject *module, PyObject *args)
{
	const char *key, *value;
	int r;

	(void)module;
	if (!PyArg_ParseTuple(args, "ss:set_option", &key, &value))
		return NULL;
	r = cow_option_set(key, value);
	/* Not as OSError: no file is missing, and no device is busy. */
	if (r == -ENOENT || r == -EBUSY) {
		PyErr_SetString(r == -EBUSY ? PyExc_RuntimeError : PyExc_ValueError, cow_last_error());
		return NULL;
	}
	if (r < 0)
		return raise_error(r);
	Py_RETURN_NONE;
}

static PyObject *features(PyObject *module, PyObject *unused)
{
	PyObject *dict = PyDict_New();

	(void)module;
	(void)unused;
	for (int i = 0; dict && i < COW_FEATURES; i++) {
		const char *name, *why;
		int r = cow_feature_probe((enum cow_feature)i, &name, &why);

		if (r >= 0 &&
		    put(dict, name,
		        Py_BuildValue("(Os)", r ? Py_True : Py_False, why)) < 0)
			Py_CLEAR(dict);
	}
	return dict;
}

static PyObject *window(PyObject *module, PyObject *unused)
{
	uintptr_t start, end;

	(void)module;
	(void)unused;
	cow_window(&start, &end);
	return Py_BuildValue("(KK)", (unsigned long long)start,
	                     (unsigned long long)end);
}

static PyObject *version(PyObject *module, PyObject *unused)
{
	(void)module;
	(void)unused;
	return PyUnicode_FromString(cow_version());
}

/* itertools.count() gives a number twice if threads call it without the GIL. */
static PyObject *next_number(PyObject *module, PyObject *unused)
{
	static unsigned long long last;

	(void)module;
	(void)unused;
	return PyLong_FromUnsignedLongLong(__atomic_add_fetch(&last, 1, __ATOMIC_RELAXED));
}

static PyMethodDef functions[] = {
	{"next_number", next_number, METH_NOARGS,
         "next_number()\n--\n\n"
         "Returns a number that is larger than those of all earlier calls in this process and, "
         "before the fork, in its parent."},
	{"stats", stats, METH_VARARGS,
         "stats(pid=0)\n--\n\n"
         "Returns the counters of a process as a dict; 0 is this process.\n\n"
         "They count since the process began or was forked. Sizes are in bytes, names "
         "with _ns in nanoseconds. \"fallbacks\" is a dict: how often something was done "
         "the slow way, by reason. \"fallback_bytes\" is one, too: what was copied for "
         "that reason.\n\n"
         "For another process, ProcessLookupError: it has no counters, or does not exist. "
         "PermissionError: this one may not read it."},
	{"trim", trim, METH_NOARGS,
         "trim()\n--\n\n"
         "Gives freed memory that the engine keeps back to the kernel; returns whether "
         "there was any."},
	{"set_option", set_option, METH_VARARGS,
         "set_option(key, value)\n--\n\n"
         "Sets an option of the engine for this process: both are strings, as in "
         "docs/options.md.\n\n"
         "ValueError: the engine has no such option, which may be the shim's (COWSHED_OPTIONS "
         "sets those), or the option has no such value. "
         "RuntimeError: it must be set before the first allocation."},
	{"features", features, METH_NOARGS,
         "features()\n--\n\n"
         "Returns {name: (whether it works here, why)} for features of the kernel.\n\n"
         "The sentence says what the feature brings, or what denied it."},
	{"window", window, METH_NOARGS,
         "window()\n--\n\n"
         "Returns (start, end) of the address range of the engine.\n\n"
         "(0, 0) before the first allocation; it does not change after it."},
	{"version", version, METH_NOARGS,
         "version()\n--\n\nReturns the version of the library that is loaded, as "
         "\"0.1.0\"."},
	{NULL, NULL, 0, NULL},
};

int stats_init(PyObject *module)
{
	return PyModule_AddFunctions(module, functions);
}
