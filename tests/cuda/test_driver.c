/* SPDX-License-Identifier: MIT */
/*
 * The reference driver follows the rules that it checks
 *
 * Memory and order are here. test_driver_devices.c has devices, test_driver_rules.c mistakes.
 */
#include "tests/support/driver.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GRAIN = 2 << 20, WORDS = 4096, BYTES = WORDS * 4 };

static struct cow__cu_stream *new_stream(unsigned flags)
{
	struct cow__cu_stream *s;

	cu_ok(cu->stream_create(&s, flags, 0));
	return s;
}

static struct cow__cu_event *new_event(unsigned flags)
{
	struct cow__cu_event *e;

	cu_ok(cu->event_create(&e, flags));
	return e;
}

static cow__cu_ptr new_memory(size_t bytes)
{
	cow__cu_ptr p;

	cu_ok(cu->mem_alloc(&p, bytes));
	return p;
}

static unsigned char *new_pinned(size_t bytes)
{
	void *p;

	cu_ok(cu->host_alloc(&p, bytes, 0));
	return p;
}

static uint32_t word_at(cow__cu_ptr ptr)
{
	uint32_t w;

	must(ref.peek(ptr, &w, sizeof(w)) == 0);
	return w;
}

/* ---- Memory -------------------------------------------------------------- */

START_TEST(handles_map_whole)
{
	cow__cu_handle h, again;
	cow__cu_ptr at, ptr;
	struct ref_usage usage;

	driver_start();
	h = new_physical(0, 2 * GRAIN);
	cu_ok(cu->mem_address_reserve(&at, 8 * GRAIN, 0, 0, 0));
	cu_gives(COW_CU_INVALID_VALUE, cu->mem_map(at, GRAIN, 0, h, 0));
	cu_gives(COW_CU_INVALID_VALUE, cu->mem_map(at, GRAIN, GRAIN, h, 0));
	cu_gives(COW_CU_INVALID_VALUE, cu->mem_map(at + 4096, 2 * GRAIN, 0, h, 0));
	cu_gives(COW_CU_INVALID_VALUE, cu->mem_map(at + 7 * GRAIN, 2 * GRAIN, 0, h, 0));
	cu_gives(COW_CU_INVALID_VALUE, cu->mem_map(at + 64 * GRAIN, 2 * GRAIN, 0, h, 0));
	cu_ok(cu->mem_map(at, 2 * GRAIN, 0, h, 0));
	cu_gives(COW_CU_ALREADY_MAPPED, cu->mem_map(at + GRAIN, 2 * GRAIN, 0, h, 0));
	/* The same memory a second time, elsewhere. */
	cu_ok(cu->mem_map(at + 4 * GRAIN, 2 * GRAIN, 0, h, 0));
	give_access(at, 2 * GRAIN, 0, COW_CU_ACCESS_READWRITE);
	cu_ok(cu->set_32(at + 8, 7, 1, NULL));
	cu_ok(cu->ctx_synchronize());
	ck_assert_uint_eq(word_at(at + 4 * GRAIN + 8), 7);
	cu_ok(cu->mem_retain(&again, (void *)(uintptr_t)(at + 100)));
	cu_ok(cu->mem_release(again));
	/* Released, it lives as long as it is mapped. */
	cu_ok(cu->mem_release(h));
	cu_gives(COW_CU_INVALID_VALUE, cu->mem_unmap(at, GRAIN));
	cu_gives(COW_CU_INVALID_VALUE, cu->mem_address_free(at, 8 * GRAIN));
	cu_ok(cu->mem_unmap(at, 2 * GRAIN));
	ref.usage(&usage);
	ck_assert_uint_eq(usage.bytes, 2 * GRAIN);
	cu_ok(cu->mem_unmap(at + 4 * GRAIN, 2 * GRAIN));
	cu_gives(COW_CU_INVALID_VALUE, cu->mem_address_free(at, 4 * GRAIN));
	cu_ok(cu->mem_address_free(at, 8 * GRAIN));
	ref.usage(&usage);
	must(usage.bytes == 0 && usage.handles == 0 && usage.mappings == 0 &&
	     usage.reservations == 0);
	cu_gives(COW_CU_INVALID_VALUE, cu->mem_address_reserve(&ptr, 4096, 0, 0, 0));
	cu_ok(cu->mem_address_reserve(&ptr, GRAIN, 16 * GRAIN, 0, 0));
	ck_assert_uint_eq(ptr % (16 * GRAIN), 0);
}
END_TEST

