/* SPDX-License-Identifier: MIT */
/*
 * A virtual machine that is forked twenty times while it runs
 *
 * The guest's memory is a storage of 256 MiB. Its processor adds to a number at A, and copies it to B,
 * for ever. Twenty times this program stops the processor, reads its registers, and clones the
 * memory. A child process makes a machine of its own from that, and runs on. Each machine has all of
 * the memory from its first instruction on, and takes pages of its own only for what it writes.
 *
 * With several processors the memory alone needs no stop: cow_storages_clone_at_once() gives bytes of
 * one moment, whoever writes them. Needs /dev/kvm on x86-64; elsewhere it says so and ends with 77.
 */
#include <cowshed.h>

#include <stdio.h>
#include <stdlib.h>

#if defined(__x86_64__)

#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { FORKS = 20, CODE = 0x1000, A = 0x2000, B = 0x8000 };
#define BYTES ((size_t)256 << 20)

/* 16 bits: add 1 to A, copy A to B, begin again */
static const unsigned char code[] = { 0x66, 0xff, 0x06, 0x00, 0x20, 0x66, 0xa1, 0x00,
	                              0x20, 0x66, 0xa3, 0x00, 0x80, 0xeb, 0xf1 };

struct machine {
	int vm, cpu;
	struct kvm_run *run;
};

struct registers {
	struct kvm_regs general;
	struct kvm_sregs special;
};

static void must(int r, const char *what)
{
	if (r < 0) {
		fprintf(stderr, "live_fork: %s: %s\n", what,
		        r < -1 ? cow_last_error() : strerror(errno));
		exit(1);
	}
}

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static unsigned number_at(const void *memory, size_t at)
{
	return *(const volatile unsigned *)((const char *)memory + at);
}

static struct machine machine_on(void *memory)
{
	struct kvm_userspace_memory_region region = { .memory_size = BYTES,
		                                      .userspace_addr = (uintptr_t)memory };
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	struct machine m;

	must(kvm, "/dev/kvm");
	m.vm = ioctl(kvm, KVM_CREATE_VM, 0);
	must(m.vm, "a machine");
	must(ioctl(m.vm, KVM_SET_USER_MEMORY_REGION, &region), "its memory");
	m.cpu = ioctl(m.vm, KVM_CREATE_VCPU, 0);
	must(m.cpu, "its processor");
	m.run = mmap(NULL, (size_t)ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0), PROT_READ | PROT_WRITE,
	             MAP_SHARED, m.cpu, 0);
	must(m.run == MAP_FAILED ? -1 : 0, "its state");
	close(kvm);
	return m;
}

static void registers_set(struct machine m, struct registers *r)
{
	must(ioctl(m.cpu, KVM_SET_SREGS, &r->special), "registers");
	must(ioctl(m.cpu, KVM_SET_REGS, &r->general), "registers");
}

static struct registers registers_get(struct machine m)
{
	struct registers r;

	must(ioctl(m.cpu, KVM_GET_SREGS, &r.special), "registers");
	must(ioctl(m.cpu, KVM_GET_REGS, &r.general), "registers");
	return r;
}

static void boot(struct machine m)
{
	struct registers r = registers_get(m);

	r.special.cs.base = r.special.cs.selector = 0;
	r.general = (struct kvm_regs){ .rip = CODE, .rflags = 2 };
	registers_set(m, &r);
}

static void interrupt(int sig) /* ends KVM_RUN */
{
	(void)sig;
}

/* The processor runs on a thread, and stops when it is asked to. */
static struct machine parent;
static pthread_barrier_t stopped, goes_on;
static bool over;

static void *processor(void *arg)
{
	(void)arg;
	while (!over) {
		must(ioctl(parent.cpu, KVM_RUN, 0) < 0 && errno == EINTR ? 0 : -1, "the guest stopped");
		parent.run->immediate_exit = 0;
		pthread_barrier_wait(&stopped);
		pthread_barrier_wait(&goes_on);
	}
	return NULL;
}

static void stop(pthread_t thread)
{
	parent.run->immediate_exit = 1; /* also if the signal comes before KVM_RUN */
	pthread_kill(thread, SIGUSR1);
	pthread_barrier_wait(&stopped);
}

/* In the child: goes on from the moment for a hundredth of a second. */
static int run_clone(struct cow_storage *clone, struct registers *r)
{
	struct itimerval soon = { .it_value.tv_usec = 10000 };
	unsigned before;
	struct machine m;
	void *memory;

	/* Writable, page by page: the processor writes few of them. */
	must(cow_storage_data_mut_range(clone, 0, BYTES, COW_WRITE_BY_PAGE, &memory), "a clone");
	before = number_at(memory, A);
	m = machine_on(memory);
	registers_set(m, r);
	setitimer(ITIMER_REAL, &soon, NULL);
	must(ioctl(m.cpu, KVM_RUN, 0) < 0 && errno == EINTR ? 0 : -1, "a clone stopped");
	return number_at(memory, A) > before && number_at(memory, A) - number_at(memory, B) <= 1 ? 0 : 1;
}

static pid_t fork_machine(struct cow_storage *s, pthread_t thread, double *pause)
{
	struct cow_storage *clone;
	struct registers r;
	double t0 = now_ms();
	pid_t child;

	stop(thread);
	r = registers_get(parent);
	must(cow_storages_clone_at_once(&s, 1, NULL, &clone), "cow_storages_clone_at_once");
	pthread_barrier_wait(&goes_on);
	*pause += now_ms() - t0;
	child = fork();
	must(child, "fork");
	if (child == 0)
		_exit(run_clone(clone, &r));
	cow_storage_unref(clone);
	return child;
}

int main(void)
{
	struct cow_storage_options options = { .size = sizeof(options),
		                               .flags = COW_STORAGE_TRANSPARENT };
	struct sigaction action = { .sa_handler = interrupt };
	struct cow_storage *s;
	pid_t children[FORKS];
	double pause = 0;
	pthread_t thread;
	int status, right = 0;
	unsigned before;
	void *memory;

	if (access("/dev/kvm", R_OK | W_OK) < 0) {
		puts("skip live_fork /dev/kvm is missing");
		return 77;
	}
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGALRM, &action, NULL);
	must(cow_storage_new(BYTES, &options, &s), "cow_storage_new");
	must(cow_storage_data_mut(s, &memory), "cow_storage_data_mut");
	memset(memory, 0, BYTES);
	memcpy((char *)memory + CODE, code, sizeof(code));
	parent = machine_on(memory);
	boot(parent);
	pthread_barrier_init(&stopped, NULL, 2);
	pthread_barrier_init(&goes_on, NULL, 2);
	pthread_create(&thread, NULL, processor, NULL);
	for (int i = 0; i < FORKS; i++)
		children[i] = fork_machine(s, thread, &pause);
	for (int i = 0; i < FORKS; i++)
		right += waitpid(children[i], &status, 0) == children[i] && status == 0;
	before = number_at(memory, A);
	while (number_at(memory, A) == before) /* the first machine still runs */
		usleep(1000);
	stop(thread);
	over = true;
	pthread_barrier_wait(&goes_on);
	pthread_join(thread, NULL);
	cow_storage_unref(s);
	printf("%d of %d machines went on, each with %zu MiB; a pause of %.1f ms each\n", right, FORKS,
	       BYTES >> 20, pause / FORKS);
	return right != FORKS;
}

#else

int main(void)
{
	puts("skip live_fork it is written for x86-64");
	return 77;
}

#endif
