#!/bin/bash
# SPDX-License-Identifier: MIT
#
# `cowshed doctor`: its findings on this machine, on GPUs that the reference driver plays, and on
# kernels, limits and containers that are played in mounts of its own.
. "$(dirname "$0")/lib.sh"

if [ ! -x "$cowshed" ]; then
	skip 'doctor it is not built'
	finish
fi

"$cowshed" doctor >"$work/out" 2>"$work/err"
case $? in
0 | 1) says 'doctor' 'memfd' "$work/out" ;;
*) fail 'doctor' "$work/out" "$work/err" ;;
esac

# With no driver, with the reference driver, with one that lacks something.
doctor() { # ENVIRONMENT... [COMMAND...]: as on the machine that it describes
	timeout -k 5 "$limit" env -u COWSHED_CUDA_DRIVER "$@" "$cowshed" doctor >"$work/long" 2>"$work/err"
	doctored=$?
	# Lines are wrapped.
	tr -s ' \n' '  ' <"$work/long" >"$work/out"
}
reference=$BUILD/tests/driver/libcuda.so.1
doctor COWSHED_CUDA_DRIVER=/no/such/libcuda.so.1
without_driver=$doctored
says 'doctor: no CUDA driver' 'note CUDA: no CUDA driver: /no/such/libcuda' "$work/out"
doctor COWSHED_CUDA_DRIVER="$reference" COWREF_DEVICES=3
says 'doctor: the driver' 'ok CUDA driver: .*libcuda.so.1, supports CUDA 12.4, 3 devices' "$work/out"
says 'doctor: a device' \
	'ok device 1: Reference device 1, 1.00 GiB, compute capability 8.0, ' "$work/out"
says 'doctor: peers' 'memory as descriptors yes, .* peers: 0, 2 ok device 2' "$work/out"
says 'doctor: kernels' "ok CUDA kernels: the driver's own" "$work/out"
doctor COWSHED_CUDA_DRIVER="$reference" COWREF_DEVICES=1 COWREF_LACKS=cuMemCreate
says 'doctor: a device that lacks something' \
	'note device 0: .* virtual memory no, .* peers: none' "$work/out"
doctor COWSHED_CUDA_DRIVER="$reference" COWREF_LACKS=cuMemAlloc
says 'doctor: an old driver' 'the CUDA driver is too old: it lacks cuMemAlloc' "$work/out"
doctor COWSHED_CUDA_DRIVER="$reference" COWREF_DEVICES=0
says 'doctor: no device' 'note CUDA: .*CUDA_ERROR_NO_DEVICE, no CUDA-capable' "$work/out"
if [ "$doctored" -eq "$without_driver" ]; then
	pass 'doctor: no GPU is no failure'
else
	fail 'doctor: no GPU is no failure' "$work/out"
fi

# Huge pages of 2 MiB are those of pages of 4 KiB.
if [ "$(getconf PAGESIZE)" -gt 4096 ] && [ -r /sys/kernel/mm/transparent_hugepage/shmem_enabled ]; then
	doctor
	says 'doctor: large pages' 'shmem_enabled: .* small pages, since the pages of this kernel .* change a kernel' "$work/out"
fi

# ends STATUS NAME: of the last doctor
ends() {
	if [ "$doctored" -eq "$1" ]; then pass "$2"; else fail "$2" "$work/out" "$work/err"; fi
}

# Limits that the shell gives.
doctor bash -c 'ulimit -Sn 100 && ulimit -v 4000000 && ulimit -f 1000 && exec "$@"' limits
says 'doctor: few descriptors' 'note RLIMIT_NOFILE: 100 brings .* change ulimit -n 4096' "$work/out"
says 'doctor: little address space' 'note RLIMIT_AS: 3.81 GiB; only root may raise it above 3.81 GiB' "$work/out"
says 'doctor: small files' 'note RLIMIT_FSIZE: ' "$work/out"
doctor bash -c 'echo 0x31 >/proc/self/coredump_filter && exec "$@"' dumps
says 'doctor: dumps without data' 'note coredump_filter: 0x31: .* lack all .* change echo 0x37 ' "$work/out"
doctor bash -c 'echo 0x33 >/proc/self/coredump_filter && exec "$@"' dumps
says 'doctor: dumps without frozen data' 'note coredump_filter: 0x33: .* lack frozen' "$work/out"

