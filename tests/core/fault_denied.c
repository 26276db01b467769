/* SPDX-License-Identifier: MIT */
/*
 * Machines on which one feature is never to be had
 *
 * Containers without /proc, seccomp filters that forbid a call, kernels without
 * it: every one of them is somebody's everyday machine. There things may cost
 * more, never a byte. Each test denies one feature before the engine's first
 * step and puts a herd through everything: clones of clones, writes on both
 * sides, resizing, forks with writing children, freeing in any order. Then the
 * same for programs that sandbox themselves: denied from the middle on, with
 * memory that was made and inherited while all was allowed.
 */
#include "tests/support/fault/fault.h"
#include "tests/support/fault/pages.h"
#include "tests/support/herd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ROUNDS_EACH = 3 };

/* The number of the PAGEMAP_SCAN ioctl (Linux 6.7); headers may lack it. */
struct scan_words {
	uint64_t words[12];
};
#define SCAN _IOWR('f', 16, struct scan_words)

#define BY(reason) (1u << COW_FALLBACK_##reason)
/* What only the helper does; sanitizers have none. */
#define BY_HELPER (SANITIZED ? BY(THREAD) | BY(BUSY) | BY(COLLAPSE) | BY(PAGEMAP) : 0)

static const struct feature {
	const char *name;
	long nr;
	int arg;
	long value;
	int error;
	enum { MAYBE, AT_FIRST, ALWAYS } asked_for; /* what the workload can't do without */
	unsigned first, later; /* at least one of these is counted: denied from the first, or
	                          from the middle on */
} features[] = {
	{ "nothing", -1, FAULT_ANY, 0, ENOSYS, MAYBE, 0, 0 },
	{ "memfd_create", SYS_memfd_create, FAULT_ANY, 0, ENOSYS, ALWAYS, BY(MEMFD), BY(MEMFD) },
	{ "seals", SYS_fcntl, 1, F_ADD_SEALS, EPERM, ALWAYS, BY(MEMFD), BY(MEMFD) },
	{ "taking locks", SYS_fcntl, 1, F_OFD_SETLK, EINVAL, ALWAYS, BY(MEMFD), BY(SLOTS) },
	{ "asking for locks", SYS_fcntl, 1, F_OFD_GETLK, EINVAL, AT_FIRST, BY(MEMFD), 0 },
	{ "ftruncate", SYS_ftruncate, FAULT_ANY, 0, EPERM, ALWAYS, BY(MEMFD), BY(MEMFD) },
	{ "moving descriptors", SYS_fcntl, 1, F_DUPFD_CLOEXEC, EMFILE, ALWAYS, 0, 0 },
	{ "collapse", SYS_madvise, 2, 25 /* MADV_COLLAPSE */, EINVAL, AT_FIRST, BY(COLLAPSE), BY(COLLAPSE) },
	{ "files (/proc)", SYS_openat, FAULT_ANY, 0, ENOENT, ALWAYS, BY(MEMFD), BY(SLOTS) },
	{ "pagemap scan", SYS_ioctl, 1, (long)SCAN, ENOTTY, AT_FIRST, 0, 0 },
	/* Nobody looks how far a program came that gets no huge pages. */
	{ "reading /proc", SYS_pread64, FAULT_ANY, 0, EPERM, MAYBE, BY(PAGEMAP) | BY(COLLAPSE), 0 },
	{ "mincore", SYS_mincore, FAULT_ANY, 0, ENOSYS, MAYBE, 0, 0 },
	{ "unshare", SYS_unshare, FAULT_ANY, 0, EPERM, ALWAYS, 0, 0 },
	{ "private mappings", SYS_mmap, 3,
	  MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, ENOMEM, ALWAYS, BY(FREEZE), BY(FREEZE) },
	{ "MADV_DONTFORK", SYS_madvise, 2, MADV_DONTFORK, EINVAL, ALWAYS, 0, 0 },
	{ "MADV_REMOVE", SYS_madvise, 2, MADV_REMOVE, EOPNOTSUPP, ALWAYS, 0, 0 },
	{ "MADV_DONTNEED", SYS_madvise, 2, MADV_DONTNEED, EINVAL, MAYBE, 0, 0 },
	{ "sigaction", SYS_rt_sigaction, FAULT_ANY, 0, EPERM, MAYBE, 0, 0 },
	{ "signal masks", SYS_rt_sigprocmask, FAULT_ANY, 0, EPERM, ALWAYS, BY(BUSY), BY(BUSY) },
	{ "limits", SYS_prlimit64, FAULT_ANY, 0, EPERM, ALWAYS, 0, 0 },
	/* Whole calls, as filters do. */
	{ "madvise", SYS_madvise, FAULT_ANY, 0, EPERM, ALWAYS, BY(COLLAPSE), BY(FREEZE) },
	{ "fcntl", SYS_fcntl, FAULT_ANY, 0, EPERM, ALWAYS, BY(MEMFD), BY(SLOTS) },
	{ "mremap", SYS_mremap, FAULT_ANY, 0, EPERM, MAYBE, 0, 0 },
	{ "fallocate", SYS_fallocate, FAULT_ANY, 0, EPERM, MAYBE, 0, 0 },
	{ "ioctl", SYS_ioctl, FAULT_ANY, 0, EPERM, AT_FIRST, 0, 0 },
};

