#!/bin/bash
# SPDX-License-Identifier: MIT
#
# lint-libc.sh: what our libraries import of libc. Any preloaded library may define the same name, and
# its code would run in place of libc's: in the helper, which has no thread-local data, in forked
# children, under the engine's lock. So all else is the kernel's, or our own (memfd/thread.h).
set -u
export LC_ALL=C
lib=${BUILD:-build/plain}/lib
bad=$(mktemp) && trap 'rm -f "$bad"' EXIT

# What every library has: its start and end, and an overrun stack, which ends the process.
start='_ITM_.*|__gmon_start__|__cxa_(finalize|atexit)|__stack_chk_(fail|guard)|__tls_get_addr'
# Variables of libc's.
start="$start|_*environ|__libc_single_threaded"
# At load: handlers of fork; the kernel's facts about the process.
start="$start|__register_atfork|getauxval"
# Starts the broker, in the program's thread (memfd/dial.c).
engine="$start|posix_spawn.*|sigemptyset"
# The shim runs in threads of the program alone. At load, or at a program's first call of that name:
shim="$start|dl(v?sym|_iterate_phdr)|secure_getenv"
# For a call that the program made by that name: errno, sets of signals, the thread's address.
shim="$shim|__errno_location|sig(empty|fill|add|del)?(set|ismember|procmask)|__libc_current_sigrt(min|max)"
shim="$shim|pthread_self"
# malloc_stats() and malloc_info() print by streams.
shim="$shim|fprintf|fwrite|fclose|open_memstream|stderr"
# Around a fork, the lock that libc's fork takes after it (preload/fork.c).
shim="$shim|_IO_list_.*"

imports() { # LIBRARY PATTERN
	readelf -W --dyn-syms "$lib/$1" | awk '$7 == "UND" && NF > 7 { sub("@.*", "", $8); print $8 }' |
		sort -u | grep -vE "^(cow_.*|$2)$" |
		sed "s|^|lint: $1 imports, but see memfd/thread.h: |" | tee -a "$bad"
}
imports libcowshed.so.0 "$engine"
# Rows of tensors are copied by libc's functions, which are two to three times faster than ours.
imports libcowshed-tensor.so.0 "$start|_*mem(cpy|move|set|cmp)(_chk)?"
imports libcowshed-preload.so "$shim"

echo "lint: 3 libraries' imports, $(wc -l <"$bad") violations"
[ ! -s "$bad" ]