START_TEST(memory_is_limited)
{
	struct cow__cu_prop prop = { .type = COW_CU_ALLOCATION_PINNED,
		                     .location = { COW_CU_LOCATION_DEVICE, 1 } };
	size_t left, total;
	cow__cu_handle h;
	cow__cu_ptr p;
	int fd;

	driver_start();
	ref.set(REF_MEMORY, 4 * GRAIN);
	p = new_memory(3 * GRAIN - 5);
	cu_ok(cu->mem_get_info(&left, &total));
	ck_assert_uint_eq(left, GRAIN);
	ck_assert_uint_eq(total, 4 * GRAIN);
	cu_gives(COW_CU_OUT_OF_MEMORY, cu->mem_alloc(&p, 2 * GRAIN));
	cu_ok(cu->mem_create(&h, 4 * GRAIN, &prop, 0));
	cu_gives(COW_CU_OUT_OF_MEMORY, cu->mem_create(&h, GRAIN, &prop, 0));
	/* It was not made to be given away. */
	cu_gives(COW_CU_INVALID_VALUE, cu->mem_export(&fd, h, COW_CU_HANDLE_FD, 0));
	cu_gives(COW_CU_INVALID_VALUE, cu->mem_create(&h, 4096, &prop, 0));
	prop.location.id = 7;
	cu_gives(COW_CU_INVALID_DEVICE, cu->mem_create(&h, GRAIN, &prop, 0));
}
END_TEST

static void read_it(void *arg)
{
	(void)*(volatile char *)arg;
}

static void read_device_pointer(void *arg)
{
	driver_start();
	(void)arg;
	read_it((void *)(uintptr_t)new_memory(64));
}

START_TEST(host_cannot_touch_it)
{
	ck_assert_int_eq(WTERMSIG(child_status(child_start(read_device_pointer, NULL))),
	                 SIGSEGV);
}
END_TEST

static void send_descriptor(int over, int fd)
{
	char byte = 0;
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} u = { .head = { CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS } };
	struct iovec io = { &byte, 1 };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = &u,
		            .msg_controllen = sizeof(u) };

	memcpy(CMSG_DATA(&u.head), &fd, sizeof(fd));
	must(sendmsg(over, &m, 0) == 1);
}

static int receive_descriptor(int over)
{
	char byte;
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} u;
	struct iovec io = { &byte, 1 };
	struct msghdr m = { .msg_iov = &io, .msg_iovlen = 1, .msg_control = &u,
		            .msg_controllen = sizeof(u) };
	int fd;

	must(recvmsg(over, &m, MSG_CMSG_CLOEXEC) == 1 && m.msg_controllen);
	memcpy(&fd, CMSG_DATA(&u.head), sizeof(fd));
	return fd;
}

static void importer(void *arg)
{
	int *over = arg, fd;
	cow__cu_handle h;
	cow__cu_ptr at;

	fd = receive_descriptor(over[1]);
	driver_start();
	cu_gives(COW_CU_INVALID_VALUE,
	         cu->mem_import(&h, (void *)(intptr_t)over[1], COW_CU_HANDLE_FD));
	cu_ok(cu->mem_import(&h, (void *)(intptr_t)fd, COW_CU_HANDLE_FD));
	close(fd);
	at = map_physical(h, GRAIN);
	ck_assert_uint_eq(word_at(at), 0x11223344);
	cu_ok(cu->set_32(at + 4, 9, 1, NULL));
	cu_ok(cu->ctx_synchronize());
	/* It is sent on, when no process maps it and its maker has ended. */
	cu_ok(cu->mem_export(&fd, h, COW_CU_HANDLE_FD, 0));
	send_descriptor(over[1], fd);
}

