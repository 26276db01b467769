/* SPDX-License-Identifier: MIT */
/*
 * Devices, their primary contexts, and the current context of a thread
 */
#include "tests/driver/ref.h"

#include <stdio.h>
#include <string.h>

enum { DEPTH = 16 };

struct cow__cu_context ref_contexts[REF_DEVICES];
/* The last is current; NULL may be, as in the real one. */
static _Thread_local struct cow__cu_context *stack[DEPTH];
static _Thread_local int depth;

struct cow__cu_context *ref_current(void)
{
	return depth ? stack[depth - 1] : NULL;
}

enum cow__cu_result ref_alive(struct cow__cu_context *context)
{
	if (!context)
		return COW_CU_INVALID_CONTEXT;
	if (context < ref_contexts || context >= ref_contexts + REF_DEVICES)
		return ref_undefined(COW_CU_INVALID_CONTEXT, "%p is no context",
		                     (void *)context);
	if (!context->retained)
		return COW_CU_CONTEXT_IS_DESTROYED;
	return context->sticky;
}

bool ref_device_ok(int device)
{
	return device >= 0 && device < ref.devices;
}

bool ref_peers(int device, int peer)
{
	return device != peer && ref.peers;
}

enum cow__cu_result cuDeviceGetCount(int *ret)
{
	ENTER(device_get_count);

