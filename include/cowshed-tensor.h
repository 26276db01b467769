/* SPDX-License-Identifier: MIT */
/*
 * cowshed: tensors and copies between them
 *
 * Library: libcowshed-tensor (pkg-config cowshed-tensor), which needs
 * libcowshed.
 *
 * A *tensor* is a view of a storage: a data type, sizes, strides, an offset,
 * and two bits that say "conjugated" and "negated". Many tensors may view one
 * storage.
 *
 *      int64_t sizes[] = { 64, 3, 224, 224 };
 *      struct cow_tensor *a, *b;
 *
 *      cow_tensor_new(COW_FLOAT32, 4, sizes, NULL, &a);
 *      cow_tensor_to(a, &(struct cow_to){ .size = sizeof(struct cow_to),
 *                        .dtype = COW_BFLOAT16,
 *                        .format = COW_FORMAT_CHANNELS_LAST }, &b);
 *
 * The rules are those of PyTorch (at::to, _to_copy, copy_), but for one.
 * PyTorch guesses the memory format from the strides. Here it is a property
 * that every tensor has, also where no known format describes it
 * (COW_FORMAT_NONE). So cow_tensor_is_contiguous(t, cow_tensor_format(t)) is
 * always true, and asking for a format always gives it.
 *
 * A tensor is immutable but for its bytes. Functions that change its shape
 * return another tensor. If its storage shrinks (cow_storage_resize()) and
 * elements are lost, reading or writing the tensor is -ERANGE until the storage
 * has grown again.
 *
 * Ownership and errors are as in cowshed.h: a function that gives a tensor
 * gives a reference, which the caller gives back with cow_tensor_unref().
 * Threads are as in cowshed.h, too. Several threads may read, view and copy
 * from one tensor at once. fork: a tensor stays with its storage, in both
 * processes. Devices: one of type COW_DEVICE_CUDA works once the program calls
 * cow_cuda_start() (cowshed-cuda.h).
 */
#ifndef COWSHED_TENSOR_H
#define COWSHED_TENSOR_H

#include "cowshed.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Data types: cow_dtype(3) ------------------------------------------- */

enum cow_dtype {
	COW_BOOL = 0, /* one byte, 0 or 1 */
	COW_INT8,
	COW_INT16,
	COW_INT32,
	COW_INT64,
	COW_UINT8,
	COW_UINT16,
	COW_UINT32,
	COW_UINT64,
	COW_FLOAT16,
	COW_BFLOAT16,
	COW_FLOAT32,
	COW_FLOAT64,
	COW_COMPLEX32,  /* two float16 */
	COW_COMPLEX64,  /* two float32 */
	COW_COMPLEX128, /* two float64 */
	COW_FLOAT8_E4M3FN,
	COW_FLOAT8_E5M2,
	COW_QUINT8, /* quantized, as are those below: see cow_quantizer */
	COW_QINT8,
	COW_QINT32,
	COW_DTYPES,
};

/* Bytes of one element. 0: no such type. */
size_t cow_dtype_bytes(enum cow_dtype dtype);

/* The name of a type, as "float32": a static string. NULL: no such type. */
const char *cow_dtype_name(enum cow_dtype dtype);

/* Is it a real floating-point type, or a complex one? false: no such type. */
bool cow_dtype_is_floating(enum cow_dtype dtype);
bool cow_dtype_is_complex(enum cow_dtype dtype);

/*
 * Conversions, element by element. The results are the same on every machine.
 *
 *   to bool       0 and -0 are false; everything else is true, NaN too
 *   integers      modulo 2^n, as C does between integers
 *   from floats   towards zero. A number that does not fit, and NaN,
 *                 becomes what the C conversion to int64 (uint64) on
 *                 x86-64 leaves (INT64_MIN), taken modulo 2^n
 *   to floats     rounded to nearest, ties to even; overflow is
 *                 infinity, NaN stays NaN. float8 e4m3fn has no
 *                 infinity: overflow and infinity become the greatest
 *                 number, 448
 *   complex       to real: the imaginary part is dropped (see
 *                 cow_warning_set()); to bool: either part is not 0;
 *                 from real: the imaginary part is 0
 */

