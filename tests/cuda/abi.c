/* SPDX-License-Identifier: MIT */
/*
 * Our declarations of the driver's interface against the real ones
 *
 * This file is compiled and never run (tests/cuda/abi.sh), if the toolkit has <cuda.h>. It
 * compares every number, every size and offset, and every form of a call. For the calls,
 * macros replace our structs' names by the real ones, which the first half of this file has
 * shown to be the same. Then the compiler compares the function types exactly.
 */
#ifdef COW_HAVE_CUDA_H
#include <cuda.h>

#include "cuda/abi.h"

#define NUMBER(ours, real)                                                     \
	_Static_assert((long long)(ours) == (long long)(real), #ours " is " #real)
#define SIZE(ours, real)                                                       \
	_Static_assert(sizeof(struct ours) == sizeof(real), #ours " as large as " #real)
#define MEMBER(ours, member, real, its)                                        \
	_Static_assert(offsetof(struct ours, member) == offsetof(real, its) && \
	                       sizeof(((struct ours *)0)->member) ==           \
	                               sizeof(((real *)0)->its),               \
	               #ours "." #member " is " #its)
#define TYPE(ours, real)                                                       \
	_Static_assert(__builtin_types_compatible_p(ours, real), #ours " is " #real)

TYPE(cow__cu_ptr, CUdeviceptr);
TYPE(cow__cu_handle, CUmemGenericAllocationHandle);
TYPE(cow__cu_device, CUdevice);
TYPE(cow__cu_flags, cuuint64_t);
TYPE(cow__cu_host_fn, CUhostFn);
TYPE(cow__cu_shared_fn, CUoccupancyB2DSize);
_Static_assert(sizeof(enum cow__cu_result) == sizeof(CUresult), "CUresult");

/* clang-format off */
NUMBER(COW_CU_SUCCESS, CUDA_SUCCESS);
NUMBER(COW_CU_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
NUMBER(COW_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
NUMBER(COW_CU_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED);
NUMBER(COW_CU_DEINITIALIZED, CUDA_ERROR_DEINITIALIZED);
NUMBER(COW_CU_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY);
NUMBER(COW_CU_CALL_REQUIRES_NEWER_DRIVER, CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER);
NUMBER(COW_CU_DEVICE_UNAVAILABLE, CUDA_ERROR_DEVICE_UNAVAILABLE);
NUMBER(COW_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
NUMBER(COW_CU_INVALID_DEVICE, CUDA_ERROR_INVALID_DEVICE);
NUMBER(COW_CU_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE);
NUMBER(COW_CU_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT);
NUMBER(COW_CU_MAP_FAILED, CUDA_ERROR_MAP_FAILED);
NUMBER(COW_CU_ALREADY_MAPPED, CUDA_ERROR_ALREADY_MAPPED);
NUMBER(COW_CU_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU);
NUMBER(COW_CU_NOT_MAPPED, CUDA_ERROR_NOT_MAPPED);
NUMBER(COW_CU_PEER_ACCESS_UNSUPPORTED, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
NUMBER(COW_CU_INVALID_PTX, CUDA_ERROR_INVALID_PTX);
NUMBER(COW_CU_JIT_COMPILER_NOT_FOUND, CUDA_ERROR_JIT_COMPILER_NOT_FOUND);
NUMBER(COW_CU_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
NUMBER(COW_CU_OPERATING_SYSTEM, CUDA_ERROR_OPERATING_SYSTEM);
NUMBER(COW_CU_INVALID_HANDLE, CUDA_ERROR_INVALID_HANDLE);
NUMBER(COW_CU_ILLEGAL_STATE, CUDA_ERROR_ILLEGAL_STATE);
NUMBER(COW_CU_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
NUMBER(COW_CU_NOT_READY, CUDA_ERROR_NOT_READY);
NUMBER(COW_CU_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
NUMBER(COW_CU_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
NUMBER(COW_CU_PEER_ACCESS_ALREADY_ENABLED, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
NUMBER(COW_CU_PEER_ACCESS_NOT_ENABLED, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
NUMBER(COW_CU_PRIMARY_CONTEXT_ACTIVE, CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE);
NUMBER(COW_CU_CONTEXT_IS_DESTROYED, CUDA_ERROR_CONTEXT_IS_DESTROYED);
NUMBER(COW_CU_HOST_MEMORY_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
NUMBER(COW_CU_HOST_MEMORY_NOT_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
NUMBER(COW_CU_MISALIGNED_ADDRESS, CUDA_ERROR_MISALIGNED_ADDRESS);
NUMBER(COW_CU_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
NUMBER(COW_CU_NOT_PERMITTED, CUDA_ERROR_NOT_PERMITTED);
NUMBER(COW_CU_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
NUMBER(COW_CU_SYSTEM_NOT_READY, CUDA_ERROR_SYSTEM_NOT_READY);
NUMBER(COW_CU_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
NUMBER(COW_CU_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
NUMBER(COW_CU_STREAM_CAPTURE_INVALIDATED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
NUMBER(COW_CU_STREAM_CAPTURE_ISOLATION, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
NUMBER(COW_CU_STREAM_CAPTURE_IMPLICIT, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
NUMBER(COW_CU_CAPTURED_EVENT, CUDA_ERROR_CAPTURED_EVENT);
NUMBER(COW_CU_TIMEOUT, CUDA_ERROR_TIMEOUT);
NUMBER(COW_CU_UNKNOWN, CUDA_ERROR_UNKNOWN);
NUMBER(COW_CU_MAX_THREADS_PER_BLOCK, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
NUMBER(COW_CU_MAX_SHARED_PER_BLOCK, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
NUMBER(COW_CU_WARP_SIZE, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
NUMBER(COW_CU_MULTIPROCESSORS, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
NUMBER(COW_CU_INTEGRATED, CU_DEVICE_ATTRIBUTE_INTEGRATED);
NUMBER(COW_CU_CAN_MAP_HOST, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY);
NUMBER(COW_CU_COMPUTE_MODE, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
NUMBER(COW_CU_ASYNC_ENGINES, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
NUMBER(COW_CU_UNIFIED_ADDRESSING, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
NUMBER(COW_CU_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
NUMBER(COW_CU_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
NUMBER(COW_CU_PAGEABLE_ACCESS, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS);
NUMBER(COW_CU_HOST_POINTER_SAME, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
NUMBER(COW_CU_HOST_REGISTER, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED);
NUMBER(COW_CU_VIRTUAL_MEMORY, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
NUMBER(COW_CU_HANDLE_POSIX_FD, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
NUMBER(COW_CU_MEMORY_POOLS, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
NUMBER(COW_CU_IPC_EVENT, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
NUMBER(COW_CU_STREAM_DEFAULT, CU_STREAM_DEFAULT);
NUMBER(COW_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
NUMBER(COW_CU_CAPTURE_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
NUMBER(COW_CU_CAPTURE_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE);
NUMBER(COW_CU_CAPTURE_INVALIDATED, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
NUMBER(COW_CU_CAPTURE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL);
NUMBER(COW_CU_CAPTURE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
NUMBER(COW_CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
NUMBER(COW_CU_EVENT_BLOCKING_SYNC, CU_EVENT_BLOCKING_SYNC);
NUMBER(COW_CU_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
NUMBER(COW_CU_EVENT_INTERPROCESS, CU_EVENT_INTERPROCESS);
NUMBER(COW_CU_IPC_HANDLE_BYTES, CU_IPC_HANDLE_SIZE);
NUMBER(COW_CU_SCHED_AUTO, CU_CTX_SCHED_AUTO);
NUMBER(COW_CU_SCHED_SPIN, CU_CTX_SCHED_SPIN);
NUMBER(COW_CU_SCHED_YIELD, CU_CTX_SCHED_YIELD);
NUMBER(COW_CU_SCHED_BLOCKING_SYNC, CU_CTX_SCHED_BLOCKING_SYNC);
NUMBER(COW_CU_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
NUMBER(COW_CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
NUMBER(COW_CU_LOCATION_HOST, CU_MEM_LOCATION_TYPE_HOST);
NUMBER(COW_CU_HANDLE_NONE, CU_MEM_HANDLE_TYPE_NONE);
NUMBER(COW_CU_HANDLE_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
NUMBER(COW_CU_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
NUMBER(COW_CU_GRANULARITY_RECOMMENDED, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
NUMBER(COW_CU_ACCESS_NONE, CU_MEM_ACCESS_FLAGS_PROT_NONE);
NUMBER(COW_CU_ACCESS_READ, CU_MEM_ACCESS_FLAGS_PROT_READ);
NUMBER(COW_CU_ACCESS_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
NUMBER(COW_CU_MEMORY_HOST, CU_MEMORYTYPE_HOST);
NUMBER(COW_CU_MEMORY_DEVICE, CU_MEMORYTYPE_DEVICE);
NUMBER(COW_CU_MEMORY_ARRAY, CU_MEMORYTYPE_ARRAY);
NUMBER(COW_CU_MEMORY_UNIFIED, CU_MEMORYTYPE_UNIFIED);
NUMBER(COW_CU_HOST_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
NUMBER(COW_CU_HOST_DEVICEMAP, CU_MEMHOSTREGISTER_DEVICEMAP);
NUMBER(COW_CU_HOST_WRITECOMBINED, CU_MEMHOSTALLOC_WRITECOMBINED);
NUMBER(COW_CU_HOST_READ_ONLY, CU_MEMHOSTREGISTER_READ_ONLY);
NUMBER(COW_CU_POINTER_CONTEXT, CU_POINTER_ATTRIBUTE_CONTEXT);
NUMBER(COW_CU_POINTER_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
NUMBER(COW_CU_POINTER_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_DEVICE_POINTER);
NUMBER(COW_CU_POINTER_HOST_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER);
NUMBER(COW_CU_POINTER_BUFFER_ID, CU_POINTER_ATTRIBUTE_BUFFER_ID);
NUMBER(COW_CU_POINTER_IS_MANAGED, CU_POINTER_ATTRIBUTE_IS_MANAGED);
NUMBER(COW_CU_POINTER_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
NUMBER(COW_CU_POINTER_RANGE_START, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
NUMBER(COW_CU_POINTER_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_SIZE);
NUMBER(COW_CU_POINTER_MAPPED, CU_POINTER_ATTRIBUTE_MAPPED);
NUMBER(COW_CU_FUNC_MAX_THREADS, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
NUMBER(COW_CU_FUNC_SHARED_BYTES, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
NUMBER(COW_CU_FUNC_REGISTERS, CU_FUNC_ATTRIBUTE_NUM_REGS);
NUMBER(COW_CU_PROC_LEGACY_STREAM, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
NUMBER(COW_CU_PROC_FOUND, CU_GET_PROC_ADDRESS_SUCCESS);
NUMBER(COW_CU_PROC_NOT_FOUND, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
NUMBER(COW_CU_PROC_TOO_OLD, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
NUMBER((size_t)COW_CU_STREAM_LEGACY, (size_t)CU_STREAM_LEGACY);
NUMBER(COW_CU_HOST_PORTABLE, CU_MEMHOSTALLOC_PORTABLE);
NUMBER(COW_CU_HOST_DEVICEMAP, CU_MEMHOSTALLOC_DEVICEMAP);

SIZE(cow__cu_uuid, CUuuid);
MEMBER(cow__cu_uuid, bytes, CUuuid, bytes);
SIZE(cow__cu_location, CUmemLocation);
MEMBER(cow__cu_location, type, CUmemLocation, type);
MEMBER(cow__cu_location, id, CUmemLocation, id);
SIZE(cow__cu_prop, CUmemAllocationProp);
MEMBER(cow__cu_prop, type, CUmemAllocationProp, type);
MEMBER(cow__cu_prop, handle_types, CUmemAllocationProp, requestedHandleTypes);
MEMBER(cow__cu_prop, location, CUmemAllocationProp, location);
MEMBER(cow__cu_prop, windows, CUmemAllocationProp, win32HandleMetaData);
MEMBER(cow__cu_prop, flags.compression, CUmemAllocationProp, allocFlags.compressionType);
MEMBER(cow__cu_prop, flags.rdma, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
MEMBER(cow__cu_prop, flags.usage, CUmemAllocationProp, allocFlags.usage);
MEMBER(cow__cu_prop, flags.reserved, CUmemAllocationProp, allocFlags.reserved);
SIZE(cow__cu_access, CUmemAccessDesc);
MEMBER(cow__cu_access, location, CUmemAccessDesc, location);
MEMBER(cow__cu_access, flags, CUmemAccessDesc, flags);
SIZE(cow__cu_ipc_event, CUipcEventHandle);
MEMBER(cow__cu_ipc_event, reserved, CUipcEventHandle, reserved);
SIZE(cow__cu_copy2d, CUDA_MEMCPY2D);
MEMBER(cow__cu_copy2d, src_x, CUDA_MEMCPY2D, srcXInBytes);
MEMBER(cow__cu_copy2d, src_y, CUDA_MEMCPY2D, srcY);
MEMBER(cow__cu_copy2d, src_type, CUDA_MEMCPY2D, srcMemoryType);
MEMBER(cow__cu_copy2d, src_host, CUDA_MEMCPY2D, srcHost);
MEMBER(cow__cu_copy2d, src_device, CUDA_MEMCPY2D, srcDevice);
MEMBER(cow__cu_copy2d, src_array, CUDA_MEMCPY2D, srcArray);
MEMBER(cow__cu_copy2d, src_pitch, CUDA_MEMCPY2D, srcPitch);
MEMBER(cow__cu_copy2d, dst_x, CUDA_MEMCPY2D, dstXInBytes);
MEMBER(cow__cu_copy2d, dst_y, CUDA_MEMCPY2D, dstY);
MEMBER(cow__cu_copy2d, dst_type, CUDA_MEMCPY2D, dstMemoryType);
MEMBER(cow__cu_copy2d, dst_host, CUDA_MEMCPY2D, dstHost);
MEMBER(cow__cu_copy2d, dst_device, CUDA_MEMCPY2D, dstDevice);
MEMBER(cow__cu_copy2d, dst_array, CUDA_MEMCPY2D, dstArray);
MEMBER(cow__cu_copy2d, dst_pitch, CUDA_MEMCPY2D, dstPitch);
MEMBER(cow__cu_copy2d, width_bytes, CUDA_MEMCPY2D, WidthInBytes);
MEMBER(cow__cu_copy2d, height, CUDA_MEMCPY2D, Height);
SIZE(cow__cu_copy3d, CUDA_MEMCPY3D);
MEMBER(cow__cu_copy3d, src_x, CUDA_MEMCPY3D, srcXInBytes);
MEMBER(cow__cu_copy3d, src_y, CUDA_MEMCPY3D, srcY);
MEMBER(cow__cu_copy3d, src_type, CUDA_MEMCPY3D, srcMemoryType);
MEMBER(cow__cu_copy3d, src_host, CUDA_MEMCPY3D, srcHost);
MEMBER(cow__cu_copy3d, src_device, CUDA_MEMCPY3D, srcDevice);
MEMBER(cow__cu_copy3d, src_array, CUDA_MEMCPY3D, srcArray);
MEMBER(cow__cu_copy3d, src_pitch, CUDA_MEMCPY3D, srcPitch);
MEMBER(cow__cu_copy3d, src_z, CUDA_MEMCPY3D, srcZ);
MEMBER(cow__cu_copy3d, src_lod, CUDA_MEMCPY3D, srcLOD);
MEMBER(cow__cu_copy3d, src_height, CUDA_MEMCPY3D, srcHeight);
MEMBER(cow__cu_copy3d, dst_x, CUDA_MEMCPY3D, dstXInBytes);
MEMBER(cow__cu_copy3d, dst_y, CUDA_MEMCPY3D, dstY);
MEMBER(cow__cu_copy3d, dst_type, CUDA_MEMCPY3D, dstMemoryType);
MEMBER(cow__cu_copy3d, dst_host, CUDA_MEMCPY3D, dstHost);
MEMBER(cow__cu_copy3d, dst_device, CUDA_MEMCPY3D, dstDevice);
MEMBER(cow__cu_copy3d, dst_array, CUDA_MEMCPY3D, dstArray);
MEMBER(cow__cu_copy3d, dst_pitch, CUDA_MEMCPY3D, dstPitch);
MEMBER(cow__cu_copy3d, dst_z, CUDA_MEMCPY3D, dstZ);
MEMBER(cow__cu_copy3d, dst_lod, CUDA_MEMCPY3D, dstLOD);
MEMBER(cow__cu_copy3d, dst_height, CUDA_MEMCPY3D, dstHeight);
MEMBER(cow__cu_copy3d, reserved0, CUDA_MEMCPY3D, reserved0);
MEMBER(cow__cu_copy3d, reserved1, CUDA_MEMCPY3D, reserved1);
MEMBER(cow__cu_copy3d, width_bytes, CUDA_MEMCPY3D, WidthInBytes);
MEMBER(cow__cu_copy3d, height, CUDA_MEMCPY3D, Height);
MEMBER(cow__cu_copy3d, depth, CUDA_MEMCPY3D, Depth);
SIZE(cow__cu_copy3d_peer, CUDA_MEMCPY3D_PEER);
MEMBER(cow__cu_copy3d_peer, src_x, CUDA_MEMCPY3D_PEER, srcXInBytes);
MEMBER(cow__cu_copy3d_peer, src_y, CUDA_MEMCPY3D_PEER, srcY);
MEMBER(cow__cu_copy3d_peer, src_type, CUDA_MEMCPY3D_PEER, srcMemoryType);
MEMBER(cow__cu_copy3d_peer, src_host, CUDA_MEMCPY3D_PEER, srcHost);
MEMBER(cow__cu_copy3d_peer, src_device, CUDA_MEMCPY3D_PEER, srcDevice);
MEMBER(cow__cu_copy3d_peer, src_array, CUDA_MEMCPY3D_PEER, srcArray);
MEMBER(cow__cu_copy3d_peer, src_pitch, CUDA_MEMCPY3D_PEER, srcPitch);
MEMBER(cow__cu_copy3d_peer, src_z, CUDA_MEMCPY3D_PEER, srcZ);
MEMBER(cow__cu_copy3d_peer, src_lod, CUDA_MEMCPY3D_PEER, srcLOD);
MEMBER(cow__cu_copy3d_peer, src_height, CUDA_MEMCPY3D_PEER, srcHeight);
MEMBER(cow__cu_copy3d_peer, src_context, CUDA_MEMCPY3D_PEER, srcContext);
MEMBER(cow__cu_copy3d_peer, dst_x, CUDA_MEMCPY3D_PEER, dstXInBytes);
MEMBER(cow__cu_copy3d_peer, dst_y, CUDA_MEMCPY3D_PEER, dstY);
MEMBER(cow__cu_copy3d_peer, dst_type, CUDA_MEMCPY3D_PEER, dstMemoryType);
MEMBER(cow__cu_copy3d_peer, dst_host, CUDA_MEMCPY3D_PEER, dstHost);
MEMBER(cow__cu_copy3d_peer, dst_device, CUDA_MEMCPY3D_PEER, dstDevice);
MEMBER(cow__cu_copy3d_peer, dst_array, CUDA_MEMCPY3D_PEER, dstArray);
MEMBER(cow__cu_copy3d_peer, dst_pitch, CUDA_MEMCPY3D_PEER, dstPitch);
MEMBER(cow__cu_copy3d_peer, dst_z, CUDA_MEMCPY3D_PEER, dstZ);
MEMBER(cow__cu_copy3d_peer, dst_lod, CUDA_MEMCPY3D_PEER, dstLOD);
MEMBER(cow__cu_copy3d_peer, dst_height, CUDA_MEMCPY3D_PEER, dstHeight);
MEMBER(cow__cu_copy3d_peer, dst_context, CUDA_MEMCPY3D_PEER, dstContext);
MEMBER(cow__cu_copy3d_peer, width_bytes, CUDA_MEMCPY3D_PEER, WidthInBytes);
MEMBER(cow__cu_copy3d_peer, height, CUDA_MEMCPY3D_PEER, Height);
MEMBER(cow__cu_copy3d_peer, depth, CUDA_MEMCPY3D_PEER, Depth);
/* clang-format on */

/* From here on our names stand for the real types. */
#define cow__cu_result cudaError_enum
#define cow__cu_uuid CUuuid_st
#define cow__cu_location CUmemLocation_st
#define cow__cu_prop CUmemAllocationProp_st
#define cow__cu_access CUmemAccessDesc_st
#define cow__cu_ipc_event CUipcEventHandle_st
#define cow__cu_copy2d CUDA_MEMCPY2D_st
#define cow__cu_copy3d CUDA_MEMCPY3D_st
#define cow__cu_copy3d_peer CUDA_MEMCPY3D_PEER_st
#define cow__cu_context CUctx_st
#define cow__cu_module CUmod_st
#define cow__cu_function CUfunc_st
#define cow__cu_array CUarray_st
#define cow__cu_event CUevent_st
#define cow__cu_stream CUstream_st

/* The header gives old names to new forms by macros; cuda/calls.h names the exact
 * symbol, which a macro of its own may rename again (per-thread streams), but not in
 * this file. */
#define CALL(need, member, name, symbol, version, parameters)                  \
	typedef enum cow__cu_result ours_##member parameters;                  \
	_Static_assert(__builtin_types_compatible_p(ours_##member,             \
	                                            __typeof__(symbol)),       \
	               #symbol);
#include "cuda/calls.h"

#else
typedef int cow_no_cuda_here;
#endif
