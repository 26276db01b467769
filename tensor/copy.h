/* SPDX-License-Identifier: MIT */
/*
 * Copies, in layers
 *
 *   cow_tensor_copy()     copy.c     refuses what is not allowed; finds copies that
 *                                    have nothing to do
 *   cow__tensor_share()   lazy.c     shares pages instead of copying bytes
 *   cow__copy_elements()  stage.c    chooses which device does what, through which
 *                                    temporaries
 *   cow__copy_begin()     begin.c    the same, left unfinished
 *   cow__strided_copy()   strided.h  copies bytes in host memory
 *   cow__copy_quantized() quantize.c in place of all these, if a side is quantized
 */
#ifndef COW_TENSOR_COPY_H
#define COW_TENSOR_COPY_H

#include "tensor/tensor.h"

/* Do two elements have one place in memory? Exact for dense tensors and repeated
 * dimensions. For others "yes", unless it is easily seen that none do. */
bool cow__overlaps_itself(const struct cow_tensor *t);

enum cow__overlap {
	COW__OVERLAP_NONE,
	COW__OVERLAP_SAME, /* each element has the same place and type in both */
	COW__OVERLAP_SOME,
};
enum cow__overlap cow__overlap_of(const struct cow_tensor *a,
                                  const struct cow_tensor *b);

/* A view of `from` with the sizes of `to`. */
int cow__tensor_broadcast(const struct cow_tensor *to, struct cow_tensor *from,
                          struct cow_tensor **ret);

/* Shares the bytes of `from` with `to` until either is written. Both must be dense and lie
 * alike. If each is all of its storage, all bytes are shared, else the whole pages. 1:
 * done; 0: the caller has to copy; -errno. */
int cow__tensor_share(struct cow_tensor *to, struct cow_tensor *from);

/* Copies between tensors of equal sizes, with elements, on any devices but meta.
 * `whole`: the two have no place in common, so no old byte of `to` is read. */
int cow__copy_elements(struct cow_tensor *to, struct cow_tensor *from,
                       bool whole, uint32_t flags);

/* The same without temporaries. -ENOTSUP: needs some. */
int cow__copy_at_once(struct cow_tensor *to, const struct cow_tensor *from,
                      bool whole, uint32_t flags);

/* A fresh tensor of the sizes of `sizes`, with the type, conj and neg of `bits`. It lies in
 * the order of `sizes` if that is dense, else it is contiguous. On the device of `where`;
 * NULL: on the host. */
int cow__copy_temporary(const struct cow_tensor *sizes,
                        const struct cow_tensor *bits,
                        const struct cow_tensor *where, struct cow_tensor **ret);

/* What a copy needs until it has ended. */
struct cow_work {
	struct cow_work *next; /* in the list of freed ones that have not ended */
	struct cow_tensor *to, *from, *between; /* references, or NULL */
	struct cow_device device;               /* of the mark */
	void *mark;
	int result;
	bool done;
};

/* As cow__copy_elements(), but returns before the copy has ended if the devices can do that.
 * Notes the temporary (`between`) and the mark in the work. */
int cow__copy_begin(struct cow_tensor *to, struct cow_tensor *from, bool whole,
                    uint32_t flags, struct cow_work *work);

/* Does what cow_tensor_copy() does. `work` NULL: the copy has ended on return. */
int cow__tensor_copy(struct cow_tensor *to, struct cow_tensor *from,
                     uint32_t flags, struct cow_work *work);

/* A copy in which at least one side is quantized. copy.c has checked the flags. */
int cow__copy_quantized(struct cow_tensor *to, struct cow_tensor *from,
                        uint32_t flags, struct cow_work *work);

/* cow_tensor_clone() with PRESERVE, of a tensor that is not quantized. The copy has ended on
 * return. */
int cow__tensor_clone_wait(struct cow_tensor *tensor, struct cow_tensor **ret);

#endif