# A sandbox.
doctor "$programs/contained"
says 'doctor: denied calls' 'note io_uring: io_uring is forbidden: .* change allow io_uring_setup' "$work/out"
ends 0 'doctor: denied calls are not needed'
doctor "$programs/contained" memfd_create env
says 'doctor: no memfd' 'missing memfd: .* change allow memfd_create' "$work/out"
says 'doctor: what needs it' "unknown pagemap: can't be determined without a memfd" "$work/out"
says 'doctor: it is needed' '[0-9] things\? that cowshed needs .* missing ' "$work/out"
ends 1 'doctor: something needed is missing'

# A kernel whose settings are the files in $kernel, a group whose files are those in $group.
kernel=$work/kernel group=$work/group
mkdir "$kernel" "$group"
played='mount -t tmpfs none /sys/kernel/mm && mkdir /sys/kernel/mm/transparent_hugepage &&
	mount -t tmpfs none /proc/sys/vm && mount -t tmpfs none /proc/sys/kernel &&
	mount -t tmpfs none /sys/fs/cgroup && mount --bind $0/self /proc/$$/cgroup &&
	cp -r $0/group/. /sys/fs/cgroup && cd $0/kernel &&
	for f in *; do case $f in
		*enabled) cp $f /sys/kernel/mm/transparent_hugepage ;;
		io*) cp $f /proc/sys/kernel ;;
		*) cp $f /proc/sys/vm ;;
	esac; done && exec "$@"'
alone_in=$(own_mounts)
settings() { # NAME=VALUE...
	rm -rf "$kernel" "$group" && mkdir "$kernel" "$group"
	for setting in "$@"; do echo "${setting#*=}" >"$kernel/${setting%%=*}"; done
}
usual=(enabled='always [madvise] never' shmem_enabled='always [never] deny' max_map_count=65530
	overcommit_memory=0 memfd_noexec=0 io_uring_disabled=0 unprivileged_userfaultfd=0)
