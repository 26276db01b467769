/* SPDX-License-Identifier: MIT */
/*
 * Files that become shorter while they are mapped: a SIGBUS at the next touch of a missing byte
 *
 * Nothing can prevent that. What can be done:
 *
 *     peek()           copies bytes out of a mapping. If they are gone it raises an error.
 *     guard_check()    looks at the last byte before a large copy: the error comes first, unless
 *                      the file becomes shorter during the copy.
 *     elsewhere        the handler says on stderr which file it was, and what to do. Then the
 *                      process ends by SIGBUS, or the handler that was there before is called.
 *
 * The handler is set when the first file is mapped. It takes no lock and allocates nothing. If the
 * program sets a handler of its own later, that one gets the signal, and ours is not there.
 *
 * A guard is of the thread that copies, so other threads are treated as ever.
 */
#include "python/_cowshed/guard.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { FILES = 1024, NAME = 200 };

/* A mapped file. low: 0 is a free slot, 1 one that is being written. */
static struct file {
	uintptr_t low, high;
	char name[NAME];
} files[FILES];

static size_t used; /* slots from here on were never used */

static __thread struct guard {
	sigjmp_buf *jump; /* NULL: this thread copies nothing */
	uintptr_t low, high;
	uintptr_t named; /* the last fault of which stderr was told */
} guard __attribute__((tls_model("initial-exec")));

static struct sigaction before;

static void say(const char *text)
{
	/* Nothing can be done if it fails. */
	ssize_t r = write(STDERR_FILENO, text, strlen(text));

	(void)r;
}

/* The file that is mapped at an address, or NULL. */
static struct file *file_at(uintptr_t at)
{
	size_t n = __atomic_load_n(&used, __ATOMIC_ACQUIRE);

	for (size_t i = 0; i < n; i++) {
		uintptr_t low = __atomic_load_n(&files[i].low, __ATOMIC_ACQUIRE);

		if (low > 1 && at >= low && at < files[i].high)
			return &files[i];
	}
	return NULL;
}

static void name_it(uintptr_t at)
{
	struct file *file = file_at(at);

	if (!file)
		return;
	say("cowshed: ");
	say(file->name);
	say(" became shorter while it was mapped, and this program has touched a byte that is "
	    "gone. Open files that others write with cowshed.open(path, load=True), or replace "
	    "them by cowshed.save() instead of writing to them.\n");
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
	uintptr_t at = (uintptr_t)info->si_addr;
	int is_fault = info->si_code > 0, saved = errno;

	if (is_fault && guard.jump && at >= guard.low && at < guard.high)
		siglongjmp(*guard.jump, 1);
	if (is_fault && at != guard.named) {
		guard.named = at; /* a handler that returns is called again, without an end */
		name_it(at);
	}
	if (before.sa_flags & SA_SIGINFO) {
		before.sa_sigaction(number, info, context);
	} else if (before.sa_handler == SIG_DFL || (is_fault && before.sa_handler == SIG_IGN)) {
		/* A fault happens again after the return. */
		(void)signal(number, SIG_DFL);
		if (!is_fault)
			(void)raise(number);
	} else if (before.sa_handler != SIG_IGN) {
		before.sa_handler(number);
	}
	errno = saved;
}

/* Fills a free slot. Without one, nothing is known of the file. */
static void keep_file(uintptr_t low, uintptr_t high, const char *name, size_t length)
{
	for (size_t i = 0; i < FILES; i++) {
		uintptr_t unused = 0;
		size_t n = __atomic_load_n(&used, __ATOMIC_RELAXED);

		if (!__atomic_compare_exchange_n(&files[i].low, &unused, 1, 0, __ATOMIC_ACQUIRE,
		                                 __ATOMIC_RELAXED))
			continue;
		if (length >= NAME) { /* its end */
			name += length - NAME + 1;
			length = NAME - 1;
		}
		memcpy(files[i].name, name, length);
		files[i].name[length] = 0;
		files[i].high = high;
		__atomic_store_n(&files[i].low, low, __ATOMIC_RELEASE);
		while (n <= i && !__atomic_compare_exchange_n(&used, &n, i + 1, 0, __ATOMIC_RELEASE,
		                                              __ATOMIC_RELAXED))
			continue;
		return;
	}
}

static PyObject *name_file(PyObject *module, PyObject *args)
{
	/* Without SA_NODEFER the jump would leave the signal blocked. */
	struct sigaction action = { .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK | SA_RESTART };
	static int is_set;
	unsigned long long low, bytes;
	const char *name;
	Py_ssize_t length;

	(void)module;
	if (!PyArg_ParseTuple(args, "KKy#:name_file", &low, &bytes, &name, &length))
		return NULL;
	if (!__atomic_exchange_n(&is_set, 1, __ATOMIC_RELAXED)) {
		action.sa_sigaction = on_bus_error;
		(void)sigemptyset(&action.sa_mask);
		(void)sigaction(SIGBUS, NULL, &before);
		(void)sigaction(SIGBUS, &action, NULL);
	}
	keep_file((uintptr_t)low, (uintptr_t)(low + bytes), name, (size_t)length);
	Py_RETURN_NONE;
}