/*
 * Sets the function that is told once a process when a copy drops imaginary
 * parts. NULL: nobody is told. The library calls it on the copying thread
 * without locks held; it may call the library. `user` is its first argument;
 * `sentence` is static. Thread-safe; never fails.
 */
typedef void cow_warning_fn(void *user, const char *sentence);
void cow_warning_set(cow_warning_fn *warning, void *user);

/* ---- Memory formats: cow_format(3) -------------------------------------- */

enum cow_format {
	COW_FORMAT_CONTIGUOUS = 0, /* the last dimension is dense */
	COW_FORMAT_CHANNELS_LAST,  /* of 4 dimensions: N, H, W, C in memory */
	COW_FORMAT_CHANNELS_LAST_3D, /* of 5: N, D, H, W, C */
	COW_FORMAT_NONE,           /* none of these */
	COW_FORMAT_PRESERVE,       /* only as an argument: as the source */
};

/* The name of a format, as "channels_last": a static string. NULL: no such
 * format. */
const char *cow_format_name(enum cow_format format);

/* ---- Tensors: cow_tensor(3) --------------------------------------------- */

/* Dimensions of a tensor, at most. */
#define COW_DIMS_MAX 64

struct cow_tensor;

/* NULL options mean all zero: the CPU, contiguous. A longer struct is -E2BIG if
 * it has non-zero bytes that this library does not know. */
struct cow_tensor_options {
	size_t size;                  /* sizeof(struct cow_tensor_options) */
	struct cow_device device;     /* of the storage; index -1: the current one */
	uint32_t format;              /* enum cow_format; not PRESERVE, NONE */
	uint32_t storage_flags;       /* enum cow_storage_flags; ZERO is for
	                                 the CPU alone */
	struct cow_allocator *allocator; /* NULL: the device's */
};

/*
 * Makes a tensor on a storage of its own. The bytes are unspecified, unless
 * `options` say ZERO. `sizes`: an array of `dims` sizes, which is copied.
 *
 *   -EINVAL   no such type, or a quantized one; negative sizes; more than
 *             COW_DIMS_MAX dimensions; a format for another number of
 *             dimensions; sizes that overflow; ZERO on a device
 *   -ENODEV   no allocator for the device, or one of another device
 *   other     as for cow_storage_new()
 */
int cow_tensor_new(enum cow_dtype dtype, int dims, const int64_t *sizes,
                   const struct cow_tensor_options *options,
                   struct cow_tensor **ret);

/*
 * Makes a tensor on `storage`, and takes a reference to the storage. `sizes`
 * and `strides`: arrays of `dims` numbers, which are copied. Strides and
 * `offset` count elements. NULL strides: contiguous.
 *
 *   -EINVAL   as for cow_tensor_new(); negative strides or offset
 *   -ERANGE   an element outside of the storage; an address of the bytes
 *             that is not a multiple of the type's size (complex: of its
 *             part's)
 *   -ENOMEM
 */
int cow_tensor_on(struct cow_storage *storage, enum cow_dtype dtype, int dims,
                  const int64_t *sizes, const int64_t *strides, int64_t offset,
                  struct cow_tensor **ret);

/* Takes and gives back a reference; atomic. The last unref gives the storage's
 * reference back. Both take NULL. unref returns NULL. */
struct cow_tensor *cow_tensor_ref(struct cow_tensor *tensor);
struct cow_tensor *cow_tensor_unref(struct cow_tensor *tensor);

/* Properties of a tensor, which is not NULL. They never fail. The arrays have
 * one number for each dimension. They are the tensor's, and valid while it is.
 * Strides and offset count elements; numel is the number of elements. */
