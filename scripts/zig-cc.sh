#!/bin/bash
# SPDX-License-Identifier: MIT
#
# zig-cc.sh ZIG PYTHON ARCHITECTURE GLIBC ARGUMENT...: zig's compiler, for an old libc, with the
# arguments that gcc takes. zig knows neither -z initfirst, which Python sets afterwards, nor the
# version of a libc for assembler. For -fsyntax-only it would build its run-time library first.
set -u
zig=$1 python=$2 arch=$3 libc=.$4
shift 4
args=() out='' first='' last='' probe=''
for arg; do
	case $arg in
	-Wl,-z,initfirst) first=yes && continue ;;
	*.S) libc='' ;;
	-print-file-name=*) echo "${arg#*=}" && exit ;;
	-dumpmachine) echo "$arch-linux-gnu" && exit ;;
	-fsyntax-only)
		probe=$(mktemp) && trap 'rm -f "$probe"' EXIT
		arg=-c args+=(-O2 -o "$probe")
		;;
	esac
	[ "$last" != -o ] || out=$arg
	last=$arg args+=("$arg")
done
"$zig" cc -target "$arch-linux-gnu$libc" "${args[@]}" || exit
[ -z "$first" ] || "$python" "$(dirname "$0")/initfirst.py" "$out"