/* Its maker sends it, frees it, and gets it back from a process that has ended. */
START_TEST(memory_travels)
{
	struct ref_usage usage;
	cow__cu_handle h;
	cow__cu_ptr at;
	int over[2], fd;
	pid_t child;

	must(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, over) == 0);
	child = child_start(importer, over);
	driver_start();
	h = new_physical(0, GRAIN);
	at = map_physical(h, GRAIN);
	cu_ok(cu->set_32(at, 0x11223344, 1, NULL));
	cu_ok(cu->ctx_synchronize());
	cu_ok(cu->mem_export(&fd, h, COW_CU_HANDLE_FD, 0));
	cu_ok(cu->mem_unmap(at, GRAIN));
	cu_ok(cu->mem_release(h));
	ref.usage(&usage);
	must(usage.bytes == 0 && usage.handles == 0);
	send_descriptor(over[0], fd);
	close(fd);
	child_finish(child);
	fd = receive_descriptor(over[0]);
	cu_ok(cu->mem_import(&h, (void *)(intptr_t)fd, COW_CU_HANDLE_FD));
	at = map_physical(h, GRAIN);
	ck_assert_uint_eq(word_at(at), 0x11223344);
	ck_assert_uint_eq(word_at(at + 4), 9);
	close(over[0]);
	close(over[1]);
}
END_TEST

START_TEST(pointers_are_known)
{
	unsigned type;
	int device, mapped;
	size_t bytes;
	void *start;
	cow__cu_ptr p;
	unsigned char *pinned;
	char mine;

	driver_start();
	p = new_memory(1000);
	pinned = new_pinned(5000);
	cu_ok(cu->pointer_get_attribute(&type, COW_CU_POINTER_MEMORY_TYPE, p + 999));
	ck_assert_uint_eq(type, COW_CU_MEMORY_DEVICE);
	cu_ok(cu->pointer_get_attribute(&bytes, COW_CU_POINTER_RANGE_SIZE, p));
	ck_assert_uint_eq(bytes, 1000);
	cu_ok(cu->pointer_get_attribute(&start, COW_CU_POINTER_RANGE_START,
	                                (uintptr_t)pinned + 77));
	ck_assert_ptr_eq(start, pinned);
	cu_gives(COW_CU_INVALID_VALUE, cu->pointer_get_attribute(
		&type, COW_CU_POINTER_MEMORY_TYPE, (uintptr_t)&mine));
	cu_ok(cu->pointer_get_attributes(
		2, (unsigned[]){ COW_CU_POINTER_DEVICE_ORDINAL, COW_CU_POINTER_MAPPED },
		(void *[]){ &device, &mapped }, (uintptr_t)&mine));
	ck_assert_int_eq(device, -2);
	ck_assert_int_eq(mapped, 0);
}
END_TEST

/* ---- Order --------------------------------------------------------------- */

/* A pinned buffer that is reused before the copy ran gives wrong bytes; a pageable one
 * was read at once. */
START_TEST(sources_are_read_late)
{
	unsigned char *pinned, *plain = malloc(BYTES);
	struct cow__cu_stream *s;
	cow__cu_ptr p;
	uint64_t waits;

	driver_start();
	ref.set(REF_HOLD, 1);
	s = new_stream(COW_CU_STREAM_NON_BLOCKING);
	p = new_memory(2 * BYTES);
	pinned = new_pinned(BYTES);
	memset(pinned, 1, BYTES);
	memset(plain, 1, BYTES);
	waits = ref.implicit_waits();
	cu_ok(cu->copy_to_device(p, pinned, BYTES, s));
	ck_assert_uint_eq(ref.implicit_waits(), waits);
	memset(pinned, 2, BYTES);
	cu_gives(COW_CU_NOT_READY, cu->stream_query(s));
	cu_ok(cu->stream_synchronize(s));
	ck_assert_uint_eq(word_at(p), 0x02020202);
	cu_ok(cu->copy_to_device(p, plain, BYTES, s));
	ck_assert_uint_eq(ref.implicit_waits(), waits + 1);
	memset(plain, 2, BYTES);
	cu_ok(cu->copy_to_host(plain, p, BYTES, s));
	ck_assert_uint_eq(ref.implicit_waits(), waits + 2);
	ck_bytes(plain, BYTES, 1);
	free(plain);
}
END_TEST

