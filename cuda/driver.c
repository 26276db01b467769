/* SPDX-License-Identifier: MIT */
/*
 * The CUDA driver: loading it, and its errors. See the header.
 *
 * A call is looked up by its name and by the version of its form (cuda/calls.h). In a newer
 * driver the plain name may mean a newer form; the version still gives ours. Per-thread
 * default streams are not used: the stream NULL is the legacy default stream, which other
 * code uses, too.
 *
 * The state goes from nothing to `owner` set, then to loaded or failed. A fork() may happen
 * at any point, while another thread has the lock, and the child lacks that thread. So the
 * child looks at the owner before it takes the lock. `mark` is a word that the kernel zeros
 * in every child (MADV_WIPEONFORK). On a kernel without that the process asks for its own
 * number each time.
 */
#include "cuda/driver.h"
#include "core/base/base.h"
#include "core/base/error.h"
#include "memfd/map.h"
#include "memfd/process.h"
#include "cowshed.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* At least a page, of any size. */
#define MARK_BYTES ((size_t)65536)

static struct cow__cu table;

static struct {
	pthread_mutex_t lock;
	int state; /* 0: nothing yet; 1: loaded; -errno */
	int32_t owner;
	uint32_t *mark;
	int version;
	const void *kernels;
	char path[256];
	char why[240];
} driver = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- Which process ------------------------------------------------------- */

/* Is this process the owner? Makes it the owner if there is none yet. */
static bool
is_owner(void)
{
	int32_t none = 0, self;
	uint32_t *mark = __atomic_load_n(&driver.mark, __ATOMIC_ACQUIRE);

	/* Pairs with the store in make_mark(). */
	if (cow__likely(mark != NULL))
		return *(volatile uint32_t *)mark != 0;
	self = cow__process_id();
	return __atomic_compare_exchange_n(&driver.owner, &none, self, false,
	                                   __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) ||
	       none == self;
}

static void
make_mark(void)
{
	void *page;

	if (cow__map_meta(MARK_BYTES, &page) < 0)
		return;
	if (cow__map_advise((uintptr_t)page, MARK_BYTES, MADV_WIPEONFORK) < 0) {
		(void)cow__map_release((uintptr_t)page, MARK_BYTES);
		return;
	}
	*(volatile uint32_t *)page = 1;
	__atomic_store_n(&driver.mark, (uint32_t *)page, __ATOMIC_RELEASE);
}

/* ---- Loading ------------------------------------------------------------- */

static const struct {
	const char *name, *symbol;
	int version;
	bool needed;
	size_t at; /* in the table */
} calls[] = {
#define NEED true
#define MAY false
#define CALL(need, member, name, symbol, version, parameters)                  \
	{ #name, #symbol, version, need, offsetof(struct cow__cu, member) },
#include "cuda/calls.h"
#undef CALL
#undef MAY
#undef NEED
};

typedef enum cow__cu_result old_lookup_fn(const char *symbol, void **ret, int version,
                                          cow__cu_flags flags);

/* NULL: the driver has no such call. */
static void *
look_up_call(void *library, old_lookup_fn *old, size_t i)
{
	void *found = NULL;
	unsigned status = COW_CU_PROC_FOUND;
	enum cow__cu_result r;

	/* In older drivers calls are found only by their exported names. */
	if (!table.get_proc_address && !old)
		return dlsym(library, calls[i].symbol);
	if (table.get_proc_address)
		r = table.get_proc_address(calls[i].name, &found, calls[i].version,
		                           COW_CU_PROC_LEGACY_STREAM, &status);
	else
		r = old(calls[i].name, &found, calls[i].version,
		        COW_CU_PROC_LEGACY_STREAM);
	return r == COW_CU_SUCCESS && status == COW_CU_PROC_FOUND ? found : NULL;
}

static int
fill_table(void *library)
{
	old_lookup_fn *old = NULL;

	table.get_proc_address = dlsym(library, "cuGetProcAddress_v2");
	if (!table.get_proc_address)
		old = (old_lookup_fn *)dlsym(library, "cuGetProcAddress");
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		void *call;

		if (calls[i].at == offsetof(struct cow__cu, get_proc_address))
			continue;
		call = look_up_call(library, old, i);
		memcpy((char *)&table + calls[i].at, &call, sizeof(call));
		if (call || !calls[i].needed)
			continue;
		cow__error(-ENOSYS, "the CUDA driver is too old: it lacks ");
		cow__error_add(calls[i].name);
		return -ENOSYS;
	}
	return 0;
}

static int
load_driver(void)
{
	/* A set-uid program must not trust its environment. */
	const char *name = secure_getenv("COWSHED_CUDA_DRIVER");
	bool given = name && *name;
	struct link_map *map = NULL;
	void *library;
	int r;

	if (!given)
		name = "libcuda.so.1";
	library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!library) {
		const char *why = dlerror();

		cow__error(-ENODEV, "no CUDA driver: ");
		cow__error_add(why ? why : name);
		return -ENODEV;
	}
	if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name &&
	    strlen(map->l_name) < sizeof(driver.path))
		strcpy(driver.path, map->l_name);
	else if (strlen(name) < sizeof(driver.path))
		strcpy(driver.path, name);
	r = fill_table(library);
	if (r < 0)
		return r;
	if (given)
		driver.kernels = dlsym(library, "cowshed_kernels");
	r = cow__cu_error(table.init(0), "the CUDA driver does not start");
	if (r < 0)
		return r;
	return cow__cu_error(table.driver_get_version(&driver.version),
	                     "the CUDA driver's version");
}