static PyObject *forget_file(PyObject *module, PyObject *args)
{
	unsigned long long low;

	(void)module;
	if (!PyArg_ParseTuple(args, "K:forget_file", &low))
		return NULL;
	for (size_t i = 0; i < FILES && low > 1; i++) {
		uintptr_t known = (uintptr_t)low;

		if (__atomic_compare_exchange_n(&files[i].low, &known, 0, 0, __ATOMIC_RELEASE,
		                                __ATOMIC_RELAXED))
			break;
	}
	Py_RETURN_NONE;
}

/* Whether the bytes could be copied. */
static int copy(char *to, const char *from, size_t n)
{
	sigjmp_buf jump;

	if (sigsetjmp(jump, 0)) {
		guard.jump = NULL;
		return 0;
	}
	guard.low = (uintptr_t)from;
	guard.high = guard.low + n;
	guard.jump = &jump;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	memcpy(to, from, n);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	guard.jump = NULL;
	return 1;
}

int guard_check(const void *low, size_t bytes)
{
	struct file *file = bytes ? file_at((uintptr_t)low) : NULL;
	PyObject *value, *name;
	char last;

	if (!file || copy(&last, (const char *)low + bytes - 1, 1))
		return 0;
	name = PyUnicode_DecodeFSDefault(file->name);
	value = name ? Py_BuildValue("(isO)", ENODATA,
	                             "the file became shorter while it was mapped, and bytes of it "
	                             "are gone: open it again, with load=True if others write it",
	                             name)
	             : NULL;
	if (value)
		PyErr_SetObject(PyExc_OSError, value);
	Py_XDECREF(value);
	Py_XDECREF(name);
	return -1;
}

static PyObject *check_file(PyObject *module, PyObject *args)
{
	unsigned long long low;
	Py_ssize_t bytes;

	(void)module;
	if (!PyArg_ParseTuple(args, "Kn:check_file", &low, &bytes))
		return NULL;
	if (guard_check((void *)(uintptr_t)low, (size_t)bytes) < 0)
		return NULL;
	Py_RETURN_NONE;
}

static PyObject *peek(PyObject *module, PyObject *args)
{
	PyObject *result = NULL;
	Py_ssize_t low, high;
	Py_buffer view;

	(void)module;
	if (!PyArg_ParseTuple(args, "y*nn:peek", &view, &low, &high))
		return NULL;
	if (low < 0 || low > high || high > view.len)
		PyErr_SetString(PyExc_ValueError, "the buffer does not have these bytes");
	else
		result = PyBytes_FromStringAndSize(NULL, high - low);
	if (result && !copy(PyBytes_AsString(result), (char *)view.buf + low, (size_t)(high - low))) {
		Py_CLEAR(result);
		if (guard_check((char *)view.buf + low, (size_t)(high - low)) == 0)
			PyErr_SetString(PyExc_OSError, "the mapped file became shorter");
	}
	PyBuffer_Release(&view);
	return result;
}

/* ---- Elements of packs ---------------------------------------------------- */

/* The parts of a pack that lies in a file: the form in _pack.py. */
struct pack {
	Py_buffer data, starts, sums;
	PyObject *crc32; /* zlib's */
	Py_ssize_t count;
	int has_tables; /* its elements are records, which may have a table of buffers */
};

enum { PACK_HEADER = 64, PICKLE = 0x80, TABLE = 16 };
static const char pack_name[] = "cowshed.pack_index";

static void free_pack(struct pack *p)
{
	Py_XDECREF(p->crc32);
	if (p->data.obj) {
		PyBuffer_Release(&p->sums);
		PyBuffer_Release(&p->starts);
		PyBuffer_Release(&p->data);
	}
	PyMem_Free(p);
}

static void free_index(PyObject *capsule)
{
	free_pack(PyCapsule_GetPointer(capsule, pack_name));
}

static PyObject *pack_index(PyObject *module, PyObject *args)
{
	struct pack *p = PyMem_Calloc(1, sizeof(*p));
	PyObject *capsule, *zlib;

	(void)module;
	if (!p)
		return PyErr_NoMemory();
	zlib = PyImport_ImportModule("zlib");
	p->crc32 = zlib ? PyObject_GetAttrString(zlib, "crc32") : NULL;
	Py_XDECREF(zlib);
	if (!p->crc32 || !PyArg_ParseTuple(args, "y*y*y*p:pack_index", &p->data, &p->starts,
	                                   &p->sums, &p->has_tables)) {
		p->data.obj = NULL; /* a failed call has released what it had */
		free_pack(p);
		return NULL;
	}
	p->count = p->starts.len / 8 - 1;
	if (p->count > p->sums.len / 4)
		p->count = p->sums.len / 4;
	capsule = PyCapsule_New(p, pack_name, free_index);
	if (!capsule)
		free_pack(p);
	return capsule;
}

