#!/bin/bash
# SPDX-License-Identifier: MIT
#
# lint-objects.sh: which symbols each folder may use, define and export. Checked on the objects
# and libraries in $BUILD (the default mode's).
set -u
export LC_ALL=C
obj=${BUILD:-build/plain}/obj
bad=$(mktemp) && trap 'rm -f "$bad"' EXIT
# Reads violations, one a line.
rule() { sed "s|^|lint: $1: |" | tee -a "$bad"; }

# What allocates, prints or asks the environment: not even memfd/ may.
world='malloc|free|calloc|realloc(array)?|(posix_)?memalign|aligned_alloc|valloc|strn?dup'
world="$world|(_*[vsfdna]*w?printf(_chk)?)|f?put[cs]|putchar|perror|f(open|close|read|write)"
world="$world|std(in|out|err)|(secure_)?getenv|(un)?setenv|dl(open|sym|close)|opendir|abort"
world="$world|__assert_fail|pthread_create|exit"
# What enters the kernel: memfd/ through memfd/sys*.c alone.
kernel='mmap(64)?|munmap|mremap|madvise|mprotect|msync|mlock.*|(open|creat)(at)?(64)?|close'
kernel="$kernel|p?(read|write)v?(64)?|ioctl|fcntl(64)?|syscall|_?fork|vfork|clone|_exit"
kernel="$kernel|(send|recv)(msg)?|socket.*|f?stat(at)?(64)?|ftruncate(64)?|__errno_location"
kernel="$kernel|memfd_create|fallocate(64)?|sched_.*|getpid|gettid|kill|raise|n?sleep|unlink(at)?"
undefined() { # RULE PATTERN OBJECT...
	local r=$1 p=$2 o
	shift 2
	for o in "$@"; do
		[ ! -e "$o" ] || nm -u "$o" | awk -v o="${o#"$obj"/}" '{ print o, $2 }'
	done | grep -E " ($p)$" | rule "$r"
}
undefined 'quiet/, core/, share/ and tensor/ use' "$world|$kernel|clock_gettime|time|sysconf" "$obj"/{quiet,core,core/*,share,tensor}/*.o
undefined 'memfd/ uses' "$world" "$obj"/memfd/*.o
undefined 'only memfd/sys*.c may use' "$kernel" \
	$(printf '%s\n' "$obj"/memfd/*.o | grep -v '/sys[a-z_]*\.o$')
# cuda/driver.c loads a library, and asks the environment which one.
undefined 'cuda/ uses' "$world|$kernel|time" $(printf '%s\n' "$obj"/cuda/*.o | grep -v '/driver\.o$')
undefined 'cuda/driver.c uses' "$(sed 's/dl(.*close)/dlclose/; s/(secure_)?getenv/getenv/' <<<"$world")|$kernel" "$obj"/cuda/driver.o
# memfd/bytes.c and memfd/text.c bring hidden functions of libc.
nm -gA --defined-only "$obj"/{memfd,quiet,core,core/*,share,tensor,cuda}/*.o 2>/dev/null |
	awk '$1 !~ /memfd\/(bytes|text)\.o/ { print $NF, $1 }' |
	grep -vE '^(cow_|_*(asan|odr_asan|tsan|gcov))' | rule 'global without cow_'
# What carries COW_EXPORT stands in a map.
for o in $(find "$obj"/{memfd,quiet,core,share,tensor,cuda} -name '*.o'); do
	readelf -Ws "$o" | awk -v o="${o#"$obj"/}" '$5 == "GLOBAL" && $6 == "DEFAULT" && $7 != "UND" { print $8, o }'
done | sort | join -v 1 - <(cat {core,tensor,cuda}/*.map | tr -cs 'A-Za-z0-9_' '\n' | sort -u) |
	grep -v asan | rule 'exported by its object, in no map'
exports() { # MAP LIBRARY
	diff <(sed 's|/\*.*\*/||' "$1" | awk '/local:/{on = 0} on; /global:/{on = 1}' |
		tr -cs 'A-Za-z0-9_' '\n' | grep . | sort) <(nm -D --defined-only \
		"${obj%/obj}/lib/$2" | awk '$2 != "A" {sub("@.*", "", $3); print $3}' | sort) |
		sed -n "s/^</$2: in the map only:/p; s/^>/$2: exported only:/p" | rule 'exports'
}
exports core/libcowshed.map libcowshed.so.0
exports tensor/libcowshed-tensor.map libcowshed-tensor.so.0
exports cuda/libcowshed-cuda.map libcowshed-cuda.so.0

# What forks write fits into one page (memfd/forked.h).
readelf -SW "${obj%/obj}/lib/libcowshed.so.0" | sed 's/\[ *[0-9]*\]//' | while read -r name _ _ _ bytes _; do
	[ "$name" != .data ] || [ $((16#$bytes)) -le 4096 ] || echo "$((16#$bytes)) bytes of .data, more than a page"
done | rule 'memfd/forked.h'

echo "lint: $(find "$obj" -name '*.o' | wc -l) objects, $(wc -l <"$bad") violations"
[ ! -s "$bad" ]
