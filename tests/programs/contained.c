/* SPDX-License-Identifier: MIT */
/*
 * What runtimes of containers deny by default
 *
 * Their filters answer EPERM to calls that look into other processes, place pages
 * on nodes, make rings or namespaces. Memory, clones of it by fork and threads must
 * be had without any of them.
 *
 * contained [memfd_create] COMMAND...: becomes another program that is denied them (and that).
 */
#include "program.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static const int denied[] = {
	SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
	SYS_userfaultfd, SYS_perf_event_open, SYS_bpf, SYS_unshare, SYS_setns,
	SYS_mount, SYS_umount2, SYS_ptrace, SYS_kcmp, SYS_process_vm_readv,
	SYS_process_vm_writev, SYS_mbind, SYS_get_mempolicy, SYS_set_mempolicy,
	SYS_move_pages, SYS_migrate_pages, SYS_pidfd_getfd, SYS_process_madvise,
	SYS_name_to_handle_at, SYS_open_by_handle_at, SYS_add_key, SYS_keyctl,
	SYS_personality, SYS_clock_settime, SYS_swapon, SYS_quotactl,
};

static void deny(int also)
{
	struct sock_filter filter[2 * COUNT(denied) + 4];
	struct sock_fprog program = { .filter = filter };
	unsigned short n = 0;

	filter[n++] = (struct sock_filter)BPF_STMT(
		BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i <= COUNT(denied); i++) {
		int call = i < COUNT(denied) ? denied[i] : also;

		if (call < 0)
			break;
		filter[n++] = (struct sock_filter)BPF_JUMP(
			BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, 1);
		filter[n++] = (struct sock_filter)BPF_STMT(
			BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
	}
	filter[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K,
	                                           SECCOMP_RET_ALLOW);
	program.len = n;
	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

static void child(void *arg)
{
	check(holds(arg, 4 * MIB, 1));
	fill(arg, 4 * MIB, 2);
	check(holds(arg, 4 * MIB, 2));
}

int main(int argc, char **argv)
{
	int also = argc > 1 && strcmp(argv[1], "memfd_create") == 0;
	unsigned char *p;

	deny(also ? SYS_memfd_create : -1);
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
