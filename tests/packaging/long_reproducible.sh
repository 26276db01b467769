#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Reproducible: two builds in two folders, of paths of different lengths and one with a blank,
# install the same bytes. That is promised of builds without nvcc; with it, it is not tried, for
# machine code for devices takes two thirds of the time.
set -u
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
one=$work/one other="$work/another, of another length"
for tree in "$one" "$other"; do
	mkdir "$tree"
	if [ -e .git ]; then git ls-files -z -co --exclude-standard; else
		find . -path ./build -prune -o -type f -print0
	fi | tar c --null --ignore-failed-read -T - | tar x -C "$tree"
	env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS NO_INSTALL=1 make -s -C "$tree" NVCC= MODE=plain \
		DESTDIR=there prefix=/usr install >"$work/out" 2>&1 || {
		echo 'not ok reproducible: make install' && tail -n 20 "$work/out"
		exit 1
	}
done
if diff -r "$one/there" "$other/there" >"$work/out" 2>&1 &&
	cmp "$one"/build/plain/lib/libcowshed.a "$other"/build/plain/lib/libcowshed.a >>"$work/out" 2>&1
then echo 'ok reproducible'; else
	echo 'not ok reproducible' && cat "$work/out"
	exit 1
fi
