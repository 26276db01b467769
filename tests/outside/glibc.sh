#!/bin/bash
# SPDX-License-Identifier: MIT
#
# glibc's own tests of malloc, on the libc that is installed. Those that need more than the public
# names of it, or are linked statically, are left out: glibc's makefiles are not used. A test that
# fails alike without the shim, as one that needs libc_malloc_debug.so, is the same.
. tests/outside/lib.sh
[ -z "$quick" ] || settings=threshold=4096
for tool in cc ar; do
	command -v $tool >/dev/null || skip "there is no $tool"
done
tree=$(sources bookworm glibc) || exit 77
limit=300

# glibc's own headers, where the system has none of that name; its tests' support library.
mkdir -p "$work/include" "$work/objects"
ln -s "$tree/support" "$tree/malloc" "$work/include/"
for header in "$tree"/include/*.h; do
	name=${header##*/}
	[ -e "/usr/include/$name" ] || [ -e "/usr/include/$(cc -print-multiarch)/$name" ] ||
		[[ $name =~ ^(config|libc-symbols)\.h$ ]] || ln -s "$header" "$work/include/$name"
done
echo '#define __set_errno(e) (errno = (e))' >"$work/include/libc-config.h"
flags=(-O2 -w -std=gnu11 -D_GNU_SOURCE -DTIMEOUTFACTOR=4
	'-Dlibc_hidden_proto(x)=' '-Dlibc_hidden_def(x)=' -Dattribute_hidden= -include limits.h
	-include errno.h -include stdbool.h -include "$work/include/libc-config.h" -I"$work/include"
	-idirafter "$tree/support" -idirafter "$tree/malloc" -idirafter "$tree/sysdeps/generic")
for name in $(grep -o '[A-Z_]*_PATH' "$tree/support/support_paths.c" | sort -u); do
	flags+=("-D$name=\"/\"")
done
for source in "$tree"/support/*.c "$tree"/malloc/{scratch_buffer,alloc_buffer,dynarray}_*.c \
	"$tree"/malloc/dynarray{-at-failure,_at_failure}.c; do
	name=${source##*/}
	case $name in tst-* | links-* | *-container.c | test-* | README* | *time64*) continue ;; esac
	cc "${flags[@]}" -c -o "$work/objects/${name%.c}.o" "$source" >>"$work/support.log" 2>&1
done
ar rc "$work/support.a" "$work"/objects/*.o

# build NAME SOURCES...
build() {
	cc "${flags[@]}" -fno-builtin -o "$work/$1" "${@:2}" "$work/support.a" -pthread \
		>"$work/$1.log" 2>&1 && return
	echo "skip outside/glibc: $1 can't be built: $(grep -m 1 -E 'error|undefined' "$work/$1.log")"
	return 1
}

for source in "$tree"/malloc/{mallocbug,tst-*}.c; do
	name=$(basename "$source" .c)
	case $name in
	tst-interpose-static* | tst-interpose-aux* | *-skeleton) continue ;; # static, and parts
	tst-mallocstate | tst-compathooks*) continue ;; # names for programs linked long ago
	tst-interpose-*) build "$name" "$source" "${source/interpose/interpose-aux}" || continue ;;
	*) build "$name" "$source" || continue ;;
	esac
	setting=A=
	[ $name != tst-mxfast ] || setting=GLIBC_TUNABLES=glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0
	[ $name != tst-malloc-usable-tunables ] || setting=GLIBC_TUNABLES=glibc.malloc.check=3
	all=$settings
	# It wants a request of 256 KiB to make glibc merge what it freed.
	[ $name != tst-safe-linking ] || settings=default
	# It writes to the head of a freed block of 4096 bytes, and wants glibc to abort. The engine's
	# blocks have no heads there.
	[ $name != tst-malloc-backtrace ] || settings=${settings#threshold=4096}
	compare "$name" env "$setting" "$work/$name"
	settings=$all
done
finish
