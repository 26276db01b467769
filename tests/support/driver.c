/* SPDX-License-Identifier: MIT */
/*
 * The reference driver in tests: see the header.
 */
#include "tests/support/driver.h"

#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const struct cow__cu *cu;
struct driver_control ref;

void driver_choose(void)
{
	must(setenv("COWSHED_CUDA_DRIVER",
	            in_build("tests/driver/libcuda.so.1"), 0) == 0);
}

bool driver_is_reference(void)
{
	const char *path = getenv("COWSHED_CUDA_DRIVER");

	return path && strstr(path, "/driver/libcuda.so.1");
}

static void *control(void *library, const char *name)
{
	void *f = dlsym(library, name);

	if (!f)
		ck_abort_msg("the driver has no %s", name);
	return f;
}

static void *library;

void driver_start(void)
{

	driver_choose();
	ok(cow__cu_start(&cu));
	library = dlopen(cow__cu_path(), RTLD_NOW);
	must(library != NULL);
	cu_ok(cu->ctx_set_current(driver_context(0)));
	if (!driver_is_reference()) {
		ref = driver_standins;
		return;
	}
	ref.set = control(library, "cow_ref_set");
	ref.fail_call = control(library, "cow_ref_fail");
	ref.calls = control(library, "cow_ref_calls");
	ref.implicit_waits = control(library, "cow_ref_implicit_waits");
	ref.usage = control(library, "cow_ref_usage");
	ref.poison = control(library, "cow_ref_poison");
	ref.peek = control(library, "cow_ref_peek");
}

/* Calls that the library has no use for. */
void capture_begin(void *stream, unsigned mode)
{
	enum cow__cu_result (*begin)(void *, unsigned) =
		control(library, "cuStreamBeginCapture_v2");

	cu_ok(begin(stream, mode));
}

void capture_end(void *stream)
{
	enum cow__cu_result (*end)(void *, void **) = control(library, "cuStreamEndCapture");
	enum cow__cu_result (*destroy)(void *) = control(library, "cuGraphDestroy");
	void *graph = NULL;

	cu_ok(end(stream, &graph));
	cu_ok(destroy(graph));
}

struct cow__cu_context *driver_context(int device)
{
	struct cow__cu_context *c;

	cu_ok(cu->primary_retain(&c, device));
	return c;
}

struct scolding {
	child_fn *body;
	void *arg;
	int fd;
};

static void scolded(void *arg)
{
	struct scolding *s = arg;

	must(dup2(s->fd, 2) == 2);
	s->body(s->arg);
}

void in_child_scolded(child_fn *body, void *arg, const char *words)
{
	int fd[2], status;
	char text[1024] = "";
	size_t n = 0;
	ssize_t r;
	struct scolding s = { body, arg, -1 };
	pid_t child;

	must(pipe(fd) == 0);
	s.fd = fd[1];
	child = child_start(scolded, &s);
	close(fd[1]);
	while (n < sizeof(text) - 1 && (r = read(fd[0], text + n, sizeof(text) - 1 - n)) > 0)
		n += (size_t)r;
	close(fd[0]);
	status = child_status(child);
	if (!WIFSIGNALED(status) || !strstr(text, words))
		ck_abort_msg("status %#x, and it said: %s", status, text);
}

cow__cu_handle new_physical(int device, size_t bytes)
{
	struct cow__cu_prop prop = { .type = COW_CU_ALLOCATION_PINNED,
		                     .handle_types = COW_CU_HANDLE_FD,
		                     .location = { COW_CU_LOCATION_DEVICE, device } };
	cow__cu_handle h;

	cu_ok(cu->mem_create(&h, bytes, &prop, 0));
	return h;
}

cow__cu_ptr map_physical(cow__cu_handle handle, size_t bytes)
{
	struct cow__cu_prop prop;
	cow__cu_ptr ptr;

	cu_ok(cu->mem_get_prop(&prop, handle));
	cu_ok(cu->mem_address_reserve(&ptr, bytes, 0, 0, 0));
	cu_ok(cu->mem_map(ptr, bytes, 0, handle, 0));
	give_access(ptr, bytes, prop.location.id, COW_CU_ACCESS_READWRITE);
	return ptr;
}

void give_access(cow__cu_ptr ptr, size_t bytes, int device, unsigned flags)
{
	struct cow__cu_access access = { { COW_CU_LOCATION_DEVICE, device }, flags };

	cu_ok(cu->mem_set_access(ptr, bytes, &access, 1));
}
