/* SPDX-License-Identifier: MIT */
/*
 * doctor: CUDA's driver, its devices, and the kernels
 *
 * Only this file loads libcowshed-cuda. cowshed needs nothing of CUDA, so each missing part is
 * a note. A machine without a driver gets one line that says so.
 */
#include "cli/cli.h"

#include <cowshed-cuda.h>

#include <dlfcn.h>
#include <string.h>

#define LIBRARY "libcowshed-cuda.so.0"

static __typeof__(&cow_cuda_info) get_info;
static __typeof__(&cow_cuda_device_info) get_device_info;

static bool load_library(void)
{
	void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);

	if (!library)
		return false;
	*(void **)&get_info = dlsym(library, "cow_cuda_info");
	*(void **)&get_device_info = dlsym(library, "cow_cuda_device_info");
	return get_info && get_device_info;
}

static void tell_peers(const struct cow_cuda_device_info *d, int devices, char ret[200])
{
	size_t at = 0;

	ret[0] = 0;
	for (int i = 0; i < devices && i < 64 && at < 180; i++)
		if (d->peers >> i & 1)
			at += (size_t)snprintf(ret + at, 200 - at, "%s%d", at ? ", " : "", i);
}

static void describe_device(int index, int devices)
{
	struct cow_cuda_device_info d = {.size = sizeof d};
	char name[40], peers[200];
	bool whole;

	snprintf(name, sizeof name, "device %d", index);
	if (get_device_info(index, &d) < 0) {
		cli_finding(CLI_UNKNOWN, name, NULL, NULL, "%s", cow_last_error());
		return;
	}
	tell_peers(&d, devices, peers);
	whole = d.virtual_memory && d.memory_fds && d.event_sharing && d.host_register;
	cli_finding(whole ? CLI_OK : CLI_NOTE, name,
	            "sharing device memory, cloning it by granules, pinning ordinary memory", NULL,
	            "%s, %s, compute capability %d.%d, %d multiprocessors; "
	            "virtual memory %s, memory as descriptors %s, shared events %s, "
	            "pinning of ordinary memory %s; peers: %s",
	            d.name, cli_bytes(d.memory_bytes).s, d.capability_major,
	            d.capability_minor, d.multiprocessors, d.virtual_memory ? "yes" : "no",
	            d.memory_fds ? "yes" : "no", d.event_sharing ? "yes" : "no",
	            d.host_register ? "yes" : "no", peers[0] ? peers : "none");
}

void cli_doctor_gpu(void)
{
	struct cow_cuda_info info = {.size = sizeof info};

	if (!load_library()) {
		cli_finding(CLI_NOTE, "CUDA", "tensors on GPUs", NULL, "%s", dlerror());
		return;
	}
	if (get_info(&info) < 0) {
		cli_finding(CLI_NOTE, "CUDA", "tensors on GPUs", NULL, "%s",
		            cow_last_error());
		return;
	}
	cli_finding(CLI_OK, "CUDA driver", NULL, NULL, "%s, supports CUDA %d.%d, %d device%s",
	            info.path, info.driver_version / 1000, info.driver_version % 1000 / 10,
	            info.devices, info.devices == 1 ? "" : "s");
	for (int i = 0; i < info.devices; i++)
		describe_device(i, info.devices);
	if (info.kernels == COW_CUDA_KERNELS_NONE)
		cli_finding(CLI_NOTE, "CUDA kernels",
		            "strided and converting copies on the device itself",
		            "put nvcc into PATH and run make",
		            "not in this library: it was built without nvcc");
	else
		cli_finding(CLI_OK, "CUDA kernels", NULL, NULL, "%s",
		            info.kernels == COW_CUDA_KERNELS_EMBEDDED
		                    ? "in this library"
		                    : "the driver's own: a driver for tests");
}