enum cow_dtype cow_tensor_dtype(const struct cow_tensor *tensor);
int cow_tensor_dims(const struct cow_tensor *tensor);
const int64_t *cow_tensor_sizes(const struct cow_tensor *tensor);
const int64_t *cow_tensor_strides(const struct cow_tensor *tensor);
int64_t cow_tensor_offset(const struct cow_tensor *tensor); /* elements */
int64_t cow_tensor_numel(const struct cow_tensor *tensor);
struct cow_device cow_tensor_device(const struct cow_tensor *tensor);
bool cow_tensor_is_conj(const struct cow_tensor *tensor);
bool cow_tensor_is_neg(const struct cow_tensor *tensor);

/* The storage. The reference stays the tensor's. */
struct cow_storage *cow_tensor_storage(const struct cow_tensor *tensor);

/*
 * The format: the one that the tensor was made with, as long as its strides are
 * right for it. Else the first that they are right for: contiguous before
 * channels last. Dimensions of size 1 do not count. So an N111 tensor that was
 * made channels last stays so through views that keep its dimensions. Never
 * fails.
 */
enum cow_format cow_tensor_format(const struct cow_tensor *tensor);

/* Are the strides right for this format? NONE: always. PRESERVE: the tensor's
 * own format, so always. Never fails. */
bool cow_tensor_is_contiguous(const struct cow_tensor *tensor,
                              enum cow_format format);

/* Does every element have a place of its own, with none in between, in any
 * order? Never fails. */
bool cow_tensor_is_dense(const struct cow_tensor *tensor);

/* The address of the tensor's first element, for reading; host memory only.
 * conj and neg bits are not resolved. Valid as that of cow_storage_data(). NULL
 * if there are no elements, if the storage shrank, or if the memory is a
 * device's. */
const void *cow_tensor_data(const struct cow_tensor *tensor);

/*
 * The address of the tensor's first element, for writing; host memory only. The
 * storage is materialized as by cow_storage_data_mut_range(), for the bytes
 * that the tensor spans. COW_WRITE_ALL counts as AUTO if the tensor is not
 * dense: the bytes between its elements stay. *ret is NULL if there are no
 * elements.
 *
 *   -ENODEV   the memory is a device's
 *   -ERANGE   the storage shrank
 *   other     as for cow_storage_data_mut_range()
 */
int cow_tensor_data_mut(struct cow_tensor *tensor, enum cow_write_hint hint,
                        void **ret);

/* ---- Views: other tensors on the same storage: cow_tensor_view(3) ------- */

/*
 * Each function makes a new tensor on the same storage, with the same type,
 * bits and quantizer. No bytes are copied. `dim` counts from 0, or from -1
 * backwards.
 *
 * slice: the indexes start, start + step, ... before `end` of one dimension;
 * `step` > 0. Start and end are clamped as Python does it. select: one index of
 * a dimension, which goes away; it may be negative. permute: dimension i
 * becomes dims[i] of the tensor, each once. transpose: swaps two dimensions.
 *
 *   -EINVAL   no such dimension or index; a step that is not positive; a
 *             dimension twice
 *   -ENOMEM
 */
int cow_tensor_slice(struct cow_tensor *tensor, int dim, int64_t start,
                     int64_t end, int64_t step, struct cow_tensor **ret);
int cow_tensor_select(struct cow_tensor *tensor, int dim, int64_t index,
                      struct cow_tensor **ret);
int cow_tensor_permute(struct cow_tensor *tensor, const int *dims,
                       struct cow_tensor **ret);
int cow_tensor_transpose(struct cow_tensor *tensor, int dim0, int dim1,
                         struct cow_tensor **ret);
/*
 * expand: to `dims` sizes; new dimensions are in front. -1 keeps a size; a size
 * of 1 is repeated (stride 0). unsqueeze: a new dimension of size 1, which is
 * `dim` of the result. squeeze: without dimension `dim` if its size is 1, else
 * all of them.
 *
 *   -EINVAL   no such dimension; sizes that can't be; too many dimensions
 *   -ENOMEM
 */
int cow_tensor_expand(struct cow_tensor *tensor, int dims, const int64_t *sizes,
                      struct cow_tensor **ret);
