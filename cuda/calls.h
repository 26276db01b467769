/* SPDX-License-Identifier: MIT */
/*
 * The driver's calls that we use, one a line
 *
 * Each file that includes this defines CALL(need, member, name, symbol, version,
 * parameters) first: for the table of driver.h, for its loading, for the test that compares
 * with the real header, and for the reference driver.
 *
 *   need      NEED; or MAY: older drivers lack the call. Then the table has NULL, and its
 *             users must check
 *   name      what cuGetProcAddress() is asked for
 *   version   ... of this version. It fixes the meaning of the call. It is the oldest that
 *             has the form below, so a driver that old still works
 *   symbol    the exported name of that form
 *
 * There is no include guard, because some files include this more than once.
 */
/* clang-format off */
CALL(NEED, init, cuInit, cuInit, 2000,
	(unsigned flags))
CALL(NEED, driver_get_version, cuDriverGetVersion, cuDriverGetVersion, 2020,
	(int *ret))
CALL(MAY, get_proc_address, cuGetProcAddress, cuGetProcAddress_v2, 12000,
	(const char *symbol, void **ret, int version, cow__cu_flags flags, unsigned
	 *ret_status))
CALL(NEED, get_error_name, cuGetErrorName, cuGetErrorName, 6000,
	(enum cow__cu_result result, const char **ret))
CALL(NEED, get_error_string, cuGetErrorString, cuGetErrorString, 6000,
	(enum cow__cu_result result, const char **ret))
CALL(NEED, device_get_count, cuDeviceGetCount, cuDeviceGetCount, 2000,
	(int *ret))
CALL(NEED, device_get, cuDeviceGet, cuDeviceGet, 2000,
	(cow__cu_device *ret, int ordinal))
CALL(NEED, device_get_name, cuDeviceGetName, cuDeviceGetName, 2000,
	(char *name, int bytes, cow__cu_device device))
CALL(NEED, device_get_attribute, cuDeviceGetAttribute, cuDeviceGetAttribute, 2000,
	(int *ret, unsigned attribute, cow__cu_device device))
CALL(MAY, device_get_uuid, cuDeviceGetUuid, cuDeviceGetUuid_v2, 11040,
	(struct cow__cu_uuid *ret, cow__cu_device device))
CALL(NEED, device_total_mem, cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020,
	(size_t *ret, cow__cu_device device))
CALL(NEED, device_get_pci_bus_id, cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, 4010,
	(char *id, int bytes, cow__cu_device device))
CALL(NEED, primary_retain, cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000,
	(struct cow__cu_context **ret, cow__cu_device device))
CALL(NEED, primary_release, cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000,
	(cow__cu_device device))
CALL(NEED, primary_get_state, cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000,
	(cow__cu_device device, unsigned *ret_flags, int *ret_active))
CALL(NEED, primary_set_flags, cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2, 11000,
	(cow__cu_device device, unsigned flags))
CALL(NEED, ctx_get_current, cuCtxGetCurrent, cuCtxGetCurrent, 4000,
	(struct cow__cu_context **ret))
CALL(NEED, ctx_set_current, cuCtxSetCurrent, cuCtxSetCurrent, 4000,
	(struct cow__cu_context *context))
CALL(NEED, ctx_push_current, cuCtxPushCurrent, cuCtxPushCurrent_v2, 4000,
	(struct cow__cu_context *context))
CALL(NEED, ctx_pop_current, cuCtxPopCurrent, cuCtxPopCurrent_v2, 4000,
	(struct cow__cu_context **ret))
CALL(NEED, ctx_get_device, cuCtxGetDevice, cuCtxGetDevice, 2000,
	(cow__cu_device *ret))
CALL(NEED, ctx_synchronize, cuCtxSynchronize, cuCtxSynchronize, 2000,
	(void))
CALL(NEED, stream_create, cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050,
	(struct cow__cu_stream **ret, unsigned flags, int priority))
CALL(NEED, stream_destroy, cuStreamDestroy, cuStreamDestroy_v2, 4000,
	(struct cow__cu_stream *stream))
CALL(NEED, stream_synchronize, cuStreamSynchronize, cuStreamSynchronize, 2000,
	(struct cow__cu_stream *stream))
CALL(NEED, stream_query, cuStreamQuery, cuStreamQuery, 2000,
	(struct cow__cu_stream *stream))
CALL(NEED, stream_wait_event, cuStreamWaitEvent, cuStreamWaitEvent, 3020,
	(struct cow__cu_stream *stream, struct cow__cu_event *event, unsigned flags))
CALL(MAY, stream_is_capturing, cuStreamIsCapturing, cuStreamIsCapturing, 10000,
	(struct cow__cu_stream *stream, unsigned *ret))
CALL(MAY, thread_capture_mode, cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, 10010,
	(unsigned *mode))
