#!/bin/bash
# SPDX-License-Identifier: MIT
#
# roots-python.sh NAME [OPTION]: builds CPython 3.13 on the Debian 11 in build/roots/bullseye-dev, with
# this option of its configure, and puts it into build/roots/bullseye as /opt/NAME. For check-roots.sh.
set -u
unset MAKEFLAGS MAKELEVEL MFLAGS # -r leaves CPython's makefile without suffix rules
cd "$(dirname "$0")/.." || exit 1
roots=$PWD/build/roots
source=$(scripts/source.sh trixie python3.13 upstream) || exit 1
echo "roots: building CPython 3.13 on Debian 11 ($1): 10 minutes"
mkdir -p "$roots/bullseye-dev/src" && cp -a "$source/." "$roots/bullseye-dev/src"
# shellcheck disable=SC2016
nice chroot "$roots/bullseye-dev" sh -c 'mkdir -p "/obj/$1" && cd "/obj/$1" &&
	/src/configure --prefix="/opt/$1" $2 && make -j2 && make install' sh "$1" "${2:-}" \
	>"$roots/$1.log" 2>&1 || {
	echo "skip roots: no Python on Debian 11: $(tail -n 1 "$roots/$1.log")"
	exit 1
}
cp -a "$roots/bullseye-dev/opt" "$roots/bullseye/"
