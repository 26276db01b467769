/* SPDX-License-Identifier: MIT */
/*
 * The reference counts of immortal objects, by version. See immortal.h.
 */
#include "python/_cowshed/immortal.h"

#include <stdint.h>

#define MINOR(version) (((version) >> 16) & 0xff)
#define NEWEST 14 /* of Python 3 */

_Static_assert(sizeof(void *) == 8 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the layouts in this file are those of 64 bits, little-endian");

#ifdef Py_GIL_DISABLED

#define OLDEST 13
/* Bits of ob_gc_bits: a collector without the GIL uses them while other threads run. */
#define UNREACHABLE 4
#define SHARED 16
#define DEFERRED 64

static uint32_t local_count(PyObject *op)
{
	return __atomic_load_n(&op->ob_ref_local, __ATOMIC_RELAXED);
}

static bool is_sane(PyObject *mortal)
{
	return local_count(mortal) == 1 && local_count(Py_None) == UINT32_MAX;
}

bool immortal_is(PyObject *op)
{
	return local_count(op) == UINT32_MAX;
}

bool immortal_set(PyObject *op)
{
	uint8_t bits = 0;

	/* Queued for its owner, which will merge both counts. Functions, classes and the like have
	 * the mark so that they are never queued. */
	if ((op->ob_ref_shared & _Py_REF_SHARED_FLAG_MASK) == _Py_REF_QUEUED &&
	    !(op->ob_gc_bits & DEFERRED))
		return false;
	/* In a list of the collector, linked by ob_tid. */
	if (op->ob_gc_bits & UNREACHABLE)
		return false;
	op->ob_tid = 0;
	__atomic_store_n(&op->ob_ref_local, UINT32_MAX, __ATOMIC_RELAXED);
	op->ob_ref_shared = 0;
	/* Else the first thread that reads it would set this bit, since nobody owns it. */
	if (PyList_Check(op) || PyDict_Check(op))
		bits |= SHARED;
	if (MINOR(Py_Version) >= 14)
		bits |= DEFERRED;
	__atomic_or_fetch(&op->ob_gc_bits, bits, __ATOMIC_RELAXED);
	return true;
}

#else

#define OLDEST 12
#define FLAG_14 (UINT64_C(1) << 48) /* _Py_IMMORTAL_FLAGS in ob_flags */

typedef uint64_t __attribute__((may_alias)) count_t;

static count_t *count_of(PyObject *op)
{
	return (count_t *)(void *)op;
}

static bool is_sane(PyObject *mortal)
{
	if (MINOR(Py_Version) >= 14 &&
	    (!(*count_of(Py_None) & FLAG_14) || *count_of(mortal) & FLAG_14))
		return false;
	return (*count_of(mortal) & UINT32_MAX) == 1 && !immortal_is(mortal) &&
	       immortal_is(Py_None);
}

bool immortal_is(PyObject *op)
{
	return (int32_t)*count_of(op) < 0;
}

bool immortal_set(PyObject *op)
{
	count_t *count = count_of(op);

	if (MINOR(Py_Version) >= 14)
		*count = (*count & ~(uint64_t)UINT32_MAX) | FLAG_14 | UINT64_C(3) << 30;
	else
		*count = UINT32_MAX;
	return true;
}

#endif

bool immortal_known(const char **why)
{
	PyObject *mortal;
	bool sane;

	if (Py_Version >> 24 != 3 || MINOR(Py_Version) < OLDEST) {
		*why = "has no immortal objects";
		return false;
	}
	if (MINOR(Py_Version) > NEWEST) {
		*why = "is newer than this cowshed, which does not know its reference counts";
		return false;
	}
	mortal = PyList_New(0);
	sane = mortal && is_sane(mortal);
	Py_DecRef(mortal);
	PyErr_Clear();
	if (!sane)
		*why = "was built with reference counts of another layout";
	return sane;
}
