#!/bin/bash
# SPDX-License-Identifier: MIT
#
# CPython's own tests of memory, fork, processes and threads, by an interpreter that has them all:
# $PYTHON_SUITE, pyenv's newest, or Debian's. Each test of a file is compared.
. tests/outside/lib.sh
python=
all='test.test_mmap, test.test_fork1, test.test_multiprocessing_fork, test.test_concurrent_futures'
for it in ${PYTHON_SUITE:+"$PYTHON_SUITE"} \
	$(ls -rv "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[23]*/bin/python3 2>/dev/null) /usr/bin/python3; do
	"$it" -c "import $all" 2>/dev/null && python=$it && break
done
[ -n "$python" ] || skip 'no Python has all its tests (Debian 12: libpython3.11-testsuite)'
files='test_mmap test_fork1 test_wait3 test_wait4 test_array test_buffer test_memoryview
	test_bytes test_thread test_threadsignals test_capi.test_mem'
[ -n "$quick" ] || files+=' test_subprocess test_posix test_os test_threading test_gc test_io
	test_bigmem test_ctypes test_concurrent_futures test_multiprocessing_fork
	test_multiprocessing_spawn test_multiprocessing_forkserver test_shelve test_zlib'
[ -z "$quick" ] || settings='threshold=4096 threshold=65536,mmap=65536'
limit=900
# The helper is a second thread, and Python 3.12 warns of a fork beside one.
export PYTHONWARNINGS='ignore:This process:DeprecationWarning'
sift() { grep -E '^(test\w*|[[:upper:]]\w*) .*\.\.\. (ok|FAIL|ERROR|skipped)' "$1" |
	sed 's/ \.\.\. skipped .*/ ... skipped/' | sort; }
cd "$work" || exit 1
for file in $files; do
	compare "$file" "$python" -m test -v "$file"
done
finish