static void deny(const struct feature *f)
{
	if (f->nr >= 0)
		fault_deny(f->nr, f->arg, f->value, f->error);
}

static void clone_each(const struct herd *herd, struct herd *clones)
{
	int i;

	memset(clones, 0, sizeof(*clones));
	for (i = 0; i < HERD_KINDS; i++)
		if (herd->animals[i].storage != NULL) {
			clones->animals[i] = herd->animals[i];
			clones->animals[i].exposed = NULL;
			clones->animals[i].storage =
				lazy(herd->animals[i].storage);
		}
}

static void resize_some(struct herd *herd)
{
	static const enum herd_kind kinds[] = {
		HERD_OWNED, HERD_SMALL, HERD_TINY, HERD_LAZY_A, HERD_VIEW,
	};
	size_t i;

	for (i = 0; i < COUNT(kinds); i++) {
		struct animal *a = &herd->animals[kinds[i]];
		size_t bytes = a->bytes % 2 ? a->bytes / 2 : 2 * a->bytes + 1;

		if (a->storage == NULL)
			continue;
		ok(cow_storage_resize(a->storage, bytes));
		ck_pattern(data(a->storage),
		           (bytes < a->bytes ? bytes : a->bytes) & ~(size_t)7,
		           a->seed);
		a->bytes = bytes;
		fill(mut(a->storage), bytes, a->seed);
	}
}

struct pair {
	struct herd herd, clones;
	struct gate gate;
};

static void child(void *arg)
{
	struct pair *p = arg;

	herd_check(&p->herd);
	herd_check(&p->clones);
	gate_wait(&p->gate); /* the parent has written */
	herd_check(&p->herd);
	herd_check(&p->clones);
	herd_rewrite(&p->herd, 5000, 2);
	herd_free_half(&p->clones, 1);
	cow_trim();
	herd_rewrite(&p->clones, 6000, 1);
	herd_check(&p->herd);
	herd_check(&p->clones);
}

static void reader(void *arg)
{
	herd_check(arg);
	herd_rewrite(arg, 7000, 2);
	herd_check(arg);
}

