/* SPDX-License-Identifier: MIT */
/*
 * Runs a program and prints its time, its CPU time and its memory
 *
 *      plain_measure [-a] [-o FILE] [-p SHIM] [-d DIRECTORY] -- PROGRAM ARGS...
 *      plain_measure -w BYTES
 *
 * The program runs in a memory cgroup of its own if one can be made. The peak then
 * counts all of its processes, page tables and unmapped memfd pages, and the file pages
 * that it was first to touch. Without a cgroup the peak is the largest RSS of one
 * process, and the line says so. SHIM goes into LD_PRELOAD of the program alone. One
 * line goes to FILE (standard output without it):
 *
 *      wall_ms=.. cpu_ms=.. peak_kib=.. peak_mib=.. peak_by=cgroup|rss status=..
 *
 * -a is for a program that writes large files: its peak then leaves out the pages of
 * files on disks. The memory is read every 20 ms for that.
 *
 * The exit status is that of the program (128 + signal if a signal killed it).
 * -w touches BYTES and gives them back, so that the host backs them.
 */
#include "bench/meter.h"

/* Waits for the program; *peak is the most that was charged meanwhile, or -1. */
static int wait_sampling(pid_t pid, int *status, const struct meter *m,
                         double *peak)
{
	pid_t done;

	*peak = -1;
	while ((done = waitpid(pid, status, WNOHANG)) == 0) {
		double now = meter_own(m);

		*peak = now > *peak ? now : *peak;
		sleep_ms(20);
	}
	return done;
}

static int run(char **argv, const char *shim, const char *directory,
               struct meter *m, double *wall, double *own)
{
	double t0;
	int status, go[2];
	pid_t pid;

	pipe_open(go);
	pid = forked(NULL);
	if (pid == 0) {
		char byte;

		close(go[1]);
		if (shim && *shim)
			setenv("LD_PRELOAD", shim, 1);
		if (directory && chdir(directory))
			die("%s: %s", directory, strerror(errno));
		if (read(go[0], &byte, 1) != 1)
			_exit(126);
		close(go[0]);
		execvp(argv[0], argv);
		die("%s: %s", argv[0], strerror(errno));
	}
	close(go[0]);
	meter_put(m, pid);
	t0 = now_ns();
	if (write(go[1], "", 1) != 1 ||
	    (own ? wait_sampling(pid, &status, m, own) :
	           waitpid(pid, &status, 0)) != pid)
		die("the program could not be started");
	*wall = now_ns() - t0;
	return WIFEXITED(status) ? WEXITSTATUS(status) :
	                           128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
	const char *out = NULL, *shim = NULL, *directory = NULL, *by;
	double wall, cpu, peak, own;
	bool sampled = false;
	struct rusage r;
	struct meter m;
	size_t touched = 0;
	int status;
	FILE *f;

	OPTIONS({ 'a', .flag = &sampled }, { 'o', .text = &out }, { 'p', .text = &shim },
	        { 'd', .text = &directory }, { 'w', .size = &touched });
	if (touched) {
		warm_host(touched);
		return 0;
	}
	if (optind >= argc)
		die("no program is named; usage: see the head of bench/plain_measure.c");
	meter_open(&m);
	status = run(argv + optind, shim, directory, &m, &wall,
	             sampled ? &own : NULL);
	cpu = cpu_ns_of(RUSAGE_CHILDREN);
	getrusage(RUSAGE_CHILDREN, &r);
	peak = sampled ? own : meter_peak(&m);
	by = peak >= 0 ? "cgroup" : "rss";
	peak = peak >= 0 ? peak / KIB : (double)r.ru_maxrss;
	f = out ? fopen(out, "we") : stdout;
	if (!f)
		die("%s: %s", out, strerror(errno));
	fprintf(f, "wall_ms=%.2f cpu_ms=%.2f peak_kib=%.0f peak_mib=%.4f peak_by=%s status=%d\n",
	        wall / 1e6, cpu / 1e6, peak, peak / KIB, by, status);
	if (out)
		fclose(f);
	meter_close(&m);
	return status;
}
