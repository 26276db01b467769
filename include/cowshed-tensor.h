/* SPDX-License-Identifier: MIT */
/*
 * cowshed: tensors and copies between them
 *
 * A *tensor* is a view of a storage: a data type, sizes, strides, an offset, and
 * two bits that say "conjugated" and "negated". Many tensors may view one storage.
 *
 *      int64_t sizes[] = { 64, 3, 224, 224 };
 *      struct cow_tensor *a, *b;
 *
 *      cow_tensor_new(COW_FLOAT32, 4, sizes, NULL, &a);
 *      cow_tensor_to(a, &(struct cow_to){ .size = sizeof(struct cow_to),
 *                        .dtype = COW_BFLOAT16,
 *                        .format = COW_FORMAT_CHANNELS_LAST }, &b);
 *
 * The rules are those of PyTorch (at::to, _to_copy, copy_), but for one: the memory
 * format is a property that every tensor has, also where no known format describes
 * it (COW_FORMAT_NONE), rather than a guess from the strides. So
 * cow_tensor_is_contiguous(t, cow_tensor_format(t)) is always true, and asking for
 * a format always gives it.
 *
 * A tensor is immutable but for its bytes; functions that change its shape return
 * another one. If its storage shrinks (cow_storage_resize()) so that elements are
 * lost, all that would read or write them is -ERANGE until it has grown again. Ownership, errors and threads are as in cowshed.h; one tensor may be
 * read, viewed and copied from in several threads at once.
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
	COW_QUINT8, /* quantized: see below. What follows is quantized, too */
	COW_QINT8,
	COW_QINT32,
	COW_DTYPES,
};

/* Bytes of one element; 0: no such type. */
size_t cow_dtype_bytes(enum cow_dtype dtype);

/* "float32". NULL: no such type. */
const char *cow_dtype_name(enum cow_dtype dtype);
bool cow_dtype_is_floating(enum cow_dtype dtype);
bool cow_dtype_is_complex(enum cow_dtype dtype);

/*
 * Conversions, element by element:
 *
 *   to bool       0 and -0 are false, everything else, NaN too, is true
 *   integers      modulo 2^n, as C does between integers
 *   from floats   towards zero; what does not fit, and NaN, is as the C
 *                 conversion to int64 (uint64) on x86-64 leaves it (INT64_MIN),
 *                 taken modulo 2^n: the same on every machine
 *   to floats     rounded to nearest, ties to even; overflow is infinity, NaN stays
 *                 NaN. float8 e4m3fn has no infinity: overflow and
 *                 infinity are the greatest number, 448
 *   complex       to real: the imaginary part is dropped (see cow_warning_set());
 *                 to bool: either part is not 0; from real: the imaginary part is 0
 */

/* Called once a process when a copy drops imaginary parts. NULL: nobody is told. */
typedef void cow_warning_fn(void *user, const char *sentence);
void cow_warning_set(cow_warning_fn *warning, void *user);

/* ---- Memory formats: cow_format(3) -------------------------------------- */

enum cow_format {
	COW_FORMAT_CONTIGUOUS = 0, /* the last dimension is dense */
	COW_FORMAT_CHANNELS_LAST,  /* of 4 dimensions: N, H, W, C in memory */
	COW_FORMAT_CHANNELS_LAST_3D, /* of 5: N, D, H, W, C */
	COW_FORMAT_NONE,           /* none of these */
	COW_FORMAT_PRESERVE,       /* an argument alone: as the source */
};
const char *cow_format_name(enum cow_format format);

/* ---- Tensors: cow_tensor(3) --------------------------------------------- */

#define COW_DIMS_MAX 64

struct cow_tensor;

struct cow_tensor_options {
	size_t size;
	struct cow_device device;     /* of the storage; index -1: the current one */
	uint32_t format;              /* enum cow_format; not PRESERVE, NONE */
	uint32_t storage_flags;       /* enum cow_storage_flags */
	struct cow_allocator *allocator; /* NULL: the device's */
};

/* A tensor on a storage of its own, bytes unspecified. NULL options: CPU,
 * contiguous. -EINVAL: no such type, negative sizes, more than COW_DIMS_MAX
 * dimensions, a format for another number of them, sizes that overflow; else as
 * cow_storage_new(). */
int cow_tensor_new(enum cow_dtype dtype, int dims, const int64_t *sizes,
                   const struct cow_tensor_options *options,
                   struct cow_tensor **ret);

/*
 * A view of a storage, of which it takes a reference. Strides and offset count
 * elements; NULL strides: contiguous. -EINVAL: as above, negative strides or
 * offset; -ERANGE: an element outside of the storage, or the offset of an element
 * that is not a multiple of its size.
 */