static int
load_once(void)
{
	int r, state;

	pthread_mutex_lock(&driver.lock);
	state = driver.state;
	if (state == 0) {
		r = load_driver();
		if (r < 0)
			strncpy(driver.why, cow_last_error(),
			        sizeof(driver.why) - 1);
		else
			make_mark();
		state = r < 0 ? r : 1;
		/* Pairs with the load in cow__cu_start(). */
		__atomic_store_n(&driver.state, state, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&driver.lock);
	return state;
}

int
cow__cu_start(const struct cow__cu **ret)
{
	int state = __atomic_load_n(&driver.state, __ATOMIC_ACQUIRE);

	if (state < 0)
		return cow__error(state, driver.why);
	if (!is_owner())
		return cow__error(-ECHILD,
		                  "CUDA was started before fork(): a forked child can't "
		                  "use it (start a new program, or fork first)");
	if (cow__unlikely(state == 0))
		state = load_once();
	if (state < 0)
		return cow__error(state, driver.why);
	*ret = &table;
	return 0;
}

const char *
cow__cu_path(void)
{
	return driver.path;
}

int
cow__cu_version(void)
{
	return driver.version;
}

const void *
cow__cu_own_kernels(void)
{
	return driver.kernels;
}

/* ---- Errors -------------------------------------------------------------- */

static const struct {
	enum cow__cu_result result;
	int error;
} codes[] = {
	{ COW_CU_INVALID_VALUE, -EINVAL },
	{ COW_CU_OUT_OF_MEMORY, -ENOMEM },
	{ COW_CU_NOT_INITIALIZED, -ENODEV },
	{ COW_CU_DEINITIALIZED, -ESHUTDOWN }, /* the process is ending */
	{ COW_CU_STUB_LIBRARY, -ENODEV },
	{ COW_CU_CALL_REQUIRES_NEWER_DRIVER, -ENOSYS },
	{ COW_CU_DEVICE_UNAVAILABLE, -EBUSY },
	{ COW_CU_NO_DEVICE, -ENODEV },
	{ COW_CU_INVALID_DEVICE, -ENODEV },
	{ COW_CU_INVALID_IMAGE, -ENOEXEC },
	{ COW_CU_INVALID_CONTEXT, -EINVAL },
	{ COW_CU_ALREADY_MAPPED, -EEXIST },
	{ COW_CU_NO_BINARY_FOR_GPU, -ENOEXEC },
	{ COW_CU_NOT_MAPPED, -EFAULT },
	{ COW_CU_PEER_ACCESS_UNSUPPORTED, -EOPNOTSUPP },
	{ COW_CU_INVALID_PTX, -ENOEXEC },
	{ COW_CU_JIT_COMPILER_NOT_FOUND, -ENOEXEC },
	{ COW_CU_UNSUPPORTED_PTX_VERSION, -ENOEXEC },
	{ COW_CU_INVALID_HANDLE, -EINVAL },
	{ COW_CU_NOT_FOUND, -ENOENT },
	{ COW_CU_NOT_READY, -EAGAIN },
	{ COW_CU_PEER_ACCESS_ALREADY_ENABLED, -EALREADY },
	{ COW_CU_PEER_ACCESS_NOT_ENABLED, -EACCES },
	{ COW_CU_PRIMARY_CONTEXT_ACTIVE, -EBUSY },
	{ COW_CU_CONTEXT_IS_DESTROYED, -ESHUTDOWN },
	{ COW_CU_HOST_MEMORY_ALREADY_REGISTERED, -EEXIST },
	{ COW_CU_HOST_MEMORY_NOT_REGISTERED, -ENOENT },
	{ COW_CU_NOT_PERMITTED, -EPERM },
	{ COW_CU_NOT_SUPPORTED, -EOPNOTSUPP },
	{ COW_CU_SYSTEM_NOT_READY, -ENODEV },
	{ COW_CU_SYSTEM_DRIVER_MISMATCH, -ENODEV },
	{ COW_CU_STREAM_CAPTURE_UNSUPPORTED, -EBUSY },
	{ COW_CU_STREAM_CAPTURE_INVALIDATED, -EBUSY },
	{ COW_CU_STREAM_CAPTURE_ISOLATION, -EBUSY },
	{ COW_CU_STREAM_CAPTURE_IMPLICIT, -EBUSY },
	{ COW_CU_CAPTURED_EVENT, -EBUSY },
	{ COW_CU_TIMEOUT, -ETIMEDOUT },
};

int
cow__cu_error(enum cow__cu_result result, const char *what)
{
	const char *name = NULL, *words = NULL;
	int error = -EIO; /* the device failed */

	if (cow__likely(result == COW_CU_SUCCESS))
		return 0;
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
		if (codes[i].result == result)
			error = codes[i].error;
	cow__error(error, what);
	cow__error_add(": ");
	if (table.get_error_name(result, &name) == COW_CU_SUCCESS && name) {
		cow__error_add(name);
	} else {
		cow__error_add("CUDA error ");
		cow__error_add_number(result);
	}
	if (table.get_error_string(result, &words) == COW_CU_SUCCESS && words) {
		cow__error_add(", ");
		cow__error_add(words);
	}
	return error;
}
