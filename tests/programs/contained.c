/* SPDX-License-Identifier: MIT */
/*
 * What runtimes of containers deny by default
 *
 * Their filters answer EPERM to calls that look into other processes, place pages
 * on nodes, make rings or namespaces. Memory, clones of it by fork and threads must
 * be had without any of them.
 *
 * contained [WORD] COMMAND...: becomes another program that is denied them, and by WORD:
 *
 *      memfd_create    that call
 *      collapse        MADV_COLLAPSE, with EINVAL, as on a kernel before 6.1
 *      shortage        MADV_COLLAPSE of any bytes, with ENOMEM
 */
#include "program.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static const int denied[] = {
	SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
	SYS_userfaultfd, SYS_perf_event_open, SYS_bpf, SYS_unshare, SYS_setns,
	SYS_mount, SYS_umount2, SYS_ptrace, SYS_kcmp, SYS_process_vm_readv,
	SYS_process_vm_writev, SYS_mbind, SYS_get_mempolicy, SYS_set_mempolicy,
	SYS_move_pages, SYS_migrate_pages, SYS_pidfd_getfd, SYS_process_madvise,
	SYS_name_to_handle_at, SYS_open_by_handle_at, SYS_add_key, SYS_keyctl,
	SYS_personality, SYS_clock_settime, SYS_swapon, SYS_quotactl,
};

/* A filter that is being written. */
struct filter {
	struct sock_filter lines[2 * COUNT(denied) + 16];
	unsigned short n;
};

static void load(struct filter *f, size_t offset)
{
	f->lines[f->n++] = (struct sock_filter)BPF_STMT(
		BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset);
}

/* Unless the loaded word is `value`, skips the next `lines`. */
static void only_if(struct filter *f, uint32_t value, uint8_t lines)
{
	f->lines[f->n++] = (struct sock_filter)BPF_JUMP(
		BPF_JMP | BPF_JEQ | BPF_K, value, 0, lines);
}

static void answer(struct filter *f, uint32_t action)
{
	f->lines[f->n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
}

static void deny_call(struct filter *f, int call)
{
	only_if(f, (uint32_t)call, 1);
	answer(f, SECCOMP_RET_ERRNO | EPERM);
}

/* The low halves of the advice and the length are the first in memory. */
static void deny_collapse(struct filter *f, uint32_t error, bool also_of_nothing)
{
	only_if(f, SYS_madvise, also_of_nothing ? 3 : 6);
	load(f, offsetof(struct seccomp_data, args[2]));
	only_if(f, MADV_COLLAPSE, also_of_nothing ? 1 : 4);
	if (!also_of_nothing) {
		load(f, offsetof(struct seccomp_data, args[1]));
		only_if(f, 0, 1);
		answer(f, SECCOMP_RET_ALLOW);
	}
	answer(f, SECCOMP_RET_ERRNO | error);
}

/* Returns whether `word` was one. */
static bool deny(const char *word)
{
	struct filter f = { .n = 0 };
	struct sock_fprog program = { .filter = f.lines };
	bool known = true;

	load(&f, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < COUNT(denied); i++)
		deny_call(&f, denied[i]);
	if (strcmp(word, "memfd_create") == 0)
		deny_call(&f, SYS_memfd_create);
	else if (strcmp(word, "collapse") == 0)
		deny_collapse(&f, EINVAL, true);
	else if (strcmp(word, "shortage") == 0)
		deny_collapse(&f, ENOMEM, false);
	else
		known = false;
	answer(&f, SECCOMP_RET_ALLOW);
	program.len = f.n;
	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
	return known;
}

static void child(void *arg)
{
	check(holds(arg, 4 * MIB, 1));
	fill(arg, 4 * MIB, 2);
	check(holds(arg, 4 * MIB, 2));
}

int main(int argc, char **argv)
{
	int also = deny(argc > 1 ? argv[1] : "");
	unsigned char *p;

	if (argc > 1 + also) {
		execvp(argv[1 + also], argv + 1 + also);
		check(!"no such program");
	}
	p = get_filled(4 * MIB, 1);
	for (int i = 0; i < 8; i++) {
		in_child(child, p);
		check(holds(p, 4 * MIB, 1));
		fill(p, 4 * MIB, 1);
		p = realloc(p, (size_t)(4 + i) * MIB);
		check(p && holds(p, 4 * MIB, 1));
	}
	free(p);
	puts("all of it was there");
	return 0;
}
