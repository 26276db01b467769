#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The Debian packages: built, unpacked in a scratch root (no root, no package manager), a
# program is compiled against them with pkg-config and runs, and so does `cowshed run`. They
# have what Debian asks for; lintian, where it is, has nothing to say but what is meant so.
set -u
export LC_ALL=C
bad=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
for tool in dpkg-deb dpkg-architecture dpkg-shlibdeps dpkg-gensymbols strip; do
	command -v $tool >/dev/null || { echo "skip deb there is no $tool" && exit 77; }
done
holds() { # NAME COMMAND...
	local name=$1
	shift
	if "$@" >"$work/out" 2>&1; then echo "ok deb: $name"; else
		bad=1
		echo "not ok deb: $name" && tail -n 30 "$work/out" | sed 's/^/    /'
	fi
}
is() { if [ "$2" = "$3" ]; then echo "ok deb: $1"; else bad=1 && echo "not ok deb: $1: '$2', not '$3'"; fi; }

# With a strict umask, of which nothing is to be seen in the packages.
make_deb() {
	(umask 077 && exec env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS NO_INSTALL=1 make -s \
		MODE="${MODE:-plain}" deb)
}
holds 'make deb' make_deb
[ $bad -eq 0 ] || exit 1
version=$(awk '/^.define COW_VERSION_/ { printf "%s%s", s, $3; s = "." }' include/cowshed.h)
arch=$(dpkg-architecture -qDEB_HOST_ARCH) triplet=$(dpkg-architecture -qDEB_HOST_MULTIARCH)
deb() { echo "build/deb/$1_$version-1_${2:-$arch}.deb"; }
for name in libcowshed0 libcowshed-tensor0 libcowshed-cuda0 cowshed libcowshed-dev; do
	holds "unpack $name" dpkg-deb -x "$(deb $name)" "$work/root"
done
holds 'unpack cowshed-doc' dpkg-deb -x "$(deb cowshed-doc all)" "$work/root"
lib=$work/root/usr/lib/$triplet
is 'all can read it' "$(for file in build/deb/*.deb; do dpkg-deb -c "$file"; done |
	grep -vE '^(drwxr-xr-x|-rwxr-xr-x|-rw-r--r--|lrwxrwxrwx) ')" ''
is 'the version' "$(dpkg-deb -f "$(deb cowshed)" Version)" "$version-1"
is 'who needs whom' "$(dpkg-deb -f "$(deb cowshed)" Depends | grep -o '^libcowshed0 [^,]*')" \
	"libcowshed0 (= $version-1)"
holds 'libc is asked for' grep -q 'libc6 (>= ' <(dpkg-deb -f "$(deb libcowshed0)" Depends)
is 'the CUDA library needs the others' "$(dpkg-deb -f "$(deb libcowshed-cuda0)" Depends |
	grep -o 'libcowshed[^,]*' | tr '\n' ' ')" \
	"libcowshed-tensor0 (= $version-1) libcowshed0 (= $version-1) "
holds 'symbols' grep -q '^ cow_storage_new@COWSHED_0.1 0.1.0$' \
	<(dpkg-deb --ctrl-tarfile "$(deb libcowshed0)" | tar xO ./symbols)
is 'no run paths' "$(readelf -d "$lib"/*.so* "$work/root/usr/bin/cowshed" | grep -c RUNPATH)" 0

# As an installed system has it, but for where the root is.
export PKG_CONFIG_LIBDIR=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$work/root
holds 'compile a program' ${CC:-gcc} -o "$work/hello" \
	"$work/root/usr/share/doc/cowshed-doc/examples/hello.c" $(pkg-config --cflags --libs cowshed)
export LD_LIBRARY_PATH=$lib
is 'the program' "$("$work/hello" | tail -n 1)" 'of 67108864 bytes, b has 4096 of its own'
is 'cowshed --version' "$("$work/root/usr/bin/cowshed" --version | head -n 1)" \
	"cowshed $version (library $version)"
holds 'cowshed run' "$work/root/usr/bin/cowshed" run -- \
	sh -c "grep -q $lib/libcowshed-preload.so /proc/self/maps"
unset LD_LIBRARY_PATH
holds 'manual of a function' test -e "$work/root/usr/share/man/man3/cow_storage_new.3.gz"

if command -v lintian >/dev/null; then
	# Who packages it has an address (DEBEMAIL) and a bug to close.
	lintian --allow-root build/deb/*.deb >"$work/lint" 2>&1
	is 'lintian' "$(grep '^[EW]:' "$work/lint" |
		grep -vE 'bogus-mail-host|initial-upload-closes-no-bugs')" ''
else echo 'skip deb: lintian there is none'; fi
exit $bad
