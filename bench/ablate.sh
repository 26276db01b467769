#!/bin/sh
# SPDX-License-Identifier: MIT
#
# What a mechanism of the engine brings: the same with it and without it, in turns
#
#      bench/ablate.sh                            lists the mechanisms
#      bench/ablate.sh MECHANISM NAME...          measures benchmarks of bench/run.sh
#      bench/ablate.sh MECHANISM -- PROGRAM ARG.. measures a program of the build's bench/, or another
#
# A mechanism is what the sources ask cow__without() for (core/base/base.h). This script builds
# the tree without it (`make WITHOUT=MECHANISM`). Benchmarks go through bench/pairs.sh, whose
# settings hold. A program runs under both shims, PAIRS times (8), each after a program that wrote
# 1 GiB. It is measured by its wall and CPU time, its peak, and by the medians of the figures that
# it prints as name=value. COWSHED_OPTIONS holds for both.
#
# The rows say `with / without`: below 1 the mechanism makes a time shorter.
. "$(dirname "$0")/common.sh"
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
without=$root/build/plain-without-$name
needed=everything
[ "${1:-}" != -- ] || needed=$without/lib/libcowshed-preload.so # the programs are the same
make -s everything && make -s WITHOUT="$name" "${needed#"$root/"}" || exit 1

# A switch that switches nothing off would make any mechanism look useless.
code() { objcopy -O binary -j .text "$1/lib/libcowshed.so.0" /dev/stdout | cksum; }
[ "$(code "$root/build/plain")" != "$(code "$without")" ] ||
	fail "without $name the library has the same code"

once() { # SIDE COMMAND...
	shift
	libraries=$root/build/plain/lib
	[ "$side" = with ] || libraries=$without/lib
	warm 1G
	LD_LIBRARY_PATH=$libraries "$bin/plain_measure" -o "$tmp/measured" \
		-p "$libraries/libcowshed-preload.so" -- "$@" >"$tmp/out" || fail "failed ($side): $*"
	cat "$tmp/measured" >>"$tmp/out"
	keep "$side"
}

if [ "${1:-}" = -- ]; then
	shift
	program=$1
	[ ! -x "$bin/$program" ] || { shift && set -- "$bin/$program" "$@"; }
	turns=${PAIRS:-8}
	in_turns 'with without' once "$@"
	for figure in wall_ms cpu_ms peak_kib $(cd "$tmp/of" && ls | sed -n 's/^with\.\(.*_[um]s\|busy\)$/\1/p' |
		grep -v -e '^wall_ms$' -e '^cpu_ms$'); do
		report_pairs "without-$name" "${program##*/}/$figure" "${figure##*_}" "$tmp/of/with.$figure" \
			"$tmp/of/without.$figure" - 0
	done
	exit
fi
BASE_BUILD=$without "$here/pairs.sh" "$@"
