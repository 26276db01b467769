#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Other allocators, all of it: more programs and every threshold, allocators that
# are told to lock and to work in threads of their own, and programs that are
# linked with them, when the shim is before a shared one and behind an archive.
all=1
. "$(dirname "$0")/../allocators.sh"

# jemalloc with one arena and without caches: every call takes its lock.
if alone=$(find_library libjemalloc.so.2); then
	export MALLOC_CONF=narenas:1,tcache:false,junk:true
	for name in new_delete fork_hooks busy_threads; do
		both "$name, $MALLOC_CONF" "$programs/$name"
	done
	MALLOC_CONF=background_thread:true,dirty_decay_ms:0,muzzy_decay_ms:0
	for name in descendants fork_hooks; do
		both "$name, $MALLOC_CONF" "$programs/$name"
	done
	unset MALLOC_CONF
fi

# linked LIBRARY: what the program is linked with
linked() {
	local name source lacking=" ${lacks[${1##*/}]:-} "
	for name in family realloc new_delete fork_hooks descendants; do
		case $lacking in *" $name "*) continue ;; esac
		for source in tests/programs/"$name".c*; do :; done
		set -- "$1" -lstdc++ -lpthread -ldl -lm
		if ${CXX:-g++} -x "$([ "$source" = "${source%.cc}" ] && echo c ||
			echo c++)" -O1 -w -D_GNU_SOURCE= -fno-builtin -pthread \
			-o "$work/linked" "$source" -x none -Wl,--no-as-needed \
			"$@" >"$work/out" 2>&1; then
			must_succeed=1 compare \
				"$name, linked with ${1##*/}" "$work/linked"
		else
			fail "$name is linked with ${1##*/}" "$work/out"
		fi
	done
}

alone='' preload=$shim
for library in $allocators libjemalloc.a libtcmalloc_minimal.a; do
	if found=$(find_library "$library"); then
		linked "$found"
	else
		skip "$library is not installed"
	fi
done
finish