CALL(MAY, stream_get_ctx, cuStreamGetCtx, cuStreamGetCtx, 9020,
	(struct cow__cu_stream *stream, struct cow__cu_context **ret))
CALL(MAY, launch_host_func, cuLaunchHostFunc, cuLaunchHostFunc, 10000,
	(struct cow__cu_stream *stream, cow__cu_host_fn fn, void *user))
CALL(NEED, event_create, cuEventCreate, cuEventCreate, 2000,
	(struct cow__cu_event **ret, unsigned flags))
CALL(NEED, event_destroy, cuEventDestroy, cuEventDestroy_v2, 4000,
	(struct cow__cu_event *event))
CALL(NEED, event_record, cuEventRecord, cuEventRecord, 2000,
	(struct cow__cu_event *event, struct cow__cu_stream *stream))
CALL(NEED, event_query, cuEventQuery, cuEventQuery, 2000,
	(struct cow__cu_event *event))
CALL(NEED, event_synchronize, cuEventSynchronize, cuEventSynchronize, 2000,
	(struct cow__cu_event *event))
CALL(NEED, event_elapsed_time, cuEventElapsedTime, cuEventElapsedTime, 2000,
	(float *ret_ms, struct cow__cu_event *start, struct cow__cu_event *end))
CALL(MAY, ipc_get_event, cuIpcGetEventHandle, cuIpcGetEventHandle, 4010,
	(struct cow__cu_ipc_event *ret, struct cow__cu_event *event))
CALL(MAY, ipc_open_event, cuIpcOpenEventHandle, cuIpcOpenEventHandle, 4010,
	(struct cow__cu_event **ret, struct cow__cu_ipc_event handle))
CALL(NEED, mem_get_info, cuMemGetInfo, cuMemGetInfo_v2, 3020,
	(size_t *ret_free, size_t *ret_total))
CALL(MAY, mem_get_granularity, cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020,
	(size_t *ret, const struct cow__cu_prop *prop, unsigned option))
CALL(MAY, mem_create, cuMemCreate, cuMemCreate, 10020,
	(cow__cu_handle *ret, size_t bytes, const struct cow__cu_prop *prop, unsigned long long
	 flags))
CALL(MAY, mem_release, cuMemRelease, cuMemRelease, 10020,
	(cow__cu_handle handle))
CALL(MAY, mem_address_reserve, cuMemAddressReserve, cuMemAddressReserve, 10020,
	(cow__cu_ptr *ret, size_t bytes, size_t alignment, cow__cu_ptr wish, unsigned long long
	 flags))
CALL(MAY, mem_address_free, cuMemAddressFree, cuMemAddressFree, 10020,
	(cow__cu_ptr ptr, size_t bytes))
CALL(MAY, mem_map, cuMemMap, cuMemMap, 10020,
	(cow__cu_ptr ptr, size_t bytes, size_t offset, cow__cu_handle handle, unsigned long
	 long flags))
CALL(MAY, mem_unmap, cuMemUnmap, cuMemUnmap, 10020,
	(cow__cu_ptr ptr, size_t bytes))
CALL(MAY, mem_set_access, cuMemSetAccess, cuMemSetAccess, 10020,
	(cow__cu_ptr ptr, size_t bytes, const struct cow__cu_access *access, size_t count))
CALL(MAY, mem_get_access, cuMemGetAccess, cuMemGetAccess, 10020,
	(unsigned long long *ret, const struct cow__cu_location *location, cow__cu_ptr ptr))
CALL(MAY, mem_export, cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020,
	(void *ret, cow__cu_handle handle, unsigned type, unsigned long long flags))
CALL(MAY, mem_import, cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020,
	(cow__cu_handle *ret, void *shareable, unsigned type))
CALL(MAY, mem_retain, cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000,
	(cow__cu_handle *ret, void *ptr))
CALL(MAY, mem_get_prop, cuMemGetAllocationPropertiesFromHandle, cuMemGetAllocationPropertiesFromHandle, 10020,
	(struct cow__cu_prop *ret, cow__cu_handle handle))
CALL(NEED, mem_alloc, cuMemAlloc, cuMemAlloc_v2, 3020,
	(cow__cu_ptr *ret, size_t bytes))
CALL(NEED, mem_free, cuMemFree, cuMemFree_v2, 3020,
	(cow__cu_ptr ptr))
CALL(MAY, mem_alloc_async, cuMemAllocAsync, cuMemAllocAsync, 11020,
	(cow__cu_ptr *ret, size_t bytes, struct cow__cu_stream *stream))
CALL(MAY, mem_free_async, cuMemFreeAsync, cuMemFreeAsync, 11020,
	(cow__cu_ptr ptr, struct cow__cu_stream *stream))
CALL(NEED, host_register, cuMemHostRegister, cuMemHostRegister_v2, 6050,
	(void *host, size_t bytes, unsigned flags))
