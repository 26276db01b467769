/* SPDX-License-Identifier: MIT */
/*
 * The reference driver, loaded as the library loads a driver
 */
#ifndef TESTS_SUPPORT_DRIVER_H
#define TESTS_SUPPORT_DRIVER_H

#include "cuda/driver.h"
#include "tests/driver/control.h"
#include "tests/support/support.h"

/* Makes the library take the reference driver (unless the environment names another):
 * before anything loads one. */
void driver_choose(void);

/* Is it ours? Of another one (make check-gpu) `ref` has stand-ins (standin.c). */
bool driver_is_reference(void);

/*
 * What a test can't do without. Where the driver does not have it the test is left out,
 * and a line "skip" says so. For main():
 *
 *      add_test_needing(NEEDS_CONTROL, tcase, changed_too_early);
 */
enum driver_needs {
	NEEDS_CONTROL = 1, /* work that is held, calls that fail, counts, small devices */
	NEEDS_TWO_DEVICES = 2,
};
bool driver_has(unsigned needs, const char *test);
#define add_test_needing(needs, tcase, test)                                   \
	do {                                                                   \
		if (driver_has((needs), #test))                                \
			tcase_add_test((tcase), test);                         \
	} while (0)
#define add_loop_test_needing(needs, tcase, test, from, to)                    \
	do {                                                                   \
		if (driver_has((needs), #test))                                \
			tcase_add_loop_test((tcase), test, (from), (to));      \
	} while (0)

/* Loads it, and makes the context of device 0 current. */
extern const struct cow__cu *cu;
void driver_start(void);
struct cow__cu_context *driver_context(int device); /* retained, not made current */

/* The functions of tests/driver/control.h in it. */
struct driver_control {
	__typeof__(cow_ref_set) *set;
	__typeof__(cow_ref_fail) *fail_call;
	__typeof__(cow_ref_calls) *calls;
	__typeof__(cow_ref_implicit_waits) *implicit_waits;
	__typeof__(cow_ref_usage) *usage;
	__typeof__(cow_ref_poison) *poison;
	__typeof__(cow_ref_peek) *peek;
};
extern struct driver_control ref;
extern const struct driver_control driver_standins;

/* A call that must succeed, one that must give `code`. */
#define cu_ok(call) cu_gives(COW_CU_SUCCESS, call)
#define cu_gives(code, call)                                                   \
	do {                                                                   \
		enum cow__cu_result cu_result = (call);                        \
		if (cu_result != (code))                                       \
			ck_abort_msg("%s gave %d, not %d", #call,              \
			             (int)cu_result, (int)(code));             \
	} while (0)

/* The stream records, for a thread of this mode (COW_CU_CAPTURE_...), until the end,
 * which fails the test if somebody broke the recording. */
void capture_begin(void *stream, unsigned mode);
void capture_end(void *stream);

/* `body` in a child, which the driver must end with a sentence that has `words`. */
void in_child_scolded(child_fn *body, void *arg, const char *words);

/* Physical memory of a device, mapped somewhere with access for that device. */
cow__cu_handle new_physical(int device, size_t bytes);
cow__cu_ptr map_physical(cow__cu_handle handle, size_t bytes);
void give_access(cow__cu_ptr ptr, size_t bytes, int device, unsigned flags);

#endif