settings "${usual[@]}"
echo 0::/ >"$work/self"
# Some findings differ where this kernel itself has no MADV_COLLAPSE (before Linux 6.1).
collapse=1
"$cowshed" doctor 2>/dev/null | grep -q '^ok  *collapse' || collapse=
[ -n "$collapse" ] || skip 'doctor: huge pages of memfds: this kernel refuses MADV_COLLAPSE'
if $alone_in sh -c "$played" "$work" true 2>"$work/err"; then
	play() { doctor $alone_in sh -c "$played" "$work" env; }
	play
	says 'doctor: usual settings' 'vm.max_map_count: 65530 ok vm.overcommit_memory: 0 ok vm.memfd_n' "$work/out"
	[ -z "$collapse" ] || says 'doctor: huge pages' 'ok transparent_hugepage/shmem_enabled: never, which is enough' "$work/out"
	says 'doctor: the root group' 'ok cgroup memory: in the root group' "$work/out"
	settings enabled='always madvise [never]' shmem_enabled='always never [deny]' max_map_count=1000 \
		overcommit_memory=2 memfd_noexec=2 io_uring_disabled=2 unprivileged_userfaultfd=1
	echo 0::/some/where >"$work/self"
	mkdir -p "$group/some/where"
	echo max >"$group/some/where/memory.max"
	echo 300000000 >"$group/some/memory.max"
	echo 200000000 >"$group/some/memory.current"
	play
	says 'doctor: no huge pages' 'note transparent_hugepage/enabled: never' "$work/out"
	says 'doctor: none in memfds' 'note transparent_hugepage/shmem_enabled: deny' "$work/out"
	[ -z "$collapse" ] || says 'doctor: none in memfds: the change' 'echo never | sudo tee [^ ]*/shmem_enabled' "$work/out"
	says 'doctor: few mappings' 'note vm.max_map_count: 1000, less than usual' "$work/out"
	says 'doctor: all is charged' 'note vm.overcommit_memory: 2: ' "$work/out"
	says 'doctor: no programs in memfds' 'ok vm.memfd_noexec: 2: fine' "$work/out"
	says 'doctor: no rings' 'note kernel.io_uring_disabled: 2: for no process' "$work/out"
	says 'doctor: the group above' 'note cgroup memory: limit 286 MiB, headroom 95.4 MiB: little' "$work/out"
	settings enabled=strange max_map_count=many io_uring_disabled=1
	printf '9:cpu:/else\n5:memory:/old\n0::/\n' >"$work/self"
	mkdir -p "$group/memory/old"
	echo 9223372036854771712 >"$group/memory/old/memory.limit_in_bytes"
	play
	says 'doctor: a choice that is none' "unknown transparent_hugepage/enabled: can't be .*'strange'" "$work/out"
	says 'doctor: a number that is none' "unknown vm.max_map_count: .*'many' is not a number" "$work/out"
	says 'doctor: an old kernel' 'ok vm.memfd_noexec: this kernel does not have it' "$work/out"
	says 'doctor: rings for some' 'note kernel.io_uring_disabled: 1: for kernel.io_uring_group' "$work/out"
	says 'doctor: no limit' 'ok cgroup memory: no limit' "$work/out"
	settings "${usual[@]}"
	echo 0::/elsewhere >"$work/self"
	play
	says 'doctor: a group that is not shown' "unknown cgroup memory: can't be .* of /elsewhere" "$work/out"
	# Kernels without MADV_COLLAPSE, and with one that fails.
	collapses() { # WORD SETTING NAME PATTERN: by tests/programs/contained
		settings "${usual[@]}" "shmem_enabled=$2"
		doctor $alone_in sh -c "$played" "$work" "$programs/contained" "$1" env
		says "doctor: $3" "$4" "$work/out"
	}
	shmem=transparent_hugepage/shmem_enabled within='change echo within_size | sudo tee [^ ]*/shmem_enabled'
	collapses collapse 'always [never] deny' 'no MADV_COLLAPSE, and never' "note $shmem: never: .*$within"
	says 'doctor: no MADV_COLLAPSE: where to look' "note collapse: .* change .*$shmem below" "$work/out"
	if grep -q 'which is enough' "$work/out"; then
		fail 'doctor: no MADV_COLLAPSE: never is not enough' "$work/out"
	else
		pass 'doctor: no MADV_COLLAPSE: never is not enough'
	fi
	collapses collapse '[advise] never deny' 'no MADV_COLLAPSE, and advise' "note $shmem: advise: .*$within"
	collapses collapse 'never [deny]' 'no MADV_COLLAPSE, and deny' "note $shmem: deny: .*$within"
	for setting in always within_size force; do
		collapses collapse "[$setting] never" "no MADV_COLLAPSE, and $setting" \
			"ok $shmem: $setting: .* at its first touch"
	done
	[ -z "$collapse" ] || collapses shortage 'always [never] deny' 'a collapse that fails' \
		"unknown $shmem: can't be .*'never' .*change .*compact_memory"
	# There is no $ORIGIN for the loader, either.
	doctor LD_LIBRARY_PATH="$BUILD/lib" $alone_in sh -c 'mount -t tmpfs none /proc && exec "$@"' no-proc
	says 'doctor: without /proc' "unknown vm.max_map_count: can't be determined: /proc/sys" "$work/out"
	says 'doctor: without /proc: groups' "unknown cgroup memory: can't be determined: /proc" "$work/out"
else
	skip 'doctor: played kernels no such mounts here'
fi
finish