int cow_tensor_unsqueeze(struct cow_tensor *tensor, int dim,
                         struct cow_tensor **ret);
int cow_tensor_squeeze(struct cow_tensor *tensor, int dim,
                       struct cow_tensor **ret);
/*
 * Other sizes for the same elements. One size may be -1: the library computes
 * it from the others.
 *
 *   -EINVAL   another number of elements; of a tensor that is quantized by
 *             channel, no dimension of its channels would be left
 *   -EXDEV    that would need a copy
 *   -ENOMEM
 */
int cow_tensor_view(struct cow_tensor *tensor, int dims, const int64_t *sizes,
                    struct cow_tensor **ret);
/* Any sizes, strides and offset that lie in the storage. Errors as for
 * cow_tensor_on(); -EINVAL also for a tensor that is quantized by channel. */
int cow_tensor_as_strided(struct cow_tensor *tensor, int dims,
                          const int64_t *sizes, const int64_t *strides,
                          int64_t offset, struct cow_tensor **ret);
/* Flips the bit conj, or neg. conj of a real tensor is the same tensor.
 * -EINVAL: neg of a bool or quantized tensor. -ENOMEM. */
int cow_tensor_conj(struct cow_tensor *tensor, struct cow_tensor **ret);
int cow_tensor_neg(struct cow_tensor *tensor, struct cow_tensor **ret);

/* ---- Quantized tensors: cow_quantizer(3) -------------------------------- */

/*
 * The bytes q of a quint8, qint8 or qint32 tensor stand for scale * (q - zero
 * point). There is one pair (scale, zero point) for the whole tensor, or one
 * for each index of a dimension, the axis. Each index of the axis is a channel.
 *
 * The quantizer is a property of the tensor, which views share. A permuted
 * tensor has the axis elsewhere. A slice of the axis has the channels of the
 * slice. One index of the axis has its pair for the whole. Views in which the
 * channels would not be a dimension any more are -EINVAL (as_strided, view,
 * reshape).
 *
 * Quantizing computes in float32, as PyTorch does: x times the reciprocal of
 * the scale, plus the zero point, to the nearest integer, ties to even. A
 * number that does not fit becomes the type's least or greatest number. NaN
 * becomes the greatest (of qint32 the least).
 *
 * Copies are as PyTorch's copy_. From float32 to a quantized tensor they
 * quantize, whatever the sizes and strides. Between two quantized tensors of
 * the same type and scheme they copy the bytes, and the destination gets the
 * source's quantizer. That concerns the destination alone: views of it that
 * were made before keep theirs, and read the new bytes by it. All other copies
 * are -EINVAL, also in cow_tensor_to(). cow_tensor_dequantize() makes floats of
 * a quantized tensor.
 *
 * conj and neg bits, and DLPack, have no quantized form. cow_tensor_on() of the
 * same storage shows the bytes as integers.
 */
enum cow_qscheme {
	COW_QSCHEME_PER_TENSOR = 1,  /* 1 channel; axis has no meaning */
	COW_QSCHEME_PER_CHANNEL = 2, /* as many as the axis has indexes */
};

struct cow_quantizer {
	size_t size;     /* sizeof(struct cow_quantizer) */
	uint32_t scheme; /* enum cow_qscheme */
	int32_t axis;    /* from 0 */
	int64_t channels;
	const double *scales; /* used as float32: positive, and so is 1 / scale */
	const int64_t *zero_points; /* numbers of the type */
};

/*
 * Make quantized tensors, as cow_tensor_new() and cow_tensor_on() make others;
 * those refuse quantized types. The quantizer and its arrays are copied.
 *
 *   -EINVAL   a type that is not quantized; a quantizer that does not fit
 *   other     as for cow_tensor_new(), cow_tensor_on()
 */
int cow_tensor_new_quantized(enum cow_dtype dtype, int dims,
                             const int64_t *sizes,
                             const struct cow_quantizer *quantizer,
                             const struct cow_tensor_options *options,
                             struct cow_tensor **ret);
