/* SPDX-License-Identifier: MIT */
/*
 * The driver's types, declared by us
 *
 * libcuda's binary interface is stable: a number or a member never changes its meaning. So
 * this file declares the part that is used. The library is built without the toolkit, and
 * loads without the driver. tests/cuda/abi.c compares each line with the real <cuda.h>, if
 * there is one.
 *
 * Only cuda/ and the tests include this. cow__cu_error() turns a result of the driver into
 * an error of ours, and no other code sees it.
 */
#ifndef COW_CUDA_ABI_H
#define COW_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

/* The driver's CUresult. */
enum cow__cu_result {
	COW_CU_SUCCESS = 0,
	COW_CU_INVALID_VALUE = 1,
	COW_CU_OUT_OF_MEMORY = 2,
	COW_CU_NOT_INITIALIZED = 3,
	COW_CU_DEINITIALIZED = 4,
	COW_CU_STUB_LIBRARY = 34,
	COW_CU_CALL_REQUIRES_NEWER_DRIVER = 36,
	COW_CU_DEVICE_UNAVAILABLE = 46,
	COW_CU_NO_DEVICE = 100,
	COW_CU_INVALID_DEVICE = 101,
	COW_CU_INVALID_IMAGE = 200,
	COW_CU_INVALID_CONTEXT = 201,
	COW_CU_MAP_FAILED = 205,
	COW_CU_ALREADY_MAPPED = 208,
	COW_CU_NO_BINARY_FOR_GPU = 209,
	COW_CU_NOT_MAPPED = 211,
	COW_CU_PEER_ACCESS_UNSUPPORTED = 217,
	COW_CU_INVALID_PTX = 218,
	COW_CU_JIT_COMPILER_NOT_FOUND = 221,
	COW_CU_UNSUPPORTED_PTX_VERSION = 222,
	COW_CU_OPERATING_SYSTEM = 304,
	COW_CU_INVALID_HANDLE = 400,
	COW_CU_ILLEGAL_STATE = 401,
	COW_CU_NOT_FOUND = 500,
	COW_CU_NOT_READY = 600,
	COW_CU_ILLEGAL_ADDRESS = 700,
	COW_CU_LAUNCH_OUT_OF_RESOURCES = 701,
	COW_CU_PEER_ACCESS_ALREADY_ENABLED = 704,
	COW_CU_PEER_ACCESS_NOT_ENABLED = 705,
	COW_CU_PRIMARY_CONTEXT_ACTIVE = 708,
	COW_CU_CONTEXT_IS_DESTROYED = 709,
	COW_CU_HOST_MEMORY_ALREADY_REGISTERED = 712,
	COW_CU_HOST_MEMORY_NOT_REGISTERED = 713,
	COW_CU_MISALIGNED_ADDRESS = 716,
	COW_CU_LAUNCH_FAILED = 719,
	COW_CU_NOT_PERMITTED = 800,
	COW_CU_NOT_SUPPORTED = 801,
	COW_CU_SYSTEM_NOT_READY = 802,
	COW_CU_SYSTEM_DRIVER_MISMATCH = 803,
	COW_CU_STREAM_CAPTURE_UNSUPPORTED = 900,
	COW_CU_STREAM_CAPTURE_INVALIDATED = 901,
	COW_CU_STREAM_CAPTURE_ISOLATION = 905,
	COW_CU_STREAM_CAPTURE_IMPLICIT = 906,
	COW_CU_CAPTURED_EVENT = 907,
	COW_CU_TIMEOUT = 909,
	COW_CU_UNKNOWN = 999,
};

/* Addresses of a device; they share one space with the host's. */
typedef unsigned long long cow__cu_ptr;
/* Physical memory. */
typedef unsigned long long cow__cu_handle;
typedef int cow__cu_device;
/* The driver declares most flags as unsigned long long, and these as cuuint64_t. */
typedef uint64_t cow__cu_flags;
typedef void (*cow__cu_host_fn)(void *user);
typedef size_t (*cow__cu_shared_fn)(int block_size);

/* Never defined here: the driver's own types. */
struct cow__cu_context;
struct cow__cu_module;
struct cow__cu_function;
struct cow__cu_array;
struct cow__cu_event;
struct cow__cu_stream;

/* The explicit name of the stream that all blocking streams of a context wait for. */
#define COW_CU_STREAM_LEGACY ((struct cow__cu_stream *)0x1)

enum {
	/* cuDeviceGetAttribute */
	COW_CU_MAX_THREADS_PER_BLOCK = 1,
	COW_CU_MAX_SHARED_PER_BLOCK = 8,
	COW_CU_WARP_SIZE = 10,
	COW_CU_MULTIPROCESSORS = 16,
	COW_CU_INTEGRATED = 18,
	COW_CU_CAN_MAP_HOST = 19,
	COW_CU_COMPUTE_MODE = 20,
	COW_CU_ASYNC_ENGINES = 40,
	COW_CU_UNIFIED_ADDRESSING = 41,
	COW_CU_CAPABILITY_MAJOR = 75,
	COW_CU_CAPABILITY_MINOR = 76,
	COW_CU_PAGEABLE_ACCESS = 88,
	COW_CU_HOST_POINTER_SAME = 91,
	COW_CU_HOST_REGISTER = 99,
	COW_CU_VIRTUAL_MEMORY = 102,
	COW_CU_HANDLE_POSIX_FD = 103,
	COW_CU_MEMORY_POOLS = 115,
	COW_CU_IPC_EVENT = 125,

