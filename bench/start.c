/* SPDX-License-Identifier: MIT */
/*
 * Start: what the shim adds to the start of a small program
 *
 * /bin/true is started without and with the shim, in turns. `filter` is the same under a filter of
 * system calls that allows all and came with exec, as most containers have one: then the library
 * tries its calls in a child. Bar: 100 us more, wall and processor time each.
 */
#include "bench/common.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>

enum { STARTS = 40 };

static char preload[4096];

struct side {
	double wall[STARTS], cpu[STARTS];
};

struct figures {
	struct series with, without, more, cpu;
};

static void start(bool shim, double *wall, double *cpu)
{
	static char name[] = "/bin/true";
	char *command[] = { name, NULL }, *plain[] = { NULL }, *ours[] = { preload, NULL };
	struct rusage used;
	double t0 = now_ns();
	int status;
	pid_t pid;

	if (posix_spawn(&pid, *command, NULL, NULL, command, shim ? ours : plain) ||
	    wait4(pid, &status, 0, &used) != pid || status)
		die("/bin/true did not run");
	*wall = us_since(t0);
	*cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1e6 +
	       (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static void one_round(struct figures *f)
{
	struct side plain, shim;
	double with, without;

	for (int i = 0; i < STARTS; i++) {
		start(false, &plain.wall[i], &plain.cpu[i]);
		start(true, &shim.wall[i], &shim.cpu[i]);
	}
	with = quantile(shim.wall, STARTS, 0.5);
	without = quantile(plain.wall, STARTS, 0.5);
	series_add(&f->with, with);
	series_add(&f->without, without);
	series_add(&f->more, with - without);
	series_add(&f->cpu, quantile(shim.cpu, STARTS, 0.5) - quantile(plain.cpu, STARTS, 0.5));
}

static void filter_all_allowed(void)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = { 1, &allow };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		_exit(1);
}

/* All rounds in a child, which may be filtered. False: it could not be. */
static bool measure(bool filter, struct figures *f)
{
	int n = rounds(9), status;
	pid_t pid;

	fflush(NULL);
	pid = forked(NULL);
	if (pid == 0) {
		if (filter)
			filter_all_allowed();
		for (int i = 0; i < n; i++)
			one_round(f);
		_exit(0);
	}
	return waitpid(pid, &status, 0) == pid && status == 0;
}

static void show(const char *name, const struct figures *f)
{
	char what[64];

	report_ratio(name, "us", &f->with, &f->without);
	snprintf(what, sizeof(what), "%s/more", name);
	report(what, "us", &f->more, NULL, BAR_OURS, 100);
	snprintf(what, sizeof(what), "%s/more/cpu", name);
	report(what, "us", &f->cpu, NULL, BAR_OURS, 100);
}

int main(void)
{
	struct figures *f = map_shared(2 * sizeof(*f));
	char self[2048];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n < 0)
		die("/proc is needed");
	self[n] = '\0';
	*strrchr(self, '/') = '\0';
	snprintf(preload, sizeof(preload), "LD_PRELOAD=%s/../lib/libcowshed-preload.so", self);
	if (!measure(false, f))
		die("/bin/true could not be measured");
	show("exec", f);
	if (measure(true, f + 1))
		show("exec/filter", f + 1);
	else
		report_failed("exec/filter", "us", "no filter could be set");
	return 0;
}