int cow_tensor_on(struct cow_storage *storage, enum cow_dtype dtype, int dims,
                  const int64_t *sizes, const int64_t *strides, int64_t offset,
                  struct cow_tensor **ret);

struct cow_tensor *cow_tensor_ref(struct cow_tensor *tensor);
struct cow_tensor *cow_tensor_unref(struct cow_tensor *tensor);

enum cow_dtype cow_tensor_dtype(const struct cow_tensor *tensor);
int cow_tensor_dims(const struct cow_tensor *tensor);
const int64_t *cow_tensor_sizes(const struct cow_tensor *tensor);
const int64_t *cow_tensor_strides(const struct cow_tensor *tensor);
int64_t cow_tensor_offset(const struct cow_tensor *tensor); /* elements */
int64_t cow_tensor_numel(const struct cow_tensor *tensor);
struct cow_device cow_tensor_device(const struct cow_tensor *tensor);
bool cow_tensor_is_conj(const struct cow_tensor *tensor);
bool cow_tensor_is_neg(const struct cow_tensor *tensor);

/* The storage, borrowed. */
struct cow_storage *cow_tensor_storage(const struct cow_tensor *tensor);

/*
 * The format: what the tensor was made with as long as its strides are right for
 * it, else what they are right for: contiguous before channels last. Dimensions of
 * size 1 have no say, so an N111 tensor that was made channels last stays so
 * through views that keep its dimensions.
 */
enum cow_format cow_tensor_format(const struct cow_tensor *tensor);

/* Are the strides right for this format? NONE: always. PRESERVE: for its own. */
bool cow_tensor_is_contiguous(const struct cow_tensor *tensor,
                              enum cow_format format);

/* Does every element have a place of its own, with none in between, in whatever
 * order? */
bool cow_tensor_is_dense(const struct cow_tensor *tensor);

/* Elements for reading, from the tensor's first one on: only host memory. conj and
 * neg bits are not resolved. NULL for no elements, or if the storage shrank. */
const void *cow_tensor_data(const struct cow_tensor *tensor);

/* For writing: as cow_storage_data_mut_range() of what the tensor spans. */
int cow_tensor_data_mut(struct cow_tensor *tensor, enum cow_write_hint hint,
                        void **ret);

/* ---- Views: other tensors on the same storage: cow_tensor_view(3) ------- */

/* `dim` from 0, or from -1 backwards. Slices clamp start and end as Python does;
 * step > 0. -EINVAL. */
int cow_tensor_slice(struct cow_tensor *tensor, int dim, int64_t start,
                     int64_t end, int64_t step, struct cow_tensor **ret);
int cow_tensor_select(struct cow_tensor *tensor, int dim, int64_t index,
                      struct cow_tensor **ret);
int cow_tensor_permute(struct cow_tensor *tensor, const int *dims,
                       struct cow_tensor **ret);
int cow_tensor_transpose(struct cow_tensor *tensor, int dim0, int dim1,
                         struct cow_tensor **ret);
/* New dimensions in front; -1 keeps a size; size 1 is repeated (stride 0). */
int cow_tensor_expand(struct cow_tensor *tensor, int dims, const int64_t *sizes,
                      struct cow_tensor **ret);
int cow_tensor_unsqueeze(struct cow_tensor *tensor, int dim,
                         struct cow_tensor **ret);
int cow_tensor_squeeze(struct cow_tensor *tensor, int dim,
                       struct cow_tensor **ret);
/* Other sizes for the same elements; one may be -1. -EINVAL: another number of
 * elements; -EXDEV: that would need a copy. */
int cow_tensor_view(struct cow_tensor *tensor, int dims, const int64_t *sizes,
                    struct cow_tensor **ret);
/* Anything that lies in the storage. */
int cow_tensor_as_strided(struct cow_tensor *tensor, int dims,
                          const int64_t *sizes, const int64_t *strides,
                          int64_t offset, struct cow_tensor **ret);
/* Flips a bit; conj of a real tensor is the same tensor. neg: -EINVAL of bool and of
 * quantized types. */
int cow_tensor_conj(struct cow_tensor *tensor, struct cow_tensor **ret);
int cow_tensor_neg(struct cow_tensor *tensor, struct cow_tensor **ret);

/* ---- Quantized tensors: cow_quantizer(3) -------------------------------- */

