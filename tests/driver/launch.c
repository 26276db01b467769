/* SPDX-License-Identifier: MIT */
/*
 * Modules and kernels
 *
 * The kernels are the library's own sources, compiled for the host (host_cuda.h) and found by
 * their names; images are not read. One kernel runs at a time, with the window open for the
 * memory that its device may touch. A fault of the kernel is an illegal address. A fault of
 * the program in the window is reported, and stays a fault.
 */
#include "tests/driver/ref.h"

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ALIVE = 0x30d01e, DEAD = 0xdead30d };

struct cow__cu_function {
	const struct ref_kernel *kernel;
	struct cow__cu_module *module;
	struct cow__cu_function *next;
};
struct cow__cu_module {
	uint32_t magic;
	struct cow__cu_context *context;
	struct cow__cu_function *functions;
	unsigned pending;
	struct cow__cu_module *next; /* of all: a real driver knows them, too */
};

struct launch {
	struct cow__cu_function *function;
	struct ref_grid grid;
	void *parameters[64];
	char *bytes;
	bool failed;
};

static struct ref_kernel *kernels;
static struct cow__cu_module *modules;
static pthread_mutex_t kernel_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before;
static _Thread_local struct launch *launching;
static _Thread_local sigjmp_buf away;

void ref_kernel_add(struct ref_kernel *kernel)
{
	kernel->next = kernels;
	kernels = kernel;
}

/* ---- Faults -------------------------------------------------------------- */

static void on_fault(int sig, siginfo_t *info, void *unused)
{
	char text[200];
	int n;

	(void)unused;
	if (launching) {
		if (!ref.settings[REF_STRICT])
			siglongjmp(away, 1);
		n = snprintf(text, sizeof(text),
		             "reference driver: kernel %s touched %p, which its device "
		             "may not\n", launching->function->kernel->name, info->si_addr);
		if (write(2, text, (size_t)n) < 0 || true)
			abort();
	}
	if (ref_in_window(info->si_addr)) {
		n = snprintf(text, sizeof(text),
		             "reference driver: the host touched device memory at %p\n",
		             info->si_addr);
		if (write(2, text, (size_t)n) < 0)
			abort();
	}
	/* The signal again, for its owner. */
	sigaction(sig, &before, NULL);
}

static void catch_faults(void)
{
	static bool done;
	struct sigaction act = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER };

	if (!done)
		sigaction(SIGSEGV, &act, &before);
	done = true;
}

/* ---- Modules ------------------------------------------------------------- */

