#!/bin/bash
# SPDX-License-Identifier: MIT
#
# deps.sh [check|demo|programs...]: installs missing packages for these goals, by default check and
# demo. NO_INSTALL=1 only names them. Tests without a package marked "may" are skipped.
set -u
goals=" ${*:-check demo} "
goals=${goals//check-/check check-} goals=${goals//bench/demo bench} goals=${goals//check-programs/programs}
case $goals in *' stress '* | *' soak '* | *' lint '*) goals+='check ' ;; esac
clang_has() { ls "$(clang -print-resource-dir)"/lib/linux/$1; }
header() { printf '#include <%s>\n' "$1" | gcc -E -x c - ; }
library() { gcc -print-file-name="$1" | grep /; }
any_numpy() { python3 -c 'import numpy' || system_python 'import numpy'; }
system_python() { /usr/bin/python3 -c "$1"; } # not a pyenv's or a conda's
python=python$(system_python 'import sys; print("%d.%d" % sys.version_info[:2])' 2>&-)
# what | how to test | Debian package | needed | for
table="
C compiler   | command -v gcc                 | gcc           | must | check demo
C++ compiler | command -v g++                 | g++           | must | check demo
libc headers | header stdlib.h                | libc6-dev     | must | check demo
awk          | command -v awk                 | mawk          | must | check demo
pkg-config   | command -v pkg-config          | pkg-config    | must | check demo
libcheck     | pkg-config --exists check      | check         | must | check demo
liburing     | pkg-config --exists liburing   | liburing-dev  | may  | check
Python       | command -v python3             | python3       | may  | check demo
Python.h     | scripts/python.sh include      | python3-dev   | may  | check demo
venv         | scripts/python.sh ensurepip venv | python3-venv | may | check
NumPy        | any_numpy                      | python3-numpy | may  | check demo
SQLite shell | command -v sqlite3             | sqlite3       | may  | check bench
xz           | command -v xz                  | xz-utils      | may  | check bench
zstd         | command -v zstd                | zstd          | may  | check
jemalloc     | library libjemalloc.a          | libjemalloc-dev | may | check
mimalloc     | library libmimalloc.so.2       | libmimalloc2.0 | may | check
tcmalloc     | library libtcmalloc_minimal.so.4 | libtcmalloc-minimal4 | may | check
musl         | command -v musl-gcc            | musl-tools    | may  | check
aarch64      | command -v aarch64-linux-gnu-g++ | g++-aarch64-linux-gnu | may | check-all check-kernels
... its CPU  | command -v qemu-aarch64-static | qemu-user-static | may | check-all
QEMU         | command -v qemu-system-x86_64  | qemu-system-x86 | must | check-kernels
... for arm64 | command -v qemu-system-aarch64 | qemu-system-arm | must | check-kernels
valgrind     | command -v valgrind            | valgrind      | must | check-valgrind
clang        | command -v clang               | clang         | must | fuzz cov
... runtime  | clang_has libclang_rt.fuzzer-*.a | libclang-rt-dev | must | fuzz cov
llvm-cov     | command -v llvm-cov            | llvm          | must | cov
SPIN         | command -v spin                | spin          | may  | check-model
CPython tests| system_python 'import test.test_fork1' | lib$python-testsuite | may | programs
cppcheck     | command -v cppcheck            | cppcheck      | may  | analyze
clang-tidy   | command -v clang-tidy          | clang-tidy    | may  | analyze
pytest       | system_python 'import pytest' | python3-pytest | may | programs
hypothesis   | system_python 'import hypothesis' | python3-hypothesis | may | programs
pandas       | system_python 'import pandas' | python3-pandas | may | programs
node         | command -v node                | nodejs        | may  | programs
Java         | command -v javac               | default-jdk-headless | may | programs
Redis tools  | command -v redis-benchmark     | redis-tools   | may  | demo
Redis        | command -v redis-server        | redis-server  | may  | programs bench
PostgreSQL   | ls /usr/lib/postgresql/*/bin/initdb | postgresql | may | programs
nginx        | test -x /usr/sbin/nginx        | nginx-light   | may  | programs
stress-ng    | command -v stress-ng           | stress-ng     | may  | programs
"

look() { # sets must and may
	local what test package needed for goal wanted
	must=() may=()
	while IFS='|' read -r what test package needed for; do
		[ -n "$what" ] || continue
		wanted=
		for goal in $for; do
			case $goals in *" $goal "*) wanted=1 ;; esac
		done
		[ -n "$wanted" ] || continue
		eval "$test" >/dev/null 2>&1 && continue
		package=${package// /}
		[ "${needed// /}" = must ] && must+=("$package") || may+=("$package")
	done <<<"$table"
}

# Ends the script if packages can't be installed. The status is 1 if a "must" is among them.
give_up() {
	[ ${#must[@]} -eq 0 ] || echo "deps: $1; install these (Debian's names): ${must[*]}"
	[ ${#may[@]} -eq 0 ] || echo "deps: $1; optional (Debian's names): ${may[*]}"
	exit "$((${#must[@]} > 0))"
}

look
[ $((${#must[@]} + ${#may[@]})) -gt 0 ] || exit 0
[ -z "${NO_INSTALL:-}" ] || give_up 'NO_INSTALL is set'
command -v apt-get >/dev/null || give_up 'there is no apt-get'
[ "$(id -u)" -eq 0 ] && sudo= || sudo=sudo
[ -z "$sudo" ] || command -v sudo >/dev/null || give_up 'installing needs root or sudo'

apt() { $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" >/dev/null; }
add() { apt install -y --no-install-recommends "$@"; }
echo "deps: installing ${must[*]} ${may[*]}"
# If the package lists are old they are fetched. An unknown name must not stop the others.
if ! add "${must[@]}" "${may[@]}" 2>/dev/null; then
	apt update || echo "deps: 'apt-get update' failed; run it by hand to see why"
	add "${must[@]}" "${may[@]}" ||
		for package in "${must[@]}" "${may[@]}"; do add "$package"; done
fi; look
[ $((${#must[@]} + ${#may[@]})) -eq 0 ] || give_up 'apt-get could not install all'
