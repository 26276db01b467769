/* SPDX-License-Identifier: MIT */
/*
 * Immortal objects: reference counts that are never written again
 *
 * CPython has no public call that makes an object immortal. So this file knows the layout of
 * reference counts in the versions that it names. Any other version is refused.
 *
 *     3.12, 3.13    the lower 32 bits of the count are ones
 *     3.14          the lower 32 bits are 3 << 30, and a flag is set in the upper 16 bits
 *     3.13, 3.14 without the GIL    ob_ref_local is UINT32_MAX, and nobody owns the object
 *
 * The tests run 3.12, 3.13 and 3.13 without the GIL. The values of 3.14 were compared with CPython's
 * source (Include/refcount.h, Objects/object.c) and with its None at each call.
 *
 * Extensions of the stable ABI of Python 3.11 change the count of an immortal object. All of these
 * values tolerate that: the object stays immortal, but its page is written.
 */
#ifndef COWSHED_IMMORTAL_H
#define COWSHED_IMMORTAL_H

#include "python/_cowshed/base.h"

#include <stdbool.h>

/* Whether this interpreter has the layout that its version should have. False: *why says what is
 * wrong, a sentence without its end. */
bool immortal_known(const char **why);

bool immortal_is(PyObject *op);

/* Makes an object immortal; other threads must not run Python code meanwhile. False: another thread
 * of a Python without the GIL has yet to merge its counts, so it stays as it is. */
bool immortal_set(PyObject *op);

#endif
