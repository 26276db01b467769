#!/bin/bash
# SPDX-License-Identifier: MIT
#
# With mmap=BYTES the program's own anonymous mappings are the engine's too:
# those of programs with allocators of their own, and of virtual machines.
. "$(dirname "$0")/lib.sh"

thresholds='4096 default'
also=mmap=4096
program mappings
program forks
program advice
program remap
program protect
program idle_threads
thresholds=default
also=mmap=1M
program mappings
program descendants
program busy_threads

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
finish