/*
 * The bytes q of a quint8, qint8 or qint32 tensor stand for scale * (q - zero point).
 * The pair is one for the whole tensor, or one for each index of a dimension, the
 * axis. It is a property of the tensor, which views share: a permuted one has the axis
 * elsewhere, a slice of the axis has the channels of the slice, and one index of it
 * has its pair for the whole. Where the channels would not be a dimension any more
 * (as_strided, view, reshape), -EINVAL.
 *
 * Quantizing computes in float32, as PyTorch does: x times the reciprocal of the scale,
 * plus the zero point, to the nearest integer, ties to even; what does not fit is the
 * type's least or greatest number, NaN the greatest (of qint32 the least).
 *
 * Copies (as PyTorch's copy_): float32 to quantized quantizes, whatever the sizes and strides;
 * of two quantized ones with the same type and scheme the bytes are copied, and the
 * destination gets the source's quantizer (that tensor alone: views of it made before
 * keep theirs, and read the new bytes by it). All else is -EINVAL, also in
 * cow_tensor_to(): from quantized to float by cow_tensor_dequantize(). conj and neg
 * bits, and DLPack, have no quantized form. The bytes as integers are
 * cow_tensor_on() of the same storage.
 */
enum cow_qscheme {
	COW_QSCHEME_PER_TENSOR = 1,  /* 1 channel; axis has no meaning */
	COW_QSCHEME_PER_CHANNEL = 2, /* as many as the axis has indexes */
};

struct cow_quantizer {
	size_t size;
	uint32_t scheme; /* enum cow_qscheme */
	int32_t axis;    /* from 0 */
	int64_t channels;
	const double *scales; /* used as float32: positive, and so is 1 / scale */
	const int64_t *zero_points; /* numbers of the type */
};

/* As cow_tensor_new() and cow_tensor_on(), which refuse quantized types. The
 * quantizer is copied. -EINVAL, too: a quantizer that does not fit. */
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

/* `ret->size` is set by the caller. The arrays are the tensor's, until it is freed or
 * copied to. -ENODATA: it is not quantized. */
int cow_tensor_get_quantizer(const struct cow_tensor *tensor,
                             struct cow_quantizer *ret);

/* Fresh tensors of the same sizes on the same device: quantized from float32, and
 * float32 from quantized. -EINVAL: another type; else as cow_tensor_copy(). */
int cow_tensor_quantize(struct cow_tensor *tensor, enum cow_dtype dtype,
                        const struct cow_quantizer *quantizer,
                        struct cow_tensor **ret);
int cow_tensor_dequantize(struct cow_tensor *tensor, struct cow_tensor **ret);

/* ---- Copies: cow_tensor_copy(3) ----------------------------------------- */

enum cow_copy_flags {
	COW_COPY_LAZY = 1 << 0, /* share pages where both sides lie alike: see below */
	COW_COPY_NON_BLOCKING = 1 << 1,
	COW_COPY_IGNORE_OVERLAP = 1 << 2,
	/* said to devices alone: a mark follows, or memory is let go that it uses;
	 * no graph can have it */
	COW_COPY_MARKED = 1 << 3,
};

/*
 * Copies `from` to `to`, converting types, resolving conj and neg, repeating
 * dimensions of size 1 (and missing ones) of `from`. Never materializes the source;
 * a destination that is written as a whole is not copied first. (PyTorch's copy_.)
 *
 * LAZY: between dense tensors of one type and the same strides, on two storages of host
 * memory, nothing is copied but less than a page at each end: both share the pages
 * until either is written, which costs as after a lazy clone. If both are all of their
 * storages, one reference; else some mappings, where the first bytes are at the same
 * place in a page, the part has 384 KiB and is not a small part of the source. Bytes
 * are copied where pages can't be shared (see cow_storage_lazy_clone()), and where the
 * destination's address was given away. The result is the same.
 *
 * Nothing is done where both are the same elements of the same type and bits.
 * -EINVAL: sizes that don't go together, a destination in which one place stands for
 * several elements, or that overlaps the source (the test is exact for what is
 * dense, and errs towards an error else; IGNORE_OVERLAP leaves it out); -ERANGE: a
 * storage that shrank; -ENODATA: a meta tensor has no bytes to copy from; -ENODEV,
 * -ENOMEM. After these the destination is as it was. A device that fails on the way,
 * with an error of its own, may have written some of it; one that is dense and shared
 * its bytes with a lazy clone is as it was.
 */
int cow_tensor_copy(struct cow_tensor *to, struct cow_tensor *from,
                    uint32_t flags);