CALL(NEED, host_unregister, cuMemHostUnregister, cuMemHostUnregister, 4000,
	(void *host))
CALL(NEED, host_get_device_pointer, cuMemHostGetDevicePointer, cuMemHostGetDevicePointer_v2, 3020,
	(cow__cu_ptr *ret, void *host, unsigned flags))
CALL(NEED, host_get_flags, cuMemHostGetFlags, cuMemHostGetFlags, 2030,
	(unsigned *ret, void *host))
CALL(NEED, host_alloc, cuMemHostAlloc, cuMemHostAlloc, 2020,
	(void **ret, size_t bytes, unsigned flags))
CALL(NEED, host_free, cuMemFreeHost, cuMemFreeHost, 2000,
	(void *host))
CALL(NEED, pointer_get_attribute, cuPointerGetAttribute, cuPointerGetAttribute, 4000,
	(void *ret, unsigned attribute, cow__cu_ptr ptr))
CALL(NEED, pointer_get_attributes, cuPointerGetAttributes, cuPointerGetAttributes, 7000,
	(unsigned count, unsigned *attributes, void **ret, cow__cu_ptr ptr))
CALL(NEED, copy, cuMemcpyAsync, cuMemcpyAsync, 4000,
	(cow__cu_ptr to, cow__cu_ptr from, size_t bytes, struct cow__cu_stream *stream))
CALL(NEED, copy_to_device, cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2, 3020,
	(cow__cu_ptr to, const void *from, size_t bytes, struct cow__cu_stream *stream))
CALL(NEED, copy_to_host, cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, 3020,
	(void *to, cow__cu_ptr from, size_t bytes, struct cow__cu_stream *stream))
CALL(NEED, copy_within, cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2, 3020,
	(cow__cu_ptr to, cow__cu_ptr from, size_t bytes, struct cow__cu_stream *stream))
CALL(NEED, copy_peer, cuMemcpyPeerAsync, cuMemcpyPeerAsync, 4000,
	(cow__cu_ptr to, struct cow__cu_context *to_context, cow__cu_ptr from, struct
	 cow__cu_context *from_context, size_t bytes, struct cow__cu_stream *stream))
CALL(NEED, copy_2d, cuMemcpy2DAsync, cuMemcpy2DAsync_v2, 3020,
	(const struct cow__cu_copy2d *copy, struct cow__cu_stream *stream))
CALL(NEED, copy_3d, cuMemcpy3DAsync, cuMemcpy3DAsync_v2, 3020,
	(const struct cow__cu_copy3d *copy, struct cow__cu_stream *stream))
CALL(NEED, copy_3d_peer, cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync, 4000,
	(const struct cow__cu_copy3d_peer *copy, struct cow__cu_stream *stream))
CALL(NEED, set_8, cuMemsetD8Async, cuMemsetD8Async, 3020,
	(cow__cu_ptr to, unsigned char value, size_t count, struct cow__cu_stream *stream))
CALL(NEED, set_16, cuMemsetD16Async, cuMemsetD16Async, 3020,
	(cow__cu_ptr to, unsigned short value, size_t count, struct cow__cu_stream *stream))
CALL(NEED, set_32, cuMemsetD32Async, cuMemsetD32Async, 3020,
	(cow__cu_ptr to, unsigned value, size_t count, struct cow__cu_stream *stream))
CALL(NEED, can_access_peer, cuDeviceCanAccessPeer, cuDeviceCanAccessPeer, 4000,
	(int *ret, cow__cu_device device, cow__cu_device peer))
CALL(NEED, enable_peer, cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000,
	(struct cow__cu_context *peer, unsigned flags))
CALL(NEED, module_load, cuModuleLoadData, cuModuleLoadData, 2000,
	(struct cow__cu_module **ret, const void *image))
CALL(NEED, module_unload, cuModuleUnload, cuModuleUnload, 2000,
	(struct cow__cu_module *module))
CALL(NEED, module_get_function, cuModuleGetFunction, cuModuleGetFunction, 2000,
	(struct cow__cu_function **ret, struct cow__cu_module *module, const char *name))
CALL(NEED, func_get_attribute, cuFuncGetAttribute, cuFuncGetAttribute, 2020,
	(int *ret, unsigned attribute, struct cow__cu_function *function))
CALL(NEED, launch, cuLaunchKernel, cuLaunchKernel, 4000,
	(struct cow__cu_function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
	 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes, struct
	 cow__cu_stream *stream, void **parameters, void **extra))
CALL(MAY, max_block_size, cuOccupancyMaxPotentialBlockSize, cuOccupancyMaxPotentialBlockSize, 6050,
	(int *ret_grid, int *ret_block, struct cow__cu_function *function, cow__cu_shared_fn
	 shared, size_t shared_bytes, int limit))
/* clang-format on */