static int last_was;

static void was_last(void *which)
{
	__atomic_store_n(&last_was, *(const int *)which, __ATOMIC_RELAXED);
}

/* Two streams that nothing orders: over many tries, both orders. (Callbacks, since
 * two copies to one place are a race, and ThreadSanitizer says so.) */
START_TEST(streams_overtake)
{
	static const int first = 1, second = 2;
	struct cow__cu_stream *a, *b;
	int seen[3] = { 0 }, i;

	driver_start();
	a = new_stream(COW_CU_STREAM_NON_BLOCKING);
	b = new_stream(COW_CU_STREAM_NON_BLOCKING);
	for (i = 0; i < 200; i++) {
		cu_ok(cu->launch_host_func(a, was_last, (void *)&first));
		cu_ok(cu->launch_host_func(b, was_last, (void *)&second));
		cu_ok(cu->ctx_synchronize());
		seen[last_was]++;
	}
	must(seen[1] > 0 && seen[2] > 0);
}
END_TEST

/* 0: events; 1: the default stream between blocking ones. Never the wrong order. */
START_TEST(order_is_kept)
{
	struct cow__cu_stream *a, *b, *null = NULL;
	struct cow__cu_event *e;
	cow__cu_ptr p;
	int i, k;

	driver_start();
	ref.set(REF_DELAY_US, 300);
	a = new_stream(_i == 0);
	b = new_stream(_i == 0);
	e = new_event(COW_CU_EVENT_DISABLE_TIMING);
	p = new_memory(64);
	for (i = 0; i < 100; i++) {
		for (k = 1; k < 5; k++)
			cu_ok(cu->set_32(p, (unsigned)k, 1, a));
		if (_i == 0) {
			cu_ok(cu->event_record(e, a));
			cu_ok(cu->stream_wait_event(b, e, 0));
		} else {
			cu_ok(cu->copy_within(p + 16, p, 4, null));
		}
		cu_ok(cu->copy_within(p + 4, p + (_i ? 16 : 0), 4, b));
		cu_ok(cu->set_32(p, 9, 1, b));
		cu_ok(cu->stream_synchronize(b));
		ck_assert_uint_eq(word_at(p + 4), 4);
		ck_assert_uint_eq(word_at(p), 9);
		cu_ok(cu->ctx_synchronize());
	}
}
END_TEST

START_TEST(events_end)
{
	struct cow__cu_stream *s;
	struct cow__cu_event *e, *f, *quiet;
	float ms;
	cow__cu_ptr p;

	driver_start();
	ref.set(REF_HOLD, 1);
	s = new_stream(COW_CU_STREAM_NON_BLOCKING);
	e = new_event(0);
	f = new_event(0);
	quiet = new_event(COW_CU_EVENT_DISABLE_TIMING);
	p = new_memory(64);
	cu_ok(cu->event_query(e)); /* never recorded: nothing to wait for */
	cu_gives(COW_CU_INVALID_HANDLE, cu->event_elapsed_time(&ms, e, f));
	cu_ok(cu->event_record(e, s));
	cu_ok(cu->set_8(p, 1, 64, s));
	cu_ok(cu->event_record(f, s));
	cu_ok(cu->event_record(quiet, s));
	cu_gives(COW_CU_NOT_READY, cu->event_query(f));
	cu_gives(COW_CU_NOT_READY, cu->event_elapsed_time(&ms, e, f));
	cu_ok(cu->event_synchronize(f));
	cu_ok(cu->event_query(e));
	cu_ok(cu->event_elapsed_time(&ms, e, f));
	must(ms >= 0);
	cu_gives(COW_CU_INVALID_HANDLE, cu->event_elapsed_time(&ms, e, quiet));
	/* Destroyed with work behind it, a stream still does it. */
	cu_ok(cu->set_8(p, 3, 64, s));
	cu_ok(cu->stream_destroy(s));
	cu_ok(cu->ctx_synchronize());
	ck_assert_uint_eq(word_at(p), 0x03030303);
	ref.set(REF_MAX_EVENTS, 3);
	cu_gives(COW_CU_OUT_OF_MEMORY, cu->event_create(&e, 0));
}
END_TEST