/* `later`: denied while all there is was cloned and has been inherited. */
static void workload_until(const struct feature *later)
{
	static struct pair p;
	struct herd more;
	pid_t pid;
	int round;

	gate_make(&p.gate);
	for (round = later ? 1 : 0; round < ROUNDS_EACH; round++) {
		herd_make(&p.herd, 100);
		clone_each(&p.herd, &p.clones);
		herd_touch(&p.herd);
		herd_rewrite(&p.herd, 200, 3);
		herd_check(&p.clones);
		clone_each(&p.herd, &more);
		resize_some(&p.clones);
		herd_rewrite(&p.clones, 300, 2);
		herd_check(&p.herd);
		herd_check(&more);
		if (later && round == 1) {
			in_child(reader, &more);
			deny(later);
			in_child(reader, &more);
			herd_rewrite(&p.clones, 350, 3);
		}
		pid = child_start(child, &p);
		herd_rewrite(&p.herd, 400, 1);
		herd_check(&more);
		herd_rewrite(&p.clones, 500, 3);
		gate_open(&p.gate);
		herd_free_half(&more, round % 2);
		child_finish(pid);
		cow_trim();
		herd_rewrite(&more, 600, 1);
		herd_check(&p.herd);
		herd_check(&p.clones);
		herd_check(&more);
		herd_free(&p.herd);
		herd_check(&more);
		herd_free(&more);
		cow_trim();
		herd_check(&p.clones);
		herd_free(&p.clones);
		cow_trim();
		ck_assert_uint_eq(stats_now().bytes_live, 0);
		ck_assert_uint_eq(stats_now().storages_live, 0);
	}
	gate_free(&p.gate);
}

static void workload(void)
{
	workload_until(NULL);
}

static void ck_counted(const struct feature *f, unsigned reasons)
{
	struct cow_stats now = stats_now();
	bool any = false;

	for (int i = 0; i < COW_FALLBACKS; i++)
		any |= (reasons & 1u << i) && now.fallbacks[i];
	ck_assert_msg(!reasons || (reasons & BY_HELPER) || any,
	              "%s: what is done instead is not counted", f->name);
}

START_TEST(without)
{
	const struct feature *f = &features[_i];

	deny(f);
	workload();
	ck_assert_msg(f->asked_for == MAYBE || fault_denials() > 0,
	              "%s: nobody asked for it", f->name);
	ck_counted(f, f->first);
}
END_TEST

START_TEST(without_from_then_on)
{
	const struct feature *f = &features[_i];

	workload_until(f);
	ck_assert_msg(f->asked_for != ALWAYS || fault_denials() > 0,
	              "%s: nobody asked for it", f->name);
	ck_counted(f, f->later);
}
END_TEST

START_TEST(without_addresses)
{
	struct cow_storage *s = NULL;

	fault_deny(SYS_mmap, 2, PROT_NONE, ENOMEM); /* what is only reserved */
	fails(-ENOMEM, cow_storage_new(MIB, NULL, &s));
	ck_assert_ptr_null(s);
	ck_assert_uint_eq(stats_now().fallbacks[COW_FALLBACK_WINDOW], 1);
}
END_TEST

/* As on arm64: what is copied, given back and looked at is 64 KiB then. */
START_TEST(with_pages_of_64_kib)
{
	struct cow_storage_info info = { .size = sizeof(info) };
	struct cow_storage *a, *b;

	fault_pages(64 * KIB);
	if (_i)
		fault_deny(SYS_ioctl, 1, (long)SCAN, ENOTTY);
	a = new_filled(4 * MIB, 0, 1);
	b = lazy(a);
	mut_range(b, MIB + 5, 1, COW_WRITE_BY_PAGE)[0]++;
	ok(cow_storage_get_info(b, &info));
	ck_assert_uint_eq(info.bytes_own, 64 * KIB);
	cow_storage_unref(a);
	cow_storage_unref(b);
	workload();
	ck_assert_uint_eq(fault_pages_refused(), 0);
	ck_assert_uint_gt(fault_pages_widened(), 0);
}
END_TEST

static size_t pages_there(const void *p, size_t bytes)
{
	static unsigned char there[8 * MIB / 4096];
	size_t n = 0;

	must(mincore((void *)(uintptr_t)p, bytes, there) == 0);
	for (size_t i = 0; i < bytes / (size_t)getpagesize(); i++)
		n += there[i] & 1;
	return n * (size_t)getpagesize();
}

