#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What a mechanism of the engine brings: each benchmark with it and without it, in turns
#
#      bench/ablate.sh                     lists the mechanisms
#      bench/ablate.sh MECHANISM NAME...   measures one
#
# A mechanism is what the sources ask cow__without() for (core/base/base.h). This script builds
# the tree without it (`make WITHOUT=MECHANISM`), and gives both builds to bench/pairs.sh, whose
# settings hold. The rows say `with / without`: below 1 the mechanism makes a time shorter.
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$here")
cd "$root" || exit 1

mechanisms() {
	grep -rhoE 'cow__without\([A-Z_]+\)' core memfd preload | sed 's/.*(//; s/)//' | sort -u
}

[ $# -gt 0 ] || {
	mechanisms
	exit
}
name=$1
shift
mechanisms | grep -qx "$name" || {
	echo "${0##*/}: there is no mechanism $name" >&2
	exit 2
}
make -s everything && make -s WITHOUT="$name" everything || exit 1

# A switch that switches nothing off would make any mechanism look useless.
code() { objcopy -O binary -j .text "$root/build/$1/lib/libcowshed.so.0" /dev/stdout | cksum; }
[ "$(code plain)" != "$(code "plain-without-$name")" ] || {
	echo "${0##*/}: without $name the library has the same code" >&2
	exit 1
}
BASE_BUILD=$root/build/plain-without-$name "$here/pairs.sh" "$@"