/*
 * NON_BLOCKING means: what is on a device may be unfinished on return, and is in the
 * order of that device's work. Host memory that is read may still be read then, if the
 * device reaches it directly (else it has been); its bytes must stay as they are until
 * the device has got to it. Host memory that is written is finished on return: who
 * wants it later takes a handle.
 *
 * begin: cow_tensor_copy() with NON_BLOCKING and a handle, which tells when both sides
 * may be used again, and holds both tensors, and what else the copy needs, until then.
 * To host memory, too, it may return before the bytes are there: reading them before
 * the work has ended gives anything. What the devices can't leave unfinished is
 * finished on return: pageable host memory that is filled, elements that are spread
 * over it, devices without marks. Its errors are as cow_tensor_copy()'s; *ret is not
 * NULL if it gives 0.
 *
 * poll: 1: ended; 0: not yet; never waits. wait: 0 when it has ended. Both: -errno if
 * the device failed, for ever. Any thread; one at a time.
 * free: ended or not, without waiting: what is under way goes on, and keeps what it
 * holds; that is looked after whenever work is begun or freed. Returns NULL.
 *
 * fork: in a child the work of its parent fails, and can be freed.
 */
struct cow_work;
int cow_tensor_copy_begin(struct cow_tensor *to, struct cow_tensor *from,
                          uint32_t flags, struct cow_work **ret);
int cow_work_poll(struct cow_work *work);
int cow_work_wait(struct cow_work *work);
struct cow_work *cow_work_free(struct cow_work *work);

struct cow_to {
	size_t size;
	int32_t dtype;  /* enum cow_dtype, or -1: as it is */
	struct cow_device device;
	bool set_device;
	bool copy;      /* also if nothing changes */
	uint32_t format; /* enum cow_format; PRESERVE: as it is */
	uint32_t flags; /* enum cow_copy_flags */
};

/*
 * The same tensor (a reference) if nothing changes, else a fresh one: PRESERVE keeps
 * the strides of a dense tensor, and the order of dimensions of another one
 * (PyTorch's Tensor.to). NONE is -EINVAL. A device of index -1 is the one that the
 * thread works on. From a device to the CPU, NON_BLOCKING gives memory that the device
 * reaches directly, if there is such a thing and enough of it; the bytes are there on
 * return.
 */
int cow_tensor_to(struct cow_tensor *tensor, const struct cow_to *to,
                  struct cow_tensor **ret);

/* A fresh tensor with the same elements; conj and neg stay bits. lazy: it shares the
 * storage's bytes until either is written, and its strides. */
int cow_tensor_clone(struct cow_tensor *tensor, enum cow_format format,
                     struct cow_tensor **ret);
int cow_tensor_lazy_clone(struct cow_tensor *tensor, struct cow_tensor **ret);

/* The same tensor if it is contiguous so, else a copy. LAZY: always a storage of its
 * own, which shares bytes if it is. -EINVAL: other flags. */
int cow_tensor_contiguous(struct cow_tensor *tensor, enum cow_format format,
                          uint32_t flags, struct cow_tensor **ret);

/* A view if one will do, else a copy. LAZY as above. */
int cow_tensor_reshape(struct cow_tensor *tensor, int dims,
                       const int64_t *sizes, uint32_t flags,
                       struct cow_tensor **ret);

/*
 * Other sizes, and with them another number of elements, on the same storage, from
 * the same offset. The storage grows if it must (cow_storage_resize(); pointers into
 * it are invalid then) and never shrinks; its bytes stay, and those behind them are
 * unspecified. All other tensors on it stay what they are. PyTorch's resize_() but for
 * the result, which is another tensor.
 *
 * format: of the new strides. PRESERVE: the same tensor if the sizes are the same,
 * else contiguous. -EINVAL: as cow_tensor_new(), sizes that overflow together with the
 * offset, a tensor that is quantized by channel; if the storage would have to grow:
 * -EPERM: it can't (memory from elsewhere, or shared with other processes); -EBUSY: its
 * address was given away and others hold it; -ENOMEM.
 */
int cow_tensor_resize(struct cow_tensor *tensor, int dims,
                      const int64_t *sizes, enum cow_format format,
                      struct cow_tensor **ret);

/* Every element becomes the one at `value`, of type `dtype`, converted, and quantized
 * if the tensor is. -EINVAL: a quantized `dtype`. */
int cow_tensor_fill(struct cow_tensor *tensor, enum cow_dtype dtype,
                    const void *value);

/* 1: the same type, sizes, elements (NaN is not equal to itself) and quantizer, else
 * 0. */
int cow_tensor_equal(struct cow_tensor *a, struct cow_tensor *b);

/* Writes the tensor as text, nested in brackets, with at most `most` elements of
 * each dimension (0: 6). The length without the final NUL, also if it did not fit. */
long cow_tensor_print(struct cow_tensor *tensor, int64_t most, char *buf,
                      size_t bytes);