/* As before Linux 5.14, where strict storages were refused. */
START_TEST(strict_without_populating)
{
	const size_t bytes = 3 * MIB;
	struct cow_storage *s;

	fault_deny(SYS_madvise, 2, 23 /* MADV_POPULATE_WRITE */, EINVAL);
	ok(cow_option_set("collapse", "no"));
	ok(cow_option_set("backing", _i ? "anon" : "memfd"));
	s = new_storage(bytes, COW_STORAGE_STRICT);
	ck_assert_uint_gt(fault_denials(), 0);
	ck_assert_uint_eq(pages_there(data(s), bytes), bytes);
	fill(mut(s), bytes, 1);
	ok(cow_storage_resize(s, 2 * bytes));
	ck_assert_uint_eq(pages_there(data(s), 2 * bytes), 2 * bytes);
	ck_pattern(data(s), bytes, 1);
	cow_storage_unref(s);
}
END_TEST

/* An emulator takes advice, does nothing, and says that it did. */
START_TEST(holes_that_are_not_made)
{
	struct prng prng = prng_make(42);
	unsigned char *block[60] = { 0 };

	fault_deny(SYS_madvise, 2, MADV_REMOVE, FAULT_IGNORED);
	for (int n = 0; n < 2000; n++) {
		size_t i = prng_below(&prng, COUNT(block));
		size_t bytes = 1 + prng_below(&prng, n % 10 ? 150000 : 3 * MIB);

		cow_block_free(block[i]);
		if (n % 100 == 0)
			(void)cow_trim();
		block[i] = new_block(bytes, COW_BLOCK_ZERO);
		ck_bytes(block[i], bytes, 0);
		memset(block[i], 1, bytes);
	}
	for (size_t i = 0; i < COUNT(block); i++)
		cow_block_free(block[i]);
	ck_assert_int_gt(fault_denials(), 0);
}
END_TEST

/* Copies for a child are moved to their place, or copied there once more. */
START_TEST(without_private_mappings_and_mremap)
{
	fault_deny(SYS_mmap, 3, MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED, EPERM);
	fault_deny(SYS_mremap, FAULT_ANY, 0, ENOSYS);
	workload();
	ck_assert_uint_gt(stats_now().fallbacks[COW_FALLBACK_FREEZE], 0);
}
END_TEST

/* Page tables can't be moved out of the way of a freeze: taken down there. */
START_TEST(without_mremap)
{
	const size_t bytes = 40 * MIB;
	struct cow_storage *a, *clone;
	int n;

	fault_deny(SYS_mremap, FAULT_ANY, 0, EINVAL);
	for (n = 0; n < 5; n++) {
		a = new_filled(bytes, COW_STORAGE_TRANSPARENT, 1);
		clone = lazy(a);
		fill(expose(a), bytes, 2);
		ck_pattern(data(clone), bytes, 1);
		cow_storage_unref(a);
		cow_storage_unref(clone);
	}
	ck_assert_uint_gt(fault_denials(), 0);
}
END_TEST

/* The helper is cloned by an instruction of its own, which only the kernel can
 * refuse. pthread_create() uses clone3(). */
static void deny_bare_threads(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
		         offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
		         offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { COUNT(code), code };

	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program),
	                 0);
}

START_TEST(without_a_helper)
{
	deny_bare_threads();
	cow_block_free(new_block(64 * MIB, 0));
	workload();
	ck_assert_uint_gt(stats_now().fallbacks[COW_FALLBACK_THREAD], 0);
	ck_assert_uint_eq(stats_now().helper_starts, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("fault_denied");
	TCase *tcase = add_bare_case(suite, "fault_denied");

	tcase_add_loop_test(tcase, without, 0, COUNT(features));
	tcase_add_loop_test(tcase, without_from_then_on, 1, COUNT(features));
	tcase_add_loop_test(tcase, with_pages_of_64_kib, 0, 2);
	tcase_add_loop_test(tcase, strict_without_populating, 0, 2);
	tcase_add_test(tcase, holes_that_are_not_made);
	tcase_add_test(tcase, without_private_mappings_and_mremap);
	if (!SANITIZED) /* they have no helper */
		tcase_add_test(tcase, without_mremap);
	if (!SANITIZED)
		tcase_add_test(tcase, without_a_helper);
	tcase = add_bare_case(suite, "addresses");
	tcase_add_test(tcase, without_addresses);
	return run_suite(suite);
}
