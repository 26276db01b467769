/* SPDX-License-Identifier: MIT */
/*
 * Steal: the last reference takes the bytes over
 *
 * A storage is cloned, the original is dropped, and the clone is written: it must get
 * the pages as they are. Bars: nothing is copied, and 1 GiB needs no more system calls
 * than 4 KiB. Times are compared across sizes. To count the calls, the program starts
 * itself once more and traces it; the traced program calls getppid before and after
 * the steal, as a mark. If ptrace is denied, the calls are not counted.
 */
#include <cowshed.h>

#include "bench/common.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>

/* One steal: `s` is dropped, and its clone is returned. `mark`: call getppid before and
 * after it. */
static struct cow_storage *steal(struct cow_storage *s, bool mark, double *ns)
{
	struct cow_storage *heir;
	double t0;
	char *p;

	must(cow_storage_lazy_clone(s, &heir));
	cow_storage_unref(s);
	if (mark)
		syscall(SYS_getppid);
	t0 = now_ns();
	must(cow_storage_data_mut(heir, (void **)&p));
	*ns = now_ns() - t0;
	if (mark)
		syscall(SYS_getppid);
	p[0]++;
	return heir;
}

enum { DENIED = 77 };

static int traced(size_t bytes)
{
	struct cow_storage *s = storage_filled(bytes, 0, 1, NULL);
	double ns;

	s = steal(s, false, &ns); /* the first one does work that is done once */
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		return DENIED;
	raise(SIGSTOP);
	s = steal(s, true, &ns);
	cow_storage_unref(s);
	return 0;
}

/* System calls of one steal (clock_gettime makes none); -1: they can't be counted. */
static int calls(size_t bytes)
{
	pid_t pid = fork();
	int status, marks = 0, count = 0;

	if (pid == 0) {
		char text[32];

		snprintf(text, sizeof(text), "%zu", bytes);
		execl("/proc/self/exe", "steal", text, (char *)NULL);
		_exit(DENIED);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid ||
	    (WIFEXITED(status) && WEXITSTATUS(status) == DENIED))
		return -1;
	if (!WIFSTOPPED(status))
		die("steal: the traced program failed (%#x)", status);
	ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD);
	for (;;) {
		struct __ptrace_syscall_info info;

		if (ptrace(PTRACE_SYSCALL, pid, NULL, NULL) ||
		    waitpid(pid, &status, 0) != pid)
			return -1;
		if (!WIFSTOPPED(status))
			break;
		if (WSTOPSIG(status) != (SIGTRAP | 0x80))
			continue;
		if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof(info),
		           &info) <= 0 ||
		    info.op != PTRACE_SYSCALL_INFO_ENTRY)
			continue;
		if (info.entry.nr == SYS_getppid)
			marks++;
		else if (marks == 1)
			count++;
	}
	if (status)
		die("steal: the traced program failed (%#x)", status);
	return marks == 2 ? count : -1;
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = { 4 * KIB, 64 * KIB, MIB, 16 * MIB, 256 * MIB, GIB };
	enum { SIZES = COUNT_OF(sizes) };
	static struct series times[SIZES];
	struct cow_storage *s[SIZES];
	struct cow_stats before = { .size = sizeof(before) }, after = before;
	int base = -1, n = rounds(101);

	if (argc > 1)
		return traced(size_parse(argv[1]));
	warm_host(sized(GIB) * 2);
	for (int i = 0; i < SIZES; i++)
		s[i] = storage_filled(sized(sizes[i]), 0, 1, NULL);
	must(cow_stats_get(&before));
	for (int round = 0; round < n; round++)
		for (int i = 0; i < SIZES; i++) {
			double ns;

			s[i] = steal(s[i], false, &ns);
			series_add(&times[i], ns);
		}
	must(cow_stats_get(&after));
	for (int i = 0; i < SIZES; i++) {
		report_ratio(size_name(sized(sizes[i])), "ns", &times[i], i ? &times[0] : NULL);
		cow_storage_unref(s[i]);
	}
	cow_trim();
	report_one("bytes-copied", "B", after.bytes_copied - before.bytes_copied, BAR_OURS, 0);
	report_one("not-stolen", "times", (double)n * SIZES - (after.steals - before.steals),
	           BAR_OURS, 0);
	for (int i = 0; i < SIZES; i++) {
		int count = calls(sized(sizes[i]));

		if (count < 0) {
			puts("  steal: system calls can't be counted here");
			break;
		}
		if (base < 0)
			base = count;
		report_one(named("%s-system-calls", size_name(sized(sizes[i]))), "calls", count,
		           BAR_OURS, base);
	}
	return 0;
}
