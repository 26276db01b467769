#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Other allocators in the same process: preloaded before the shim and behind it,
# and linked into the program. Each program must do beside the shim what it does
# with the other allocator alone.
#
# The first library serves malloc. An allocator behind the shim is the next one, and
# gets the small requests. An allocator before the shim gets all requests, and the
# shim none. A wrapper in that place passes all of them on.
#
# programs/allocators.sh sources this with `all` set, and does more of the same.
. "${BASH_SOURCE%/*}/lib.sh"

allocators='libjemalloc.so.2 libmimalloc.so.2 libtcmalloc_minimal.so.4'
: "${all:=}"
[ -n "$all" ] || thresholds=4096

find_library() { ${CC:-gcc} -print-file-name="$1" 2>/dev/null | grep /; }

# both NAME COMMAND...: with $alone before the shim and behind it
both() {
	local name=$1 order threshold
	shift
	plainly "$@" >"$work/plain.out" 2>"$work/plain.err" </dev/null
	plain=$?
	if [ "$plain" -ne 0 ]; then
		fail "$name without the shim" "$work/plain.err"
		return
	fi
	for order in "$shim:$alone" "$alone:$shim"; do
		preload=$order
		for threshold in $thresholds; do
			under "$threshold" "$@" >"$work/shim.out" \
				2>"$work/shim.err" </dev/null
			got=$?
			same "${order//+([^:])\//}, $name at $threshold"
		done
	done
}

# serves PRELOAD yes|no: does the engine?
serves() {
	local got=no name=${1//+([^:])\//}
	rm -f "$work/report"
	timeout "$limit" env LD_PRELOAD="$1" \
		COWSHED_OPTIONS="threshold=64K,report=$work/report" \
		"$programs/realloc" >/dev/null 2>&1
	[ "$(served "$work/report")" -eq 0 ] || got=yes
	if [ "$got" = "$2" ]; then
		pass "$name: the engine serves: $2"
	else
		fail "$name: the engine serves: $got"
	fi
}

shopt -s extglob

# What each of them can't do without the shim either.
declare -A lacks=(
	[wrapper.so]='family random zero' # sizes, a calloc that stays sparse
	[libmimalloc.so.2]='family new_delete' # large alignments, bad_alloc
)

# around LIBRARY
around() {
	local name
	alone=$1
	for name in family realloc new_delete early_late fork_hooks random \
		${all:+zero threads forks descendants busy_threads}; do
		case " ${lacks[${alone##*/}]:-} " in *" $name "*) continue ;; esac
		case $name in random) set -- 1 800 200000 ;; *) set -- ;; esac
		both "$name" "$programs/$name" "$@"
	done
}

wrapper=$work/wrapper.so
if ${CC:-gcc} -O1 -fno-builtin -fPIC -shared -o "$wrapper" \
	tests/preload/wrapper.c >"$work/out" 2>&1; then
	around "$wrapper"
	serves "$shim:$wrapper" yes
	serves "$wrapper:$shim" yes
else
	fail 'the wrapper is built' "$work/out"
fi

for allocator in $allocators; do
	if library=$(find_library "$allocator"); then
		around "$library"
		serves "$shim:$library" yes
		serves "$library:$shim" no
	else
		skip "$allocator is not installed"
	fi
done

[ -n "$all" ] || finish
