/* SPDX-License-Identifier: MIT */
/*
 * Entering a call: the lock, counts, failures on demand, fork
 */
#include "tests/driver/ref.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct ref ref = {
	.lock = PTHREAD_MUTEX_INITIALIZER,
	.settings = {
		[REF_STRICT] = 1,
		[REF_PAGEABLE] = 1,
		[REF_DELAY_US] = 2000,
		[REF_MEMORY] = 1L << 30,
		[REF_MAX_EVENTS] = 1 << 20,
		[REF_MAX_HANDLES] = 1 << 20,
	},
};
_Thread_local const char *ref_calling = "?";
_Thread_local bool ref_in_callback;

static struct {
	const char *name, *symbol;
	int version;
	void *function;
	uint64_t count, fail_at;
	int code;
	bool lacking;
} calls[] = {
#define CALL(need, member, name, symbol, version, parameters)                  \
	{ #name, #symbol, version, (void *)symbol, 0, 0, 0, false },
#include "cuda/calls.h"
#undef CALL
};

/* For cow__cu_own_kernels(): any image will do, the kernels are built in. */
EXPORT const char cowshed_kernels[] = "reference driver";

uint64_t ref_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* xorshift64*, the same at each run; COWREF_SEED gives other schedules. */
uint64_t ref_random(void)
{
	static uint64_t x;

	if (!x)
		x = getenv("COWREF_SEED")
		            ? strtoull(getenv("COWREF_SEED"), NULL, 0) * 2 + 1
		            : 88172645463325252ull;
	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	return x * 2685821657736338717ull >> 16;
}

enum cow__cu_result ref_undefined(enum cow__cu_result code, const char *rule, ...)
{
	va_list args;

	if (!ref.settings[REF_STRICT])
		return code;
	va_start(args, rule);
	fprintf(stderr, "reference driver: %s: ", ref_calling);
	vfprintf(stderr, rule, args);
	fputc('\n', stderr);
	va_end(args);
	abort();
}

/* What a graph can't know of. */
static bool is_unsafe(enum ref_call call)
{
	switch (call) {
	case REF_mem_create:
	case REF_mem_release:
	case REF_mem_map:
	case REF_mem_unmap:
	case REF_mem_set_access:
	case REF_mem_export:
	case REF_mem_import:
	case REF_mem_alloc:
	case REF_mem_free:
	case REF_host_register:
	case REF_host_unregister:
	case REF_host_alloc:
	case REF_host_free:
	case REF_event_query:
	case REF_event_synchronize:
	case REF_stream_query:
	case REF_stream_synchronize:
	case REF_ipc_open_event:
	case REF_enable_peer:
	case REF_module_load:
	case REF_module_unload:
		return true;
	default:
		return false;
	}
}

enum cow__cu_result ref_enter(enum ref_call call, int *ret_locked)
{
	ref_calling = calls[call].name;
	if (call == REF_get_error_name || call == REF_get_error_string)
		return COW_CU_SUCCESS;
	/* As the real one: a child's driver has nothing behind it. The lock may be
	 * held by a thread that is not there. */
	if (ref.pid && ref.pid != getpid())
		return COW_CU_NOT_INITIALIZED;
	pthread_mutex_lock(&ref.lock);
	*ret_locked = 1;
	if (ref_in_callback)
		return COW_CU_NOT_PERMITTED;
	calls[call].count++;
	if (calls[call].fail_at && --calls[call].fail_at == 0)
		return (enum cow__cu_result)calls[call].code;
	if (!ref.pid && call != REF_init && call != REF_driver_get_version &&
	    call != REF_get_proc_address)
		return COW_CU_NOT_INITIALIZED;
	return is_unsafe(call) ? ref_unsafe() : COW_CU_SUCCESS;
}

void ref_leave(int *locked)
{
	if (*locked)
		pthread_mutex_unlock(&ref.lock);
}

/* ---- Start --------------------------------------------------------------- */

static long number(const char *name, long otherwise)
{
	const char *s = getenv(name);

	return s && *s ? strtol(s, NULL, 0) : otherwise;
}

/* COWREF_FAIL=cuMemCreate:3:2,... as cow_ref_fail() takes them;
 * COWREF_LACKS=cuMemCreate,... calls that this driver has not. */
__attribute__((constructor)) static void read_environment(void)
{
	char text[1024], *word, *rest = NULL;

	ref.version = (int)number("COWREF_VERSION", 12040);
	ref.settings[REF_MEMORY] = number("COWREF_MEMORY", 1L << 30);
	ref.settings[REF_STRICT] = number("COWREF_STRICT", 1);
	ref.settings[REF_PAGEABLE] = number("COWREF_PAGEABLE", 1);
	ref.settings[REF_DELAY_US] = number("COWREF_DELAY_US", 2000);
	snprintf(text, sizeof(text), "%s", getenv("COWREF_LACKS") ?: "");
	for (word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
		for (int i = 0; i < REF_CALLS; i++)
			calls[i].lacking |= strcmp(calls[i].name, word) == 0;
	snprintf(text, sizeof(text), "%s", getenv("COWREF_FAIL") ?: "");
	for (word = strtok_r(text, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
		char name[80];
		unsigned long n;
		int code;

		if (sscanf(word, "%79[^:]:%lu:%d", name, &n, &code) != 3 ||
		    cow_ref_fail(name, n, code) < 0) {
			fprintf(stderr, "reference driver: COWREF_FAIL: %s?\n", word);
			abort();
		}
	}
}

static char *reserve(void)
{
	char *p = mmap(NULL, WINDOW + SLOT, PROT_NONE,
	               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED) {
		fprintf(stderr, "reference driver: no addresses\n");
		abort();
	}
	madvise(p, WINDOW + SLOT, MADV_DONTFORK);
	return (char *)(((uintptr_t)p + SLOT - 1) & ~(SLOT - 1));
}

enum cow__cu_result cuInit(unsigned flags)
{
	pthread_condattr_t attributes;
	ENTER(init);

	if (flags)
		return COW_CU_INVALID_VALUE;
	if (ref.pid)
		return COW_CU_SUCCESS;
	ref.devices = (int)number("COWREF_DEVICES", 2);
	ref.peers = number("COWREF_PEERS", 1);
	if (ref.devices <= 0)
		return COW_CU_NO_DEVICE;
	if (ref.devices > REF_DEVICES)
		ref.devices = REF_DEVICES;
	ref.window = reserve();
	ref.shadow = reserve();
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&ref.changed, &attributes);
	ref.pid = getpid();
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuDriverGetVersion(int *ret)
{
	ENTER(driver_get_version);

	if (!ret)
		return COW_CU_INVALID_VALUE;
	*ret = ref.version;
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuGetProcAddress_v2(const char *symbol, void **ret, int version,
                                        cow__cu_flags flags, unsigned *ret_status)
{
	ENTER(get_proc_address);

	if (!symbol || !ret || flags > COW_CU_PROC_LEGACY_STREAM)
		return COW_CU_INVALID_VALUE;
	*ret = NULL;
	for (int i = 0; i < REF_CALLS; i++) {
		if (strcmp(calls[i].name, symbol) != 0 || calls[i].lacking)
			continue;
		if (version >= calls[i].version)
			*ret = calls[i].function;
		if (ret_status)
			*ret_status = *ret ? COW_CU_PROC_FOUND : COW_CU_PROC_TOO_OLD;
		return *ret || ret_status ? COW_CU_SUCCESS : COW_CU_NOT_FOUND;
	}
	if (ret_status)
		*ret_status = COW_CU_PROC_NOT_FOUND;
	return ret_status ? COW_CU_SUCCESS : COW_CU_NOT_FOUND;
}

static const struct {
	enum cow__cu_result code;
	const char *name, *words;
} errors[] = {
	{ COW_CU_SUCCESS, "CUDA_SUCCESS", "no error" },
	{ COW_CU_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
	{ COW_CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
	{ COW_CU_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
	{ COW_CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
	{ COW_CU_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
	{ COW_CU_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
	{ COW_CU_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle" },
	{ COW_CU_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found" },
	{ COW_CU_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready" },
	{ COW_CU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
	  "an illegal memory access was encountered" },
	{ COW_CU_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted" },
	{ COW_CU_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported" },
	{ COW_CU_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure" },
	{ COW_CU_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
	  "operation not permitted when stream is capturing" },
};

static int error_index(enum cow__cu_result code)
{
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (errors[i].code == code)
			return (int)i;
	return -1;
}

enum cow__cu_result cuGetErrorName(enum cow__cu_result code, const char **ret)
{
	int i = error_index(code);

	*ret = i < 0 ? (code <= COW_CU_UNKNOWN ? "CUDA_ERROR_OTHER" : NULL) : errors[i].name;
	return *ret ? COW_CU_SUCCESS : COW_CU_INVALID_VALUE;
}

enum cow__cu_result cuGetErrorString(enum cow__cu_result code, const char **ret)
{
	int i = error_index(code);

	*ret = i < 0 ? (code <= COW_CU_UNKNOWN ? "another error" : NULL) : errors[i].words;
	return *ret ? COW_CU_SUCCESS : COW_CU_INVALID_VALUE;
}

/* ---- For tests ----------------------------------------------------------- */

static int call_named(const char *name)
{
	for (int i = 0; i < REF_CALLS; i++)
		if (strcmp(calls[i].name, name) == 0)
			return i;
	return -1;
}

EXPORT void cow_ref_set(enum ref_setting setting, long value)
{
	pthread_mutex_lock(&ref.lock);
	ref.settings[setting] = value;
	if (ref.pid)
		pthread_cond_broadcast(&ref.changed);
	pthread_mutex_unlock(&ref.lock);
}

EXPORT int cow_ref_fail(const char *name, unsigned long n, int code)
{
	int i = call_named(name);

	if (i < 0)
		return -1;
	pthread_mutex_lock(&ref.lock);
	calls[i].fail_at = n;
	calls[i].code = code;
	pthread_mutex_unlock(&ref.lock);
	return 0;
}

EXPORT uint64_t cow_ref_calls(const char *name)
{
	int i = call_named(name);
	uint64_t n;

	pthread_mutex_lock(&ref.lock);
	n = i < 0 ? UINT64_MAX : calls[i].count;
	pthread_mutex_unlock(&ref.lock);
	return n;
}

EXPORT uint64_t cow_ref_implicit_waits(void)
{
	uint64_t n;

	pthread_mutex_lock(&ref.lock);
	n = ref.implicit_waits;
	pthread_mutex_unlock(&ref.lock);
	return n;
}

EXPORT void cow_ref_usage(struct ref_usage *ret)
{
	pthread_mutex_lock(&ref.lock);
	*ret = (struct ref_usage){
		.pending = ref_pending(),
		.handles = ref.handles,
		.mappings = ref.mappings,
		.reservations = ref.reservations,
		.streams = ref.streams,
		.events = ref.events,
		.registered = ref.registered,
	};
	for (int i = 0; i < REF_DEVICES; i++)
		ret->bytes += ref.used[i];
	pthread_mutex_unlock(&ref.lock);
}

EXPORT void cow_ref_poison(int device, int code)
{
	pthread_mutex_lock(&ref.lock);
	ref_contexts[device].sticky = (enum cow__cu_result)code;
	pthread_mutex_unlock(&ref.lock);
}

EXPORT int cow_ref_peek(unsigned long long ptr, void *out, size_t bytes)
{
	struct ref_mapping *m;
	int r = -1;

	pthread_mutex_lock(&ref.lock);
	m = ref_mapping_at((char *)(uintptr_t)ptr);
	if (m && (uintptr_t)ptr + bytes <= (uintptr_t)m->at + m->bytes) {
		memcpy(out, ref.shadow + ((char *)(uintptr_t)ptr - ref.window), bytes);
		r = 0;
	}
	pthread_mutex_unlock(&ref.lock);
	return r;
}
