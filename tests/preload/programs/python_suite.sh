#!/bin/bash
# SPDX-License-Identifier: MIT
#
# CPython's own tests of what the shim touches: forks, threads, processes that
# share memory, mappings, large buffers, and libraries with a malloc of theirs.
. "$(dirname "$0")/lib.sh"

# Left out: what is about time, and fails by itself on a busy machine; and a
# test that lists all descriptors of a process, where it finds the shim's too.
ignore=(-i '*timeout*' -i '*timing*' -i test_pass_fds_redirected)

for module in \
	fork1 thread threading threading_local posix subprocess popen wait3 wait4 \
	multiprocessing_fork multiprocessing_forkserver multiprocessing_spawn \
	multiprocessing_main_handling concurrent_futures mmap memoryview buffer \
	array bytes io memoryio bufio pickle gc weakref ctypes resource signal \
	faulthandler zlib bz2 lzma tarfile zipfile hashlib deque list; do
	if has_module "test.test_$module"; then
		suite "python's test_$module" "$python" -m test \
			"${ignore[@]}" --tempdir "$work" \
			--junit-xml "$results" "test_$module"
	else
		skip "python's test_$module is not here"
	fi
done
finish