/* Whether the element could be read. *ret_n: its bytes that have a checksum, at *ret_low; -1: the
 * index is damaged. */
static int find_element(const struct pack *p, Py_ssize_t at, uint64_t *ret_low, Py_ssize_t *ret_n,
                        uint32_t *ret_sum)
{
	uint64_t ends[2], table[2], n;

	*ret_n = -1;
	if (!copy((char *)ends, (char *)p->starts.buf + 8 * at, 16) ||
	    !copy((char *)ret_sum, (char *)p->sums.buf + 4 * at, 4))
		return 0;
	if (ends[0] < PACK_HEADER || ends[0] > ends[1] || ends[1] > (uint64_t)p->data.len)
		return 1;
	n = ends[1] - ends[0];
	if (p->has_tables && n >= TABLE) {
		if (!copy((char *)table, (char *)p->data.buf + ends[0], TABLE))
			return 0;
		if ((table[0] & 0xff) != PICKLE && table[1] < n) {
			uint64_t with = TABLE * ((table[0] >> 8) + 1) + table[1];

			n = with < n ? with : n;
		}
	}
	*ret_low = ends[0];
	*ret_n = (Py_ssize_t)n;
	return 1;
}

/* 1: they have this checksum; 0: they have not; -1: an error. */
static int has_sum(const struct pack *p, PyObject *bytes, uint32_t sum)
{
	PyObject *found = PyObject_CallFunctionObjArgs(p->crc32, bytes, NULL);
	unsigned long is;

	if (!found)
		return -1;
	is = PyLong_AsUnsignedLong(found);
	Py_DECREF(found);
	return is == sum;
}

static PyObject *gone(void)
{
	errno = ENODATA;
	return PyErr_SetFromErrno(PyExc_OSError);
}

static PyObject *peek_element(PyObject *module, PyObject *args)
{
	PyObject *capsule, *bytes;
	struct pack *p;
	Py_ssize_t at, n;
	uint64_t low;
	uint32_t sum;
	int is;

	(void)module;
	if (!PyArg_ParseTuple(args, "On:peek_element", &capsule, &at))
		return NULL;
	p = PyCapsule_GetPointer(capsule, pack_name);
	if (!p)
		return NULL;
	if (at < 0 || at >= p->count) {
		PyErr_SetString(PyExc_ValueError, "the index does not have this element");
		return NULL;
	}
	if (!find_element(p, at, &low, &n, &sum))
		return gone();
	if (n < 0 || (!n && p->has_tables))
		Py_RETURN_NONE;
	bytes = PyBytes_FromStringAndSize(NULL, n);
	if (!bytes)
		return NULL;
	if (!copy(PyBytes_AsString(bytes), (char *)p->data.buf + low, (size_t)n)) {
		Py_DECREF(bytes);
		return gone();
	}
	is = has_sum(p, bytes, sum);
	if (is == 1)
		return bytes;
	Py_DECREF(bytes);
	if (is < 0)
		return NULL;
	Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
	{"name_file", name_file, METH_VARARGS,
         "name_file(address, nbytes, name, /)\n--\n\n"
         "Says which file is mapped there, for the error if it becomes shorter.\n\n"
         "The first call sets a handler for SIGBUS, which calls the one that was there."},
	{"forget_file", forget_file, METH_VARARGS,
         "forget_file(address, /)\n--\n\n"
         "Takes name_file() back."},
	{"check_file", check_file, METH_VARARGS,
         "check_file(address, nbytes, /)\n--\n\n"
         "OSError (ENODATA): bytes of a file that name_file() knows are gone."},
	{"peek", peek, METH_VARARGS,
         "peek(buffer, low, high, /)\n--\n\n"
         "Returns bytes low to high of a buffer in a mapping that name_file() knows.\n\n"
         "ValueError: it has fewer bytes. OSError (ENODATA): the file became shorter."},
	{"pack_index", pack_index, METH_VARARGS,
         "pack_index(data, starts, sums, has_tables, /)\n--\n\n"
         "Returns what peek_element() takes: the parts of a pack, of the form in _pack.py.\n\n"
         "It holds the three buffers. has_tables: the elements are records."},
	{"peek_element", peek_element, METH_VARARGS,
         "peek_element(index, at, /)\n--\n\n"
         "Returns the bytes of an element of a pack; of a record without its buffers.\n\n"
         "None: they are damaged. ValueError: there is no such element. OSError (ENODATA): the "
         "file became shorter."},
	{NULL, NULL, 0, NULL},
};

int guard_init(PyObject *module)
{
	return PyModule_AddFunctions(module, functions);
}