int cow_tensor_on_quantized(struct cow_storage *storage, enum cow_dtype dtype,
                            int dims, const int64_t *sizes,
                            const int64_t *strides, int64_t offset,
                            const struct cow_quantizer *quantizer,
                            struct cow_tensor **ret);

/*
 * The quantizer of a tensor. The caller sets `ret->size`. The arrays stay the
 * tensor's; they are valid until it is freed or copied to.
 *
 *   -EINVAL    `size` is not set
 *   -ENODATA   the tensor is not quantized
 */
int cow_tensor_get_quantizer(const struct cow_tensor *tensor,
                             struct cow_quantizer *ret);

/*
 * Make fresh tensors of the same sizes on the same device: a quantized one from
 * float32, and float32 from a quantized one. The host computes them; a device's
 * bytes are copied there and back.
 *
 *   -EINVAL   a tensor of another type; a quantizer that does not fit
 *   other     as for cow_tensor_copy()
 */
int cow_tensor_quantize(struct cow_tensor *tensor, enum cow_dtype dtype,
                        const struct cow_quantizer *quantizer,
                        struct cow_tensor **ret);
int cow_tensor_dequantize(struct cow_tensor *tensor, struct cow_tensor **ret);

/* ---- Copies: cow_tensor_copy(3) ----------------------------------------- */

enum cow_copy_flags {
	/* Shares pages where both sides lie alike: see cow_tensor_copy(). */
	COW_COPY_LAZY = 1 << 0,
	/* Leaves work on a device unfinished: see cow_tensor_copy_begin(). */
	COW_COPY_NON_BLOCKING = 1 << 1,
	/* Leaves the test for overlap out. */
	COW_COPY_IGNORE_OVERLAP = 1 << 2,
	/* Only the library says this, to devices. A mark follows the work, or
	 * the memory that it uses is let go: no graph can have it. */
	COW_COPY_MARKED = 1 << 3,
};

/*
 * Copies `from` to `to`. It converts types and resolves conj and neg. It
 * repeats dimensions of `from` that have size 1 or are missing. The source is
 * never materialized. A destination that is written as a whole is not copied
 * before. The rules are those of PyTorch's copy_. Nothing is done if both are
 * the same elements with the same type and bits. `flags`: LAZY, NON_BLOCKING
 * and IGNORE_OVERLAP.
 *
 * LAZY shares pages until either side is written, which then costs as after a
 * lazy clone. It applies to dense tensors of one type and the same strides, on
 * two storages of host memory. If both are all of their storages, it costs one
 * reference. If not, it costs mappings, and less than a page is copied at each
 * end. Then the first bytes must be at the same place in a page. The part must
 * have 384 KiB, and be a quarter of the source unless the source is frozen
 * already. Bytes are copied where pages can't be shared (see
 * cow_storage_lazy_clone()), and where the destination's address was given
 * away. The result is the same.
 *
 * Threads: copying writes `to` and reads `from`, as cowshed.h says.
 *
 *   -EINVAL    sizes that don't go together; a destination in which one
 *              place stands for several elements, or that overlaps the
 *              source; a quantized and another type; unknown flags
 *   -ERANGE    a storage that shrank
 *   -ENODATA   a meta tensor has no bytes to copy from
 *   -ENODEV    a device that is not registered
 *   -ENOMEM
 *   other      of a device: see cowshed-cuda.h
 *
 * The test for overlap is exact for dense tensors. For others it errs towards
 * an error. After these errors the destination is as it was. A device that
 * fails on the way, with an error of its own, may have written part of it. A
 * destination that is dense and shared its bytes with a lazy clone is as it was
 * even then.
 */
int cow_tensor_copy(struct cow_tensor *to, struct cow_tensor *from,
                    uint32_t flags);