	/* Streams and events */
	COW_CU_STREAM_DEFAULT = 0,
	COW_CU_STREAM_NON_BLOCKING = 1,
	COW_CU_CAPTURE_NONE = 0,
	COW_CU_CAPTURE_ACTIVE = 1,
	COW_CU_CAPTURE_INVALIDATED = 2,
	COW_CU_CAPTURE_GLOBAL = 0, /* modes */
	COW_CU_CAPTURE_THREAD_LOCAL = 1,
	COW_CU_CAPTURE_RELAXED = 2,
	COW_CU_EVENT_BLOCKING_SYNC = 1,
	COW_CU_EVENT_DISABLE_TIMING = 2,
	COW_CU_EVENT_INTERPROCESS = 4,
	COW_CU_IPC_HANDLE_BYTES = 64,

	/* Contexts */
	COW_CU_SCHED_AUTO = 0,
	COW_CU_SCHED_SPIN = 1,
	COW_CU_SCHED_YIELD = 2,
	COW_CU_SCHED_BLOCKING_SYNC = 4,

	/* Memory */
	COW_CU_ALLOCATION_PINNED = 1,
	COW_CU_LOCATION_DEVICE = 1,
	COW_CU_LOCATION_HOST = 2,
	COW_CU_HANDLE_NONE = 0,
	COW_CU_HANDLE_FD = 1,
	COW_CU_GRANULARITY_MINIMUM = 0,
	COW_CU_GRANULARITY_RECOMMENDED = 1,
	COW_CU_ACCESS_NONE = 0,
	COW_CU_ACCESS_READ = 1,
	COW_CU_ACCESS_READWRITE = 3,
	COW_CU_MEMORY_HOST = 1,
	COW_CU_MEMORY_DEVICE = 2,
	COW_CU_MEMORY_ARRAY = 3,
	COW_CU_MEMORY_UNIFIED = 4,
	COW_CU_HOST_PORTABLE = 1,
	COW_CU_HOST_DEVICEMAP = 2,
	COW_CU_HOST_WRITECOMBINED = 4,
	COW_CU_HOST_READ_ONLY = 8,

	/* cuPointerGetAttribute */
	COW_CU_POINTER_CONTEXT = 1,
	COW_CU_POINTER_MEMORY_TYPE = 2,
	COW_CU_POINTER_DEVICE_POINTER = 3,
	COW_CU_POINTER_HOST_POINTER = 4,
	COW_CU_POINTER_BUFFER_ID = 7,
	COW_CU_POINTER_IS_MANAGED = 8,
	COW_CU_POINTER_DEVICE_ORDINAL = 9,
	COW_CU_POINTER_RANGE_START = 11,
	COW_CU_POINTER_RANGE_SIZE = 12,
	COW_CU_POINTER_MAPPED = 13,

	/* cuFuncGetAttribute */
	COW_CU_FUNC_MAX_THREADS = 0,
	COW_CU_FUNC_SHARED_BYTES = 1,
	COW_CU_FUNC_REGISTERS = 4,

	/* cuGetProcAddress */
	COW_CU_PROC_LEGACY_STREAM = 1,
	COW_CU_PROC_FOUND = 0,
	COW_CU_PROC_NOT_FOUND = 1,
	COW_CU_PROC_TOO_OLD = 2,
};

struct cow__cu_uuid {
	char bytes[16];
};

struct cow__cu_location {
	unsigned type;
	int id;
};

struct cow__cu_prop {
	unsigned type;
	unsigned handle_types;
	struct cow__cu_location location;
	void *windows;
	struct {
		unsigned char compression;
		unsigned char rdma;
		unsigned short usage;
		unsigned char reserved[4];
	} flags;
};

struct cow__cu_access {
	struct cow__cu_location location;
	unsigned flags;
};

struct cow__cu_ipc_event {
	char reserved[COW_CU_IPC_HANDLE_BYTES];
};

struct cow__cu_copy2d {
	size_t src_x, src_y;
	unsigned src_type;
	const void *src_host;
	cow__cu_ptr src_device;
	struct cow__cu_array *src_array;
	size_t src_pitch;
	size_t dst_x, dst_y;
	unsigned dst_type;
	void *dst_host;
	cow__cu_ptr dst_device;
	struct cow__cu_array *dst_array;
	size_t dst_pitch;
	size_t width_bytes, height;
};

struct cow__cu_copy3d {
	size_t src_x, src_y, src_z, src_lod;
	unsigned src_type;
	const void *src_host;
	cow__cu_ptr src_device;
	struct cow__cu_array *src_array;
	void *reserved0;
	size_t src_pitch, src_height;
	size_t dst_x, dst_y, dst_z, dst_lod;
	unsigned dst_type;
	void *dst_host;
	cow__cu_ptr dst_device;
	struct cow__cu_array *dst_array;
	void *reserved1;
	size_t dst_pitch, dst_height;
	size_t width_bytes, height, depth;
};

/* As copy3d, with contexts in place of its reserved words. */
struct cow__cu_copy3d_peer {
	size_t src_x, src_y, src_z, src_lod;
	unsigned src_type;
	const void *src_host;
	cow__cu_ptr src_device;
	struct cow__cu_array *src_array;
	struct cow__cu_context *src_context;
	size_t src_pitch, src_height;
	size_t dst_x, dst_y, dst_z, dst_lod;
	unsigned dst_type;
	void *dst_host;
	cow__cu_ptr dst_device;
	struct cow__cu_array *dst_array;
	struct cow__cu_context *dst_context;
	size_t dst_pitch, dst_height;
	size_t width_bytes, height, depth;
};

#endif