struct shared_event {
	struct gate go, back;
	struct cow__cu_ipc_event handle;
};

static void waiter(void *arg)
{
	struct shared_event *x = arg;
	struct cow__cu_event *e;
	struct cow__cu_stream *s;
	cow__cu_ptr p;

	gate_receive(&x->go, &x->handle, sizeof(x->handle));
	driver_start();
	cu_ok(cu->ipc_open_event(&e, x->handle));
	s = new_stream(COW_CU_STREAM_NON_BLOCKING);
	p = new_memory(64);
	cu_ok(cu->stream_wait_event(s, e, 0));
	cu_ok(cu->set_8(p, 1, 64, s));
	cu_gives(COW_CU_NOT_READY, cu->event_query(e));
	cu_gives(COW_CU_NOT_READY, cu->stream_query(s));
	gate_open(&x->back);
	cu_ok(cu->stream_synchronize(s));
	cu_ok(cu->event_query(e));
}

struct callback {
	struct gate done;
	enum cow__cu_result result;
};

static void call_from_callback(void *arg)
{
	struct callback *c = arg;

	c->result = cu->stream_query(NULL);
	gate_open(&c->done);
}

START_TEST(events_travel)
{
	struct shared_event x;
	struct cow__cu_event *e, *local;
	struct cow__cu_stream *s;
	pid_t child;

	gate_make(&x.go);
	gate_make(&x.back);
	child = child_start(waiter, &x);
	driver_start();
	e = new_event(COW_CU_EVENT_INTERPROCESS | COW_CU_EVENT_DISABLE_TIMING);
	cu_gives(COW_CU_INVALID_VALUE, cu->event_create(&local, COW_CU_EVENT_INTERPROCESS));
	local = new_event(0);
	cu_gives(COW_CU_INVALID_HANDLE, cu->ipc_get_event(&x.handle, local));
	cu_ok(cu->ipc_get_event(&x.handle, e));
	cu_gives(COW_CU_INVALID_CONTEXT, cu->ipc_open_event(&local, x.handle));
	s = new_stream(COW_CU_STREAM_NON_BLOCKING);
	ref.set(REF_HOLD, 1);
	cu_ok(cu->event_record(e, s));
	gate_send(&x.go, &x.handle, sizeof(x.handle));
	gate_wait(&x.back);
	if (_i == 0)
		cu_ok(cu->stream_synchronize(s));
	else
		ref.set(REF_HOLD, 0); /* late, but by itself */
	child_finish(child);
}
END_TEST

START_TEST(callbacks_make_no_calls)
{
	struct callback c = { .result = COW_CU_SUCCESS };

	driver_start();
	gate_make(&c.done);
	cu_ok(cu->launch_host_func(NULL, call_from_callback, &c));
	gate_wait(&c.done);
	ck_assert_int_eq(c.result, COW_CU_NOT_PERMITTED);
	gate_free(&c.done);
}
END_TEST

/* ---- Suite --------------------------------------------------------------- */

int main(void)
{
	Suite *suite = suite_create("driver");
	TCase *memory = add_bare_case(suite, "memory"), *order = add_bare_case(suite, "order");

	tcase_add_test(memory, handles_map_whole);
	tcase_add_test(memory, memory_is_limited);
	tcase_add_test(memory, host_cannot_touch_it);
	tcase_add_test(memory, memory_travels);
	tcase_add_test(memory, pointers_are_known);
	tcase_add_test(order, sources_are_read_late);
	tcase_add_test(order, streams_overtake);
	tcase_add_loop_test(order, order_is_kept, 0, 2);
	tcase_add_test(order, events_end);
	tcase_add_loop_test(order, events_travel, 0, 2);
	tcase_add_test(order, callbacks_make_no_calls);
	return run_suite(suite);
}