/*
 * NON_BLOCKING: work on a device may be unfinished when the call returns. It is
 * in the order of that device's work. Host memory that is read may still be
 * read then, if the device reaches it directly; else it has been read. Its
 * bytes must stay as they are until the device has read them. Host memory that
 * is written is finished on return. A caller that wants it later takes a
 * handle:
 *
 * begin is cow_tensor_copy() with NON_BLOCKING and a handle. The handle tells
 * when both sides may be used again. Until then it holds both tensors, and what
 * else the copy needs. It may return before the bytes are in host memory, too:
 * reading them before the work has ended gives anything. Devices can't leave
 * all work unfinished. These are finished on return: copies that fill pageable
 * host memory, copies of elements that are spread over it, copies of devices
 * without marks. Errors as for cow_tensor_copy(). *ret is not NULL if it gives
 * 0; the caller owns it.
 *
 * poll returns 1 if the work has ended, 0 if not yet; it never waits. wait
 * returns 0 when the work has ended. Both give -errno if the device failed,
 * from then on always the same. Any thread may call them; one at a time.
 *
 * free takes NULL and returns NULL. It does not wait: work that is under way
 * goes on, and keeps what it holds. The library looks after such work whenever
 * work is begun or freed.
 *
 * fork: in a child the work of its parent fails, and can be freed.
 */
struct cow_work;
int cow_tensor_copy_begin(struct cow_tensor *to, struct cow_tensor *from,
                          uint32_t flags, struct cow_work **ret);
int cow_work_poll(struct cow_work *work);
int cow_work_wait(struct cow_work *work);
struct cow_work *cow_work_free(struct cow_work *work);

/* A longer struct is -E2BIG if it has non-zero bytes that this library does not
 * know. */
struct cow_to {
	size_t size;    /* sizeof(struct cow_to) */
	int32_t dtype;  /* enum cow_dtype, or -1: as it is */
	struct cow_device device; /* if `set_device`; else as it is */
	bool set_device;
	bool copy;      /* also if nothing changes */
	uint32_t format; /* enum cow_format; PRESERVE: as it is */
	uint32_t flags; /* enum cow_copy_flags */
};

/*
 * Gives the tensor with another type, device or format. If nothing changes it
 * is the same tensor (a reference), else a fresh one. NULL `to`: nothing
 * changes. (PyTorch's Tensor.to.)
 *
 * PRESERVE keeps the strides of a dense tensor, and the order of dimensions of
 * another one. A device of index -1 is the one that the thread works on. From a
 * device to the CPU, NON_BLOCKING gives memory that the device reaches
 * directly, if there is such memory and enough of it. The bytes are there on
 * return.
 *
 *   -EINVAL   no such type or flags; NONE, or a format for another number
 *             of dimensions; a change of type from or to a quantized one
 *   -E2BIG    see cow_to
 *   other     as for cow_tensor_new(), cow_tensor_copy()
 */
int cow_tensor_to(struct cow_tensor *tensor, const struct cow_to *to,
                  struct cow_tensor **ret);

/*
 * Make fresh tensors with the same elements; conj and neg stay bits. clone
 * copies at once, in `format` (PRESERVE: as cow_tensor_to()). lazy: the tensor
 * shares the storage's bytes until either is written, and has the same strides.
 *
 *   -EINVAL   no such format for this tensor
 *   -ERANGE   a storage that shrank
 *   other     as for cow_tensor_copy(), cow_storage_lazy_clone()
 */
int cow_tensor_clone(struct cow_tensor *tensor, enum cow_format format,
                     struct cow_tensor **ret);
int cow_tensor_lazy_clone(struct cow_tensor *tensor, struct cow_tensor **ret);

/* Gives the same tensor if it is contiguous in this format, else a copy. LAZY:
 * always a tensor on a storage of its own, which shares bytes if the strides
 * fit. -EINVAL: other flags; else as for cow_tensor_clone(). */
int cow_tensor_contiguous(struct cow_tensor *tensor, enum cow_format format,
                          uint32_t flags, struct cow_tensor **ret);

/* Gives a view of other sizes if a view can have them, else a copy. LAZY:
 * always a storage of its own, as for cow_tensor_contiguous(). Errors as for
 * cow_tensor_view() but -EXDEV, and as for cow_tensor_clone(). */