	if (!ret)
		return COW_CU_INVALID_VALUE;
	*ret = ref.devices;
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuDeviceGet(cow__cu_device *ret, int ordinal)
{
	ENTER(device_get);

	if (!ret)
		return COW_CU_INVALID_VALUE;
	if (!ref_device_ok(ordinal))
		return COW_CU_INVALID_DEVICE;
	*ret = ordinal;
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuDeviceGetName(char *name, int bytes, cow__cu_device device)
{
	ENTER(device_get_name);

	if (!name || bytes <= 0)
		return COW_CU_INVALID_VALUE;
	if (!ref_device_ok(device))
		return COW_CU_INVALID_DEVICE;
	snprintf(name, (size_t)bytes, "Reference device %d", device);
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuDeviceGetAttribute(int *ret, unsigned attribute, cow__cu_device device)
{
	static const struct {
		unsigned attribute;
		int value;
	} known[] = {
		{ COW_CU_MAX_THREADS_PER_BLOCK, 1024 },
		{ COW_CU_MAX_SHARED_PER_BLOCK, 49152 },
		{ COW_CU_WARP_SIZE, 32 },
		{ COW_CU_MULTIPROCESSORS, 4 },
		{ COW_CU_INTEGRATED, 0 },
		{ COW_CU_CAN_MAP_HOST, 1 },
		{ COW_CU_COMPUTE_MODE, 0 },
		{ COW_CU_ASYNC_ENGINES, 2 },
		{ COW_CU_UNIFIED_ADDRESSING, 1 },
		{ COW_CU_CAPABILITY_MAJOR, 8 },
		{ COW_CU_CAPABILITY_MINOR, 0 },
		{ COW_CU_PAGEABLE_ACCESS, 0 },
		{ COW_CU_HOST_POINTER_SAME, 1 },
		{ COW_CU_HOST_REGISTER, 1 },
		{ COW_CU_VIRTUAL_MEMORY, 1 },
		{ COW_CU_HANDLE_POSIX_FD, 1 },
		{ COW_CU_MEMORY_POOLS, 1 },
		{ COW_CU_IPC_EVENT, 1 },
	};
	ENTER(device_get_attribute);

	if (!ret)
		return COW_CU_INVALID_VALUE;
	if (!ref_device_ok(device))
		return COW_CU_INVALID_DEVICE;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (known[i].attribute == attribute) {
			*ret = known[i].value;
			return COW_CU_SUCCESS;
		}
	return COW_CU_INVALID_VALUE;
}

enum cow__cu_result cuDeviceGetUuid_v2(struct cow__cu_uuid *ret, cow__cu_device device)
{
	ENTER(device_get_uuid);

	if (!ret)
		return COW_CU_INVALID_VALUE;
	if (!ref_device_ok(device))
		return COW_CU_INVALID_DEVICE;
	memcpy(ret->bytes, "cowshed-refdev-", 15);
	ret->bytes[15] = (char)('0' + device);
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuDeviceTotalMem_v2(size_t *ret, cow__cu_device device)
{
	ENTER(device_total_mem);

	if (!ret)
		return COW_CU_INVALID_VALUE;
	if (!ref_device_ok(device))
		return COW_CU_INVALID_DEVICE;
	*ret = (size_t)ref.settings[REF_MEMORY];
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuDeviceGetPCIBusId(char *id, int bytes, cow__cu_device device)
{
	ENTER(device_get_pci_bus_id);

	if (!id || bytes <= 0)
		return COW_CU_INVALID_VALUE;
	if (!ref_device_ok(device))
		return COW_CU_INVALID_DEVICE;
	snprintf(id, (size_t)bytes, "0000:%02X:00.0", device + 1);
	return COW_CU_SUCCESS;
}

/* ---- Contexts ------------------------------------------------------------ */

enum cow__cu_result cuDevicePrimaryCtxRetain(struct cow__cu_context **ret,
                                             cow__cu_device device)
{
	struct cow__cu_context *c;
	ENTER(primary_retain);

	if (!ret)
		return COW_CU_INVALID_VALUE;
	if (!ref_device_ok(device))
		return COW_CU_INVALID_DEVICE;
	c = &ref_contexts[device];
	if (!c->retained++) {
		c->device = device;
		c->sticky = COW_CU_SUCCESS;
		memset(c->peer, 0, sizeof(c->peer));
		if (!c->null)
			c->null = ref_stream_make(c, COW_CU_STREAM_DEFAULT);
	}
	*ret = c;
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuDevicePrimaryCtxRelease_v2(cow__cu_device device)
{
	ENTER(primary_release);

	if (!ref_device_ok(device))
		return COW_CU_INVALID_DEVICE;
	if (!ref_contexts[device].retained)
		return COW_CU_INVALID_CONTEXT;
	if (ref_contexts[device].retained == 1)
		ref_wait_context(&ref_contexts[device]);
	ref_contexts[device].retained--;
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuDevicePrimaryCtxGetState(cow__cu_device device, unsigned *flags,
                                               int *active)
{
	ENTER(primary_get_state);

	if (!flags || !active)
		return COW_CU_INVALID_VALUE;
	if (!ref_device_ok(device))
		return COW_CU_INVALID_DEVICE;
	*flags = ref_contexts[device].flags;
	*active = ref_contexts[device].retained > 0;
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuDevicePrimaryCtxSetFlags_v2(cow__cu_device device, unsigned flags)
{
	ENTER(primary_set_flags);

	if (!ref_device_ok(device))
		return COW_CU_INVALID_DEVICE;
	if (flags & ~31u)
		return COW_CU_INVALID_VALUE;
	ref_contexts[device].flags = flags;
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuCtxGetCurrent(struct cow__cu_context **ret)
{
	ENTER(ctx_get_current);

	if (!ret)
		return COW_CU_INVALID_VALUE;
	*ret = ref_current();
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuCtxSetCurrent(struct cow__cu_context *context)
{
	ENTER(ctx_set_current);

	if (!context) {
		if (depth)
			depth--;
		return COW_CU_SUCCESS;
	}
	ref_result = ref_alive(context);
	if (ref_result != COW_CU_SUCCESS && ref_result != context->sticky)
		return ref_result;
	if (!depth)
		depth = 1;
	stack[depth - 1] = context;
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuCtxPushCurrent_v2(struct cow__cu_context *context)
{
	ENTER(ctx_push_current);

	ref_result = ref_alive(context);
	if (!context || (ref_result != COW_CU_SUCCESS && ref_result != context->sticky))
		return ref_result;
	if (depth == DEPTH)
		return ref_undefined(COW_CU_INVALID_VALUE,
		                     "%d contexts pushed and not popped", DEPTH);
	stack[depth++] = context;
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuCtxPopCurrent_v2(struct cow__cu_context **ret)
{
	ENTER(ctx_pop_current);

	if (!depth)
		return COW_CU_INVALID_CONTEXT;
	depth--;
	if (ret)
		*ret = stack[depth];
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuCtxGetDevice(cow__cu_device *ret)
{
	ENTER_CONTEXT(ctx_get_device);

	if (!ret)
		return COW_CU_INVALID_VALUE;
	*ret = context->device;
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuCtxSynchronize(void)
{
	ENTER_CONTEXT(ctx_synchronize);

	ref_result = ref_unsafe_context(context);
	if (ref_result != COW_CU_SUCCESS)
		return ref_result;
	ref_wait_context(context);
	return context->sticky;
}

enum cow__cu_result cuDeviceCanAccessPeer(int *ret, cow__cu_device device,
                                          cow__cu_device peer)
{
	ENTER(can_access_peer);

	if (!ret)
		return COW_CU_INVALID_VALUE;
	if (!ref_device_ok(device) || !ref_device_ok(peer))
		return COW_CU_INVALID_DEVICE;
	*ret = ref_peers(device, peer);
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuCtxEnablePeerAccess(struct cow__cu_context *peer, unsigned flags)
{
	ENTER_CONTEXT(enable_peer);

	if (flags)
		return COW_CU_INVALID_VALUE;
	ref_result = ref_alive(peer);
	if (ref_result != COW_CU_SUCCESS || peer == context)
		return COW_CU_INVALID_CONTEXT;
	if (!ref_peers(context->device, peer->device))
		return COW_CU_PEER_ACCESS_UNSUPPORTED;
	if (context->peer[peer->device])
		return COW_CU_PEER_ACCESS_ALREADY_ENABLED;
	context->peer[peer->device] = true;
	return COW_CU_SUCCESS;
}
