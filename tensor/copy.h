/* SPDX-License-Identifier: MIT */
/*
 * Copies, in layers
 *
 *   cow_tensor_copy()     copy.c     what is allowed, and what is nothing to do
 *   cow__copy_lazily()    lazy.c     pages instead of bytes
 *   cow__copy_elements()  stage.c    which device does what, through which
 *                                    temporaries
 *   cow__copy_begin()     begin.c    the same, left unfinished
 *   cow__strided_copy()   strided.h  bytes in host memory
 */
#ifndef COW_TENSOR_COPY_H
#define COW_TENSOR_COPY_H

#include "tensor/tensor.h"

/* Does one place in memory stand for two elements? Exact for dense tensors and
 * repeated dimensions; else "yes" where it is not easily seen. */
bool cow__overlaps_itself(const struct cow_tensor *t);

enum cow__overlap {
	COW__OVERLAP_NONE,
	COW__OVERLAP_SAME, /* element by element the same places and type */
	COW__OVERLAP_SOME,
};
enum cow__overlap cow__overlap_of(const struct cow_tensor *a,
                                  const struct cow_tensor *b);

/* `from` with the sizes of `to`, as a view. */
int cow__tensor_broadcast(const struct cow_tensor *to, struct cow_tensor *from,
                          struct cow_tensor **ret);

/* Gives `to`'s storage the bytes of `from`'s, shared until either is written, if
 * both are dense and lie alike: all of them if both are all of their storages, else
 * the whole pages. 1: done; 0: copy rather. */
int cow__tensor_share(struct cow_tensor *to, struct cow_tensor *from);

/* Copies between tensors of equal sizes, with elements, on any devices but meta.
 * `whole`: nothing of `to`'s old bytes is read: not the same place as `from`. */
int cow__copy_elements(struct cow_tensor *to, struct cow_tensor *from,
                       bool whole, uint32_t flags);

/* The same without temporaries. -ENOTSUP: needs some. */
int cow__copy_at_once(struct cow_tensor *to, const struct cow_tensor *from,
                      bool whole, uint32_t flags);

/* A tensor of the same sizes, with `bits`' type, conj and neg; in `sizes`' order if that
 * is dense. On the device of `where`; NULL: the host. */
int cow__copy_temporary(const struct cow_tensor *sizes,
                        const struct cow_tensor *bits,
                        const struct cow_tensor *where, struct cow_tensor **ret);

/* What a copy under way needs until it has ended. */
struct cow_work {
	struct cow_work *next; /* of those that nobody has any more */
	struct cow_tensor *to, *from, *between; /* references, or NULL */
	struct cow_device device;               /* of the mark */
	void *mark;
	int result;
	bool done;
};

/* As cow__copy_elements(), left unfinished where the devices can; `between` and the mark
 * are noted in the work. */
int cow__copy_begin(struct cow_tensor *to, struct cow_tensor *from, bool whole,
                    uint32_t flags, struct cow_work *work);

/* What cow_tensor_copy() does; NULL work: finished. */
int cow__tensor_copy(struct cow_tensor *to, struct cow_tensor *from,
                     uint32_t flags, struct cow_work *work);

/* cow_tensor_clone() of a plain tensor as it lies, of which nothing is under way on return. */
int cow__tensor_clone_wait(struct cow_tensor *tensor, struct cow_tensor **ret);

/* The device's functions for marks, or NULL: its copies are finished on return. */
const struct cow_device_ops *cow__device_marks(struct cow_device device);

/* What device.c knows. NULL: no such device. Of the CPU: NULL, too. */
const struct cow_device_ops *cow__device_ops(struct cow_device device);

/* What a function of the device gave, to pass on: a sentence that it left, if
 * cow__error_begin() came before, stands. */
int cow__device_said(const struct cow_device_ops *ops, int r);

/* An index of -1 becomes the one that the thread works on. */
void cow__device_resolve(struct cow_device *device);

/* Host memory that the device reaches directly. -ENOTSUP: there is none. */
int cow__device_host_new(struct cow_device device, size_t bytes,
                         struct cow_storage **ret);

#endif
