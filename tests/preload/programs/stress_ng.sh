#!/bin/bash
# SPDX-License-Identifier: MIT
#
# stress-ng's stressors for processes and memory, which verify what they do. Its
# reports are full of times, so only the exit status is compared: 0 when
# everything held, 2 for a stressor that failed. Each ends after so many
# operations or, on a slow machine, after some seconds.
. "$(dirname "$0")/../lib.sh"

command -v stress-ng >/dev/null || { skip 'stress-ng it is not here' && finish; }

# stress STRESSOR OPERATIONS [OPTION...]
stress() {
	local name=$1 operations=$2
	shift 2
	# A stressor that this version or machine does not have is none.
	if ! plainly stress-ng --"$name" 1 --"$name-ops" 1 --timeout 5s \
		"$@" >"$work/out" 2>&1 || grep -q skipped "$work/out"; then
		skip "stress-ng --$name is not to be had"
		return
	fi
	compare "stress-ng --$name" bash -c 'stress-ng --quiet --verify \
		--temp-path "$TMPDIR" --timeout 4s "$@" >/dev/null 2>&1' \
		stress --"$name" 1 --"$name-ops" "$operations" "$@"
}

# ---- Processes ----
stress fork 100
stress vfork 100
stress forkheavy 10 --forkheavy-procs 5
stress clone 50
stress daemon 20
stress zombie 20
stress wait 20
stress exec 10
stress pthread 300

# ---- Memory that malloc gives ----
stress malloc 500 --malloc-bytes 64M
stress malloc 500 --malloc-bytes 64M --malloc-thresh 4K
stress malloc 500 --malloc-bytes 64M --malloc-pthreads 3
stress memcpy 10
stress qsort 1
stress heapsort 1
stress tree 1
stress zlib 20
stress matrix 20
stress list 5
stress vm 500 --vm-bytes 64M
stress vm-rw 100 --vm-rw-bytes 16M
stress vm-splice 2000
stress brk 5000
stress bigheap 300 --bigheap-growth 64K
stress stack 20

# ---- Mappings, beside ours ----
stress mmap 30 --mmap-bytes 32M
stress mmapmany 20
stress mmapaddr 500
stress mmapfixed 100
stress mremap 200 --mremap-bytes 16M
stress madvise 40
stress mprotect 300
stress mlock 200
stress mincore 200
stress munmap 4
stress msync 50 --msync-bytes 4M
stress memfd 40 --memfd-bytes 16M
stress shm 20 --shm-bytes 16M
stress userfaultfd 500
stress aio 200
stress io-uring 200
finish