static enum cow__cu_result check(struct cow__cu_module *m)
{
	if (!m)
		return COW_CU_INVALID_HANDLE;
	if (m->magic != ALIVE)
		return ref_undefined(COW_CU_INVALID_HANDLE, "%p is no module", (void *)m);
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuModuleLoadData(struct cow__cu_module **ret, const void *image)
{
	ENTER_CONTEXT(module_load);

	if (!ret || !image)
		return COW_CU_INVALID_VALUE;
	*ret = calloc(1, sizeof(**ret));
	if (!*ret)
		abort();
	**ret = (struct cow__cu_module){ .magic = ALIVE, .context = context, .next = modules };
	modules = *ret;
	catch_faults();
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuModuleUnload(struct cow__cu_module *module)
{
	ENTER_CONTEXT(module_unload);

	ref_result = check(module);
	if (ref_result != COW_CU_SUCCESS)
		return ref_result;
	if (module->pending)
		return ref_undefined(COW_CU_INVALID_VALUE, "%u of its kernels have not run",
		                     module->pending);
	module->magic = DEAD;
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuModuleGetFunction(struct cow__cu_function **ret,
                                        struct cow__cu_module *module, const char *name)
{
	struct ref_kernel *k = kernels;
	struct cow__cu_function *f;
	ENTER_CONTEXT(module_get_function);

	if (!ret || !name)
		return COW_CU_INVALID_VALUE;
	ref_result = check(module);
	if (ref_result != COW_CU_SUCCESS)
		return ref_result;
	while (k && strcmp(k->name, name) != 0)
		k = k->next;
	if (!k)
		return COW_CU_NOT_FOUND;
	for (f = module->functions; f && f->kernel != k; f = f->next)
		;
	if (!f) {
		f = calloc(1, sizeof(*f));
		if (!f)
			abort();
		*f = (struct cow__cu_function){ k, module, module->functions };
		module->functions = f;
	}
	*ret = f;
	return COW_CU_SUCCESS;
}

enum cow__cu_result cuFuncGetAttribute(int *ret, unsigned attribute,
                                       struct cow__cu_function *function)
{
	ENTER_CONTEXT(func_get_attribute);

	if (!ret || !function)
		return COW_CU_INVALID_VALUE;
	ref_result = check(function->module);
	if (ref_result != COW_CU_SUCCESS)
		return ref_result;
	switch (attribute) {
	case COW_CU_FUNC_MAX_THREADS:
		*ret = 1024;
		return COW_CU_SUCCESS;
	case COW_CU_FUNC_REGISTERS:
		*ret = 32;
		return COW_CU_SUCCESS;
	case COW_CU_FUNC_SHARED_BYTES:
		*ret = 0;
		return COW_CU_SUCCESS;
	default:
		return COW_CU_INVALID_VALUE;
	}
}

enum cow__cu_result cuOccupancyMaxPotentialBlockSize(int *ret_grid, int *ret_block,
                                                     struct cow__cu_function *function,
                                                     cow__cu_shared_fn shared,
                                                     size_t shared_bytes, int limit)
{
	ENTER_CONTEXT(max_block_size);

	(void)shared;
	(void)shared_bytes;
	if (!ret_grid || !ret_block || !function || limit < 0)
		return COW_CU_INVALID_VALUE;
	*ret_block = limit && limit < 256 ? limit : 256;
	*ret_grid = 8;
	return COW_CU_SUCCESS;
}

/* ---- Launches ------------------------------------------------------------ */

static void run_kernel(struct ref_work *work)
{
	struct launch *l = work->data;

	pthread_mutex_lock(&kernel_lock);
	pthread_mutex_lock(&ref.lock);
	ref_window_open(work->context->device);
	pthread_mutex_unlock(&ref.lock);
	launching = l;
	if (sigsetjmp(away, 1) == 0)
		ref_grid_run(l->function->kernel, &l->grid, l->parameters);
	else
		l->failed = true;
	launching = NULL;
	pthread_mutex_lock(&ref.lock);
	ref_window_close();
	pthread_mutex_unlock(&ref.lock);
	pthread_mutex_unlock(&kernel_lock);
}

static void finish_kernel(struct ref_work *work)
{
	struct launch *l = work->data;

	if (l->failed)
		work->context->sticky = COW_CU_ILLEGAL_ADDRESS;
	l->function->module->pending--;
	free(l->bytes);
}

/* As the real one: the parameters' bytes are taken at the call. */
static void take_parameters(struct launch *l, void **parameters)
{
	const struct ref_kernel *k = l->function->kernel;
	size_t at = 0;

	l->bytes = calloc(1, 4096 + 16);
	if (!l->bytes)
		abort();
	for (int i = 0; i < k->parameters; i++) {
		/* 16: the strictest alignment of anything passed by value. */
		l->parameters[i] = l->bytes + at;
		memcpy(l->parameters[i], parameters[i], k->sizes[i]);
		at += (k->sizes[i] + 15) & ~(size_t)15;
	}
}

static bool fits(const struct cow__cu_function *f, void **parameters, size_t *ret_bytes)
{
	*ret_bytes = 0;
	if (f->kernel->parameters > 64 || (f->kernel->parameters && !parameters))
		return false;
	for (int i = 0; i < f->kernel->parameters; i++) {
		if (!parameters[i])
			return false;
		*ret_bytes += (f->kernel->sizes[i] + 15) & ~(size_t)15;
	}
	return *ret_bytes <= 4096;
}

enum cow__cu_result cuLaunchKernel(struct cow__cu_function *function, unsigned grid_x,
                                   unsigned grid_y, unsigned grid_z, unsigned block_x,
                                   unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                   struct cow__cu_stream *stream, void **parameters,
                                   void **extra)
{
	struct ref_work *work;
	struct launch *l;
	size_t bytes;
	ENTER_CONTEXT(launch);

	if (!function)
		return COW_CU_INVALID_HANDLE;
	ref_result = check(function->module);
	if (ref_result == COW_CU_SUCCESS)
		ref_result = ref_stream(context, &stream);
	if (ref_result != COW_CU_SUCCESS)
		return ref_result;
	if (stream->context != function->module->context)
		return COW_CU_INVALID_HANDLE;
	if (!grid_x || !grid_y || !grid_z || grid_x > 0x7fffffff || grid_y > 65535 ||
	    grid_z > 65535 || !block_x || !block_y || !block_z || block_x > 1024 ||
	    block_y > 1024 || block_z > 64 || !fits(function, parameters, &bytes))
		return COW_CU_INVALID_VALUE;
	if ((uint64_t)block_x * block_y * block_z > 1024)
		return COW_CU_INVALID_VALUE;
	if (shared_bytes || extra || stream->capture != COW_CU_CAPTURE_NONE)
		return COW_CU_NOT_SUPPORTED; /* the library does not use them */
	work = ref_work_new(context, stream, run_kernel, sizeof(*l));
	l = work->data;
	l->function = function;
	l->grid = (struct ref_grid){ { grid_x, grid_y, grid_z }, { block_x, block_y, block_z } };
	take_parameters(l, parameters);
	function->module->pending++;
	work->finish = finish_kernel;
	ref_submit(work);
	return COW_CU_SUCCESS;
}