int cow_tensor_reshape(struct cow_tensor *tensor, int dims,
                       const int64_t *sizes, uint32_t flags,
                       struct cow_tensor **ret);

/*
 * Gives a tensor of other sizes, and so of another number of elements, on the
 * same storage from the same offset. As PyTorch's resize_(), but the result is
 * another tensor.
 *
 * The storage grows if it must (cow_storage_resize(); pointers into it are
 * invalid then) and never shrinks. Its bytes stay; those behind them are
 * unspecified. All other tensors on the storage stay as they are. `format` is
 * that of the new strides. PRESERVE: the same tensor if the sizes are the same,
 * else contiguous.
 *
 *   -EINVAL   as for cow_tensor_new(); sizes that overflow together with
 *             the offset; a tensor that is quantized by channel
 *   -EPERM    the storage can't grow: memory from elsewhere, or shared with
 *             other processes
 *   -EBUSY    the storage can't grow: its address was given away, and
 *             others hold it
 *   -ENOMEM
 *   other     as for cow_storage_resize()
 */
int cow_tensor_resize(struct cow_tensor *tensor, int dims,
                      const int64_t *sizes, enum cow_format format,
                      struct cow_tensor **ret);

/*
 * Sets every element to the one at `value`, of type `dtype`: converted, and
 * quantized if the tensor is. Places that stand for several elements do no
 * harm.
 *
 *   -EINVAL   no such type, or a quantized one
 *   other     as for cow_tensor_copy()
 */
int cow_tensor_fill(struct cow_tensor *tensor, enum cow_dtype dtype,
                    const void *value);

/* Compares two tensors. 1: the same type, sizes, elements and quantizer; else
 * 0. NaN is not equal to itself. What is not contiguous in host memory is
 * copied first. Errors as for cow_tensor_copy(). */
int cow_tensor_equal(struct cow_tensor *a, struct cow_tensor *b);

/*
 * Writes the tensor as text, nested in brackets, with at most `most` elements
 * of each dimension (0: 6). `buf` has room for `bytes` bytes; the text is cut
 * to fit, and ends with a NUL. Returns the length of the whole text without the
 * NUL, also if it did not fit. `buf` may be NULL if `bytes` is 0.
 *
 *   -EINVAL   `most` is negative
 *   other     as for cow_tensor_copy()
 */
long cow_tensor_print(struct cow_tensor *tensor, int64_t most, char *buf,
                      size_t bytes);

/* ---- Devices: cow_device_ops(3) ----------------------------------------- */

/*
 * The functions that a type of devices implements, so that its tensors can be
 * copied. The CPU and the meta device need none. from_host and to_host are
 * required; each other function may be NULL as said below. `size` may end
 * before the members that are NULL, from `mark` on.
 *
 * Functions get host memory where they say host, else addresses of the device.
 * They never get quantized types. The library stages copies that they can't do
 * directly through contiguous tensors, for all devices alike. Any thread may
 * call them, also several at once.
 */
