#!/bin/bash
# SPDX-License-Identifier: MIT
#
# wheels.sh [ARCHITECTURE...]: wheels and Debian packages for x86_64 and aarch64 that need no newer
# libc than glibc 2.28, in build/wheels. The compiler is zig's, which knows old libcs. It comes from
# the package index, as does auditwheel, which checks the wheels.
#
# One build gives a wheel and its Debian packages. Each has a copy of the tree, in
# build/wheels/ARCHITECTURE. Without nvcc the code for GPUs is left out. A second wheel is for
# CPython without the GIL, if there is one (scripts/nogil.sh; `make nogil` builds it).
set -eu
umask 022
GLIBC=2.28 MOST=$((2 << 20)) # bytes of a wheel
root=$PWD work=$PWD/build/wheels
python=$(scripts/python.sh include) && python=$(scripts/python.sh venv) || {
	echo 'wheels: no Python of 3.11 or newer with Python.h (Debian: python3-dev python3-venv)' >&2
	exit 1
}
mkdir -p "$work/bin"

venv=$work/venv
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/python" -c 'import auditwheel, ziglang' 2>/dev/null ||
	"$venv/bin/pip" install --quiet ziglang auditwheel
zig=$("$venv/bin/python" -c 'import os, ziglang
print(os.path.join(os.path.dirname(ziglang.__file__), "zig"))')
export ZIG_GLOBAL_CACHE_DIR=$work/cache

# compiler ARCHITECTURE: writes bin/ARCHITECTURE-cc
compiler() {
	printf '#!/bin/sh\nexec "%s" "%s" "%s" %s %s "$@"\n' "$root/scripts/zig-cc.sh" \
		"$zig" "$venv/bin/python" "$1" $GLIBC \
		>"$work/bin/$1-cc"
	printf '#!/bin/sh\nexec "%s" ar "$@"\n' "$zig" >"$work/bin/ar"
	chmod +x "$work/bin/$1-cc" "$work/bin/ar"
}

# Debian's pyconfig.h includes another one, in a folder that only Debian's own compilers look into.
# With the stable ABI both architectures have the same.
headers() {
	local own triplet folder
	own=$(find /usr/include/*-linux-gnu -maxdepth 1 -name 'python3.*' -type d | sort -V)
	rm -rf "$work/include"
	for triplet in {x86_64,aarch64}-linux-gnu; do
		mkdir -p "$work/include/$triplet"
		for folder in $own; do ln -sf "$folder" "$work/include/$triplet"; done
	done
}

copy() {
	local tree=$work/$1
	mkdir -p "$tree/build/kernels"
	if [ -e .git ]; then git ls-files -z -co --exclude-standard; else
		find . -path ./build -prune -o -type f -print0
	fi | tar c --null --ignore-failed-read -T - | tar x -C "$tree"
	cp -p build/kernels/*.fatbin "$tree/build/kernels" 2>/dev/null || :
}

build() { # ARCHITECTURE PYTHON
	local tree=$work/$1 wheel
	export NO_INSTALL=1 CC=$work/bin/$1-cc AR=$work/bin/ar LDFLAGS=-s
	export CFLAGS="-g0 -fno-sanitize=undefined -isystem $work/include"
	wheel=$(set -o pipefail && cd python && _PYTHON_HOST_PLATFORM=manylinux_${GLIBC/./_}_$1 "$2" -B -c '
import sys, backend
print(backend.build_wheel(sys.argv[1], {"build-dir": sys.argv[2]}))' "$work" "$tree" | tail -n 1)
	"$venv/bin/auditwheel" show "$work/$wheel" >"$work/$1.audit"
	tr '\n' ' ' <"$work/$1.audit" | grep -Eq "consistent with *the following platform tag: \"manylinux_2_(1.|2[0-8])_$1\"" || {
		cat "$work/$1.audit" >&2
		return 1
	}
	[ "$(stat -c %s "$work/$wheel")" -lt $MOST ] || { echo "wheels: $wheel is too large" >&2 && return 1; }
	echo "$work/$wheel"
}

deb() { # ARCHITECTURE DEBIAN'S-NAME
	if ! command -v dpkg-architecture >/dev/null || ! command -v "$1-linux-gnu-strip" >/dev/null; then
		echo "wheels: no packages for $2: no dpkg-dev or binutils-${1//_/-}-linux-gnu" >&2
		return
	fi
	(unset DEB_HOST_ARCH && LIBC=$GLIBC dpkg-architecture -f -a "$2" -c \
		make -s -C "$work/$1" NO_INSTALL=1 PYTHON="$python" deb) && ls "$work/$1"/build/deb/*.deb
}

unset MAKEFLAGS MAKELEVEL MFLAGS
headers
for arch in ${*:-x86_64 aarch64}; do
	compiler "$arch"
	copy "$arch"
	build "$arch" "$python"
	if nogil=$(scripts/nogil.sh); then build "$arch" "$nogil"; else
		echo 'wheels: no wheel without the GIL: no such Python (make nogil builds one)' >&2
	fi
	deb "$arch" "$(sed 's/x86_64/amd64/; s/aarch64/arm64/' <<<"$arch")"
done
