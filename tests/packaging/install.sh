#!/bin/bash
# SPDX-License-Identifier: MIT
#
# What a packager asks of `make install`: it goes where it is told and nowhere else, pkg-config
# says where, names and versions agree, no trace of the build folder is left, uninstall takes
# all of it away, and the command finds the shim. What is installed is hardened, and all can
# read it, however strict the umask of who installs.
set -u
export LC_ALL=C
build=${BUILD:-build/plain} root=$PWD bad=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
pass() { echo "ok $1"; }
fail() {
	bad=1
	echo "not ok $1"
	shift
	[ $# -eq 0 ] || tail -n 20 "$@" | sed 's/^/    /'
}
holds() { # NAME COMMAND...
	local name=$1
	shift
	if "$@" >"$work/out" 2>&1; then pass "$name"; else fail "$name" "$work/out"; fi
}
is() { if [ "$2" = "$3" ]; then pass "$1"; else fail "$1: '$2', not '$3'"; fi; }
to() { # TARGET: as a packager does it, with a strict umask; what is built is used
	(umask 077 && exec env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS make -s MODE="${MODE:-plain}" \
		DESTDIR="$work/there" prefix=/opt/cow libdir=/opt/cow/lib64 "$1")
}

holds 'make install' to install
opt=$work/there/opt/cow lib=$work/there/opt/cow/lib64
version=$(awk '/^.define COW_VERSION_/ { printf "%s%s", s, $3; s = "." }' include/cowshed.h)

is 'all can read it' "$(find "$work/there" ! -type l ! \( -type d -perm 755 \) \
	! \( -type f -perm 644 \) ! \( -type f -perm 755 \( -path '*/bin/*' -o -name '*.so*' \) \) \
	-printf '%m %P ')" ''

# One place has the version.
for name in libcowshed{,-tensor,-cuda}; do
	is "version: $name" "$(readlink "$lib/$name.so.0")" "$name.so.$version"
	is "version: $name: pkg-config" "$(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --modversion \
		"${name#lib}")" "$version"
done
is 'version: the changelog' "$(sed -n 's/^## \([0-9.]*\).*/\1/p;T;q' CHANGELOG.md)" "$version"
is 'version: the command' "$(LD_LIBRARY_PATH=$lib "$opt/bin/cowshed" --version | head -n 1)" \
	"cowshed $version (library $version)"
python=$(scripts/python.sh) && is 'version: the Python package' \
	"$(cd python && "$python" -B -c 'import backend; print(backend.version())')" "$version"

is 'pkg-config: flags' "$(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --cflags --libs cowshed |
	sed 's/ *$//')" '-I/opt/cow/include -L/opt/cow/lib64 -lcowshed'
soname() { readelf -d "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p'; }
is 'pkg-config: the libraries that cowshed-cuda requires' "$(PKG_CONFIG_PATH=$lib/pkgconfig \
	pkg-config --libs-only-l cowshed-cuda | sed 's/ *$//')" '-lcowshed-cuda -lcowshed-tensor -lcowshed'
for name in libcowshed{,-tensor,-cuda}; do
	is "soname: $name" "$(soname "$lib/$name.so")" "$name.so.0"
done
# All that LD_PRELOAD maps into every program: code and constants of the engine.
is 'libcowshed: at most 370 kB of code and constants' \
	"$(size "$lib/libcowshed.so" | awk 'NR == 2 && $1 > 370000 { print $1 }')" ''
is 'soname: the shim' "$(soname "$lib/libcowshed-preload.so")" libcowshed-preload.so
# What the shim has in common with the library is of a node of its own, for this release alone.
node=COWSHED_${version%.*}
nm -D --defined-only --with-symbol-versions "$lib"/libcowshed{,-tensor,-cuda}.so |
	awk 'NF == 3 && $2 != "A" { print $3 }' |
	grep -vE "^cow_[a-z].*@@$node$|^cow__.*@@COWSHED_PRIVATE$" >"$work/names"
is "symbol versions: $node" "$(cat "$work/names")" ''

# In a folder that the command's own run path does not name.
holds 'the command finds the shim beside its library' env LD_LIBRARY_PATH="$lib" \
	"$opt/bin/cowshed" run -- sh -c "grep -q $lib/libcowshed-preload.so /proc/self/maps"
mv "$lib/libcowshed-preload.so" "$work"
LD_LIBRARY_PATH=$lib "$opt/bin/cowshed" run -- true >"$work/out" 2>&1
is 'and says so when there is none' "$? $(cat "$work/out")" \
	'2 cowshed: There is no libcowshed-preload.so beside libcowshed.so.0; install it there.'
mv "$work/libcowshed-preload.so" "$lib"

files=("$lib"/libcowshed{,-tensor,-cuda}.so."$version" "$lib"/libcowshed-{preload,copies}.so
	"$opt/bin/cowshed")
is 'no trace of the build folder' "$(grep -lF "$root" -r "$work/there")" ''
for file in "${files[@]}"; do
	name=${file##*/}
	readelf -Wld "$file" >"$work/elf"
	holds "hardened: $name: relro" grep -q GNU_RELRO "$work/elf"
	holds "hardened: $name: bound at start" grep -qE 'BIND_NOW|Flags:.*NOW' "$work/elf"
	is "hardened: $name: no executable stack" "$(awk '/GNU_STACK/ { print $7 }' "$work/elf")" RW
	is "hardened: $name: no text relocations" "$(grep -c TEXTREL "$work/elf")" 0
done
holds 'hardened: the command is position independent' grep -q '(FLAGS_1).*PIE' "$work/elf"
if [ "${MODE:-plain}" = plain ]; then
	for file in "${files[@]:0:4}" "${files[5]}"; do
		nm -D --undefined-only "$file" >"$work/names"
		holds "hardened: ${file##*/}: stack canaries" grep -q __stack_chk_fail "$work/names"
	done
	holds 'hardened: fortified' grep -q '__.*_chk@' "$work/names"
	# Shadow stacks and landing pads, where the compiler makes them: one object without
	# the mark, and the whole library would be without.
	if echo | ${CC:-gcc} -Werror -fcf-protection -fsyntax-only -x c - 2>/dev/null; then
		for object in "$build"/obj/{memfd,quiet,core,core/*,share,tensor,cuda,preload,cli}/*.o \
			build/kernels/*.o; do
			readelf -n "$object" | grep -q 'x86 feature: IBT, SHSTK' || echo "$object"
		done >"$work/out"
		is 'hardened: control flow' "$(cat "$work/out")" ''
	else echo 'skip hardened: control flow not with this compiler'; fi
fi

# Folders are not ours alone: what others have there stays, and so do they.
others=("$opt/include/other.h" "$lib/libother.so" "$lib/pkgconfig/other.pc"
	"$opt/lib/systemd/user/other.service" "$opt/share/man/man3/other.3")
touch "${others[@]}"
find "$work/there" -type d | sort >"$work/folders"
holds 'make uninstall' to uninstall
is 'nothing is left but what others have' "$(find "$work/there" ! -type d | sort)" \
	"$(printf '%s\n' "${others[@]}" | sort)"
is 'and all folders' "$(find "$work/there" -type d | sort)" "$(cat "$work/folders")"
exit $bad