struct cow_device_ops {
	size_t size;
	const char *name; /* for error sentences */
	/* Copy contiguous bytes: from the host to the device and back, and
	 * within it or to another device of the same type. Copies from and to the
	 * host are finished on return, unless `flags` has COW_COPY_NON_BLOCKING;
	 * if the device has no marks, also then. Other copies are in the order
	 * of the device's work. Return 0 or -errno. `within` NULL: staged through
	 * the host. */
	int (*from_host)(void *user, struct cow_device device, void *to,
	                 const void *host, size_t bytes, uint32_t flags);
	int (*to_host)(void *user, struct cow_device device, void *host,
	               const void *from, size_t bytes, uint32_t flags);
	int (*within)(void *user, struct cow_device to_device, void *to,
	              struct cow_device from_device, const void *from,
	              size_t bytes, uint32_t flags);
	/* Copies on one device, strided and converting. NULL or -ENOTSUP: staged
	 * through the host. `sizes` and the strides (of elements) are of `dims`
	 * dimensions, coalesced. The pointers are at the first elements. */
	int (*strided)(void *user, struct cow_device device, int dims,
	               const int64_t *sizes, void *to, enum cow_dtype to_dtype,
	               const int64_t *to_strides, const void *from,
	               enum cow_dtype from_dtype, const int64_t *from_strides,
	               bool conj, bool neg, uint32_t flags);
	void *user; /* the first argument of all functions */
	/* All four or none. mark: makes a mark behind all that this thread has
	 * queued on the device, and behind what comes before that. If it can't,
	 * it returns -errno when all of that has ended. passed: 1 or 0; never
	 * waits. await: waits. mark_free: passed or not, without waiting. */
	int (*mark)(void *user, struct cow_device device, void **ret);
	int (*passed)(void *user, struct cow_device device, void *mark);
	int (*await)(void *user, struct cow_device device, void *mark);
	void (*mark_free)(void *user, struct cow_device device, void *mark);
	/* current: the index of the device that the thread works on, for an index
	 * of -1. NULL: the first device. host_new: makes a storage of host memory
	 * that the device reaches directly. NULL: there is no such memory. */
	int (*current)(void *user);
	int (*host_new)(void *user, struct cow_device device, size_t bytes,
	                struct cow_storage **ret);
};

/*
 * Registers the functions of a type of devices; NULL ends that. `ops` stays the
 * caller's and must outlive its registration. cow_allocator_set() sets the
 * allocators of its devices. Thread-safe.
 *
 *   -EINVAL   CPU, META, or no such type; incomplete functions
 */
int cow_device_set(enum cow_device_type type, const struct cow_device_ops *ops);

/* ---- DLPack: cow_dlpack(3) ---------------------------------------------- */

/*
 * Export and import arrays by DLPack, as a `DLManagedTensorVersioned *`
 * (versioned) or a `DLManagedTensor *`. dlpack.h has both; nothing of it is
 * needed here.
 *
 * export: the caller owns *ret, and calls its deleter. The storage becomes
 * transparent, since the consumer writes without notice; a lazy one is
 * materialized. With `read_only` the storage stays as it is. Only the versioned
 * form can say that.
 *
 * import: on success the tensor owns `managed`; on failure the caller still
 * does. Nothing is copied. The exception is a read-only array that is not of
 * the CPU: its device copies it at once. A read-only array of the CPU is copied
 * when it is written first. Until then it shows what its owner writes, and its
 * clones are eager copies, as those of external memory.
 *
 * Devices: kDLCPU and kDLCUDAHost are the CPU, kDLCUDA is COW_DEVICE_CUDA,
 * kDLExtDev is COW_DEVICE_PRIVATE, with the same index.
 *
 * Streams: these functions know no stream. Neither waits for a device, but for
 * the copy of a read-only array. A __dlpack__() on top of this honours its
 * `stream` argument itself. Before it exports, it makes the consumer's stream
 * wait for work that was begun on the bytes (copies with
 * COW_COPY_NON_BLOCKING). 1 or None is the device's default stream; -1 asks for
 * no waiting. An importer passes the stream that it will use to the producer,
 * and gets bytes that are ready on it.
 *
 *   -ENOTSUP   a type (quantized ones, too), device, number of lanes,
 *              negative stride or major version that no tensor has
 *   -EINVAL    conj or neg bits; read_only without versioned; no data;
 *              sizes or strides that overflow
 *   -ENODEV    a device that is not registered (cow_device_set())
 *   -ERANGE    a storage that shrank; bytes that are not aligned
 *   -ENOMEM
 *   other      as for cow_storage_expose(), cow_tensor_copy()
 */
int cow_tensor_to_dlpack(struct cow_tensor *tensor, bool versioned,
                         bool read_only, void **ret);
int cow_tensor_from_dlpack(void *managed, bool versioned,
                           struct cow_tensor **ret);

#ifdef __cplusplus
}
#endif

#endif
