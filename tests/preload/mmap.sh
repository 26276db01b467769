#!/bin/bash
# SPDX-License-Identifier: MIT
#
# With mmap=BYTES the engine serves the program's own anonymous mappings, too. Programs
# with allocators of their own make such mappings, and virtual machines do.
. "$(dirname "$0")/lib.sh"

thresholds='4096 default'
also=mmap=4096
program mappings
program grows_down
program forks
program advice
program remap
program grow
program protect
program idle_threads
thresholds=default
also=mmap=1M
program mappings
program grow
program descendants
program busy_threads

# The kernel alone would give the same bytes, so is the engine asked? No malloc reaches this
# threshold: all bytes served were mapped.
maps_served() { # -eq|-gt OPTIONS NAME
	rm -f "$work/report"
	also=threshold=1G,$2 report=$work/report under default "$programs/mappings" >"$work/out" 2>&1
	if [ -s "$work/report" ] && [ "$(served "$work/report")" "$1" 0 ]; then
		pass "$3"
	else
		fail "$3" "$work/out" "$work/report"
	fi
}
maps_served -gt mmap=4096 'mappings are served'
maps_served -gt mmap=1M 'large mappings are served'
maps_served -eq mmap=1G 'smaller mappings are not'
maps_served -eq helper=no 'without the option none is'

# An allocator that gets all its memory with mmap.
thresholds=default
python='
import os
large = {i: bytes([i % 251]) * (i % 7000) for i in range(30000)}
pid = os.fork()
for i in range(0, 30000, 3):
    large[i] = bytes([os.getpid() == 0]) * (i % 900)
s = sum(map(len, large.values()))
if pid == 0:
    os._exit(s % 251)
print(s, os.waitpid(pid, 0)[1] >> 8, s % 251)
'
for library in jemalloc mimalloc tcmalloc_minimal; do
	found=$(find /usr/lib -name "lib$library.so.*" 2>/dev/null | sort |
		tail -n 1)
	if [ -n "$found" ] && command -v python3 >/dev/null; then
		alone=$found preload="$shim $found" PYTHONMALLOC=malloc \
			compare "python3 on $library" python3 -c "$python"
	else
		skip "python3 on $library: not installed"
	fi
done

# A library maps memory before the shim's constructor runs, and keeps it.
cc=$(command -v gcc || command -v cc || command -v clang)
if [ -z "$cc" ]; then
	skip 'mapped early: no compiler here'
	finish
fi
"$cc" -shared -fPIC -x c -o "$work/early.so" - <<'END'
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>
static char *kept;
static int forks;
static void counts(void) { forks++; }
__attribute__((constructor)) static void begin(void)
{
	kept = mmap(0, 8 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (kept == MAP_FAILED)
		_exit(9);
	kept[5 << 20] = 5;
	pthread_atfork(counts, 0, 0);
}
int early(char value)
{
	int was = kept[5 << 20];
	kept[5 << 20] = value;
	return was + 100 * forks;
}
END
cat >"$work/early.c" <<'END'
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int early(char value);
int main(void)
{
	for (int i = 1; i < 4; i++) {
		int was = early((char)i), status = -1;
		pid_t child = fork();
		if (child == 0)
			_exit(early(77) % 100 != i);
		if (waitpid(child, &status, 0) != child)
			return 1;
		printf("before %d, after %d, child %d\n", was, early((char)i), status);
	}
	return 0;
}
END
if "$cc" -Wl,-rpath,"$work" -o "$work/early" "$work/early.c" "$work/early.so"; then
	also=mmap=1M must_succeed=1 compare 'mapped early' "$work/early"
	rm -f "$work/report"
	also=mmap=1M,report=$work/report under default "$work/early" >"$work/out" 2>&1
	if [ "$(served "$work/report")" -ge $((8 << 20)) ]; then
		pass 'what is mapped early is served'
	else
		fail 'what is mapped early is served' "$work/out" "$work/report"
	fi
else
	fail 'mapped early'
fi
finish