/* ---- Devices: cow_device_ops(3) ----------------------------------------- */

/*
 * What a device must be able to do for its tensors to be copied. The CPU and the
 * meta device are there; others register one. Functions get host memory where they
 * say host, else addresses of the device, and never quantized types. Copies that these can't do directly are
 * staged through contiguous tensors, for all devices alike.
 */
struct cow_device_ops {
	size_t size;
	const char *name;
	/* Contiguous bytes, host to device and back, and within it or to another
	 * device of the same type. Those from and to the host are finished on return,
	 * unless `flags` has COW_COPY_NON_BLOCKING, and then still if the device has no
	 * marks; others are in the order of the device's work. 0 or -errno. */
	int (*from_host)(void *user, struct cow_device device, void *to,
	                 const void *host, size_t bytes, uint32_t flags);
	int (*to_host)(void *user, struct cow_device device, void *host,
	               const void *from, size_t bytes, uint32_t flags);
	int (*within)(void *user, struct cow_device to_device, void *to,
	              struct cow_device from_device, const void *from,
	              size_t bytes, uint32_t flags);
	/* Strided, converting copy on one device; NULL or -ENOTSUP: staged through
	 * the host. Sizes and strides (of elements) of `dims` dimensions, coalesced;
	 * the pointers are at the first elements. */
	int (*strided)(void *user, struct cow_device device, int dims,
	               const int64_t *sizes, void *to, enum cow_dtype to_dtype,
	               const int64_t *to_strides, const void *from,
	               enum cow_dtype from_dtype, const int64_t *from_strides,
	               bool conj, bool neg, uint32_t flags);
	void *user;
	/* All four or none; `size` may end before them. mark: a point behind all that
	 * this thread has queued on the device, and what comes before that. passed: 1 or
	 * 0, and never waits; await: waits. mark_free: passed or not, without waiting. A
	 * mark that can't be made: -errno, when all of that has ended. */
	int (*mark)(void *user, struct cow_device device, void **ret);
	int (*passed)(void *user, struct cow_device device, void *mark);
	int (*await)(void *user, struct cow_device device, void *mark);
	void (*mark_free)(void *user, struct cow_device device, void *mark);
	/* Each may be NULL; `size` may end before them. current: which of them the thread
	 * works on, for an index of -1 (NULL: the first). host_new: a storage of host
	 * memory that the device reaches directly (NULL: there is no such thing). */
	int (*current)(void *user);
	int (*host_new)(void *user, struct cow_device device, size_t bytes,
	                struct cow_storage **ret);
};

/* `ops` must outlive its registration; NULL ends it. -EINVAL: CPU, META, or no such
 * type. Allocators of its devices are set by cow_allocator_set(). */
int cow_device_set(enum cow_device_type type, const struct cow_device_ops *ops);

/* ---- DLPack: cow_dlpack(3) ---------------------------------------------- */

/*
 * `DLManagedTensorVersioned *` (versioned) or `DLManagedTensor *`, as in dlpack.h,
 * of which nothing is needed here. export: the caller owns it, and calls its
 * deleter; the storage is materialized, since its consumer writes without notice,
 * unless `read_only`, which only the versioned form can say (-EINVAL). import takes
 * it over on success. -ENOTSUP: a type (quantized ones, too), device or number of
 * lanes that there is no tensor of; -EINVAL: conj or neg bits.
 *
 * Devices: kDLCPU and kDLCUDAHost are the CPU, kDLCUDA is COW_DEVICE_CUDA, kDLExtDev
 * COW_DEVICE_PRIVATE, with the same index; -ENODEV: that is not registered
 * (cow_device_set()). Nothing is copied, but for an import that is read-only and not
 * of the CPU, which is copied at once, by its device. One of the CPU is copied when it is
 * written first; until then it shows what its owner writes, and clones are eager copies,
 * as those of external memory.
 *
 * Streams: there is no stream here, and neither call waits for a device. The
 * `stream` argument of a __dlpack__() on top of this is that function's to honour:
 * before it exports, it makes the consumer's stream wait for what was begun on the
 * bytes (copies with COW_COPY_NON_BLOCKING); 1 or None is the device's default stream,
 * -1 asks for no waiting. Who imports passes the stream that it will use to the
 * producer, and gets bytes that are ready on it.
 */
int cow_tensor_to_dlpack(struct cow_tensor *tensor, bool versioned,
                         bool read_only, void **ret);
int cow_tensor_from_dlpack(void *managed, bool versioned,
                           struct cow_tensor **ret);

#ifdef __cplusplus
}
#endif

#endif
