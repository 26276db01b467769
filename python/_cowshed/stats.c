/* SPDX-License-Identifier: MIT */
/*
 * Counters, options, features
 *
 * Counters are a dict, in the order of struct cow_stats, with a dict of fallbacks at
 * its end.
 */
#include "python/_cowshed/module.h"

#include <errno.h>
#include <stddef.h>

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
};

static int put(PyObject *dict, const char *name, PyObject *value)
{
	int r = value ? PyDict_SetItemString(dict, name, value) : -1;

	Py_XDECREF(value);
	return r;
}

static PyObject *fallbacks(const struct cow_stats *s)
{
	PyObject *dict = PyDict_New();

	for (int i = 0; dict && i < COW_FALLBACKS; i++) {
		const char *name = cow_fallback_name((enum cow_fallback)i);

		if (s->fallbacks[i] && name &&
		    put(dict, name,
		        PyLong_FromUnsignedLongLong(s->fallbacks[i])) < 0)
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
	if (dict && put(dict, "fallbacks", fallbacks(s)) < 0)
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
	return r < 0 ? raise_error(r) : as_dict(&s);
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

static PyMethodDef functions[] = {
	{"stats", stats, METH_VARARGS,
         "stats(pid=0)\n--\n\nCounters of this process, or of another one."},
	{"trim", trim, METH_NOARGS,
         "trim()\n--\n\nGives memory that is kept warm back; was there any?"},
	{"set_option", set_option, METH_VARARGS,
         "set_option(key, value)\n--\n\nAn option of the engine."},
	{"features", features, METH_NOARGS,
         "features()\n--\n\n{name: (is there, what it brings or what denied "
         "it)}"},
	{"window", window, METH_NOARGS,
         "window()\n--\n\n(start, end) of the addresses that are the engine's."},
	{"version", version, METH_NOARGS,
         "version()\n--\n\nOf the library that is loaded."},
	{NULL, NULL, 0, NULL},
};

int stats_init(PyObject *module)
{
	return PyModule_AddFunctions(module, functions);
}
