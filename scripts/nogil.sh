#!/bin/bash
# SPDX-License-Identifier: MIT
#
# nogil.sh [build | venv]: a CPython without the GIL (3.13 or newer, "free-threaded") that has its
# headers. Prints its path. Exit status 1: there is none.
#
#     (nothing)  looks in $PYTHON_NOGIL, build/nogil, PATH and the versions of pyenv
#     build      if there is none, builds Debian's sources of 3.13 in build/nogil: 10 minutes of CPU
#     venv       looks, and makes build/venv-nogil with the packages that the tests need; prints
#                the Python of that
set -eu
cd "$(dirname "$0")/.."
root=$PWD
looks='
import os, sys, sysconfig
header = sysconfig.get_path("include") + "/Python.h"
if not (sysconfig.get_config_var("Py_GIL_DISABLED") and os.path.exists(header)):
    sys.exit(1)
print(sys.executable)'

look() {
	local python
	for python in ${PYTHON_NOGIL:+"$PYTHON_NOGIL"} build/nogil/bin/python3.13t python3.1{3..9}t \
		"${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*t/bin/python3; do
		"$python" -c "$looks" 2>/dev/null && return
	done
	return 1
}

build() {
	local source
	echo 'nogil: building CPython 3.13 without the GIL: 10 minutes' >&2
	source=$(scripts/source.sh trixie python3.13 upstream)
	mkdir -p build/nogil-build
	unset MAKEFLAGS MAKELEVEL MFLAGS # -r leaves CPython's makefile without suffix rules
	(
		cd build/nogil-build
		nice "$source/configure" --disable-gil --prefix="$root/build/nogil" --disable-test-modules
		nice make -j2
		nice make altinstall
	) >build/nogil.log 2>&1 || {
		echo 'nogil: the build failed; build/nogil.log has its messages, which end with:' >&2
		tail -n 5 build/nogil.log >&2
		return 1
	}
}

environment() {
	local python venv=build/venv-nogil packages
	python=$(look) || return 1
	packages=$(grep -E '^(numpy|pytest|psutil)==' python/requirements-test.txt)
	if [ "$(cat "$venv/made-of" 2>/dev/null)" != "$python $packages" ]; then
		rm -rf "$venv"
		"$python" -m venv "$venv" >&2
		# shellcheck disable=SC2086
		"$venv/bin/python" -m pip --disable-pip-version-check install -q --only-binary :all: \
			$packages >&2
		echo "$python $packages" >"$venv/made-of"
	fi
	echo "$root/$venv/bin/python"
}

case ${1:-} in
build) look || { build && look; } ;;
venv) environment ;;
*) look ;;
esac
