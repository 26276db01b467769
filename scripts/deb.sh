#!/bin/bash
# SPDX-License-Identifier: MIT
#
# deb.sh FOLDER: Debian packages of what `make install` put in FOLDER/tree, by dpkg's own
# tools alone: no root, no network. VERSION and RELEASED (a date) are the Makefile's.
#
#     libcowshed0         the engine       cowshed         the command, the shim
#     libcowshed-tensor0  tensors          libcowshed-dev  to compile with
#     libcowshed-cuda0    CUDA devices     cowshed-doc     docs/
#
# The shim is with the command: its name has no version, so two releases of it can't lie side
# by side, as libraries must. There is no static library: one engine per process.
set -eu
umask 022
export LC_ALL=C SOURCE_DATE_EPOCH=$(date -u -d "$RELEASED" +%s)
root=$PWD && cd "$1"
arch=$(dpkg-architecture -qDEB_HOST_ARCH) lib=usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
version=$VERSION-1
maintainer="${DEBFULLNAME:-the cowshed authors} <${DEBEMAIL:-cowshed@localhost}>"
rm -rf packages debian ./*.deb && mkdir -p debian
echo "Source: cowshed" >debian/control # what dpkg-shlibdeps wants to see

# package NAME PATH...: takes these from the tree
package() {
	name=$1 p=packages/$1 doc=$PWD/packages/$1/usr/share/doc/$1
	shift
	mkdir -p "$p/DEBIAN" "$doc"
	if [ $# -gt 0 ]; then (cd tree && tar c "$@") | tar x -C "$p"; fi
	cp "$root/LICENSE" "$doc/copyright"
	gzip -9nc "$root/CHANGELOG.md" >"$doc/changelog.gz"
	printf '%s\n\n' "cowshed ($version) unstable; urgency=medium" "  * Release $VERSION; see changelog.gz." \
		" -- $maintainer  $(date -u -R -d "$RELEASED")" | gzip -9n >"$doc/changelog.Debian.gz"
}

needs() { # ELF...: packages with other libraries; LIBC: a libc that is not here
	[ -z "${LIBC:-}" ] || { echo "libc6 (>= $LIBC)" && return; }
	dpkg-shlibdeps -O -xlibcowshed{,-tensor,-cuda}0 -l"$PWD/tree/$lib" \
		-Spackages/libcowshed{,-tensor}0 "$@" | sed 's/^shlibs:Depends=//'
}

# describe ARCHITECTURE SECTION FIELDS TITLE, and the text on standard input
describe() {
	chmod -R u=rwX,go=rX "$p" # documents have the modes of the checkout
	find "$p/usr/share/man" -name '*.[1-8]' -type f -exec gzip -9n {} + 2>/dev/null || :
	find "$p" -type l -name '*.[1-8]' -exec sh -c \
		'ln -s "$(readlink "$1").gz" "$1.gz" && rm "$1"' - {} \;
	{
		printf '%s\n' "Package: $name" 'Source: cowshed' "Version: $version" \
			"Architecture: $1" "Maintainer: $maintainer" "Section: $2" \
			'Priority: optional' "Installed-Size: $(du -sk --apparent-size "$p" | cut -f1)"
		printf "$3"
		echo "Description: $4"
		sed 's/^$/./; s/^/ /'
	} >"$p/DEBIAN/control"
	(cd "$p" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
	find "$p/usr/lib" \( -name '*.so' -o -name '*.so.*' \) -type f -exec chmod 644 {} + \
		-exec sh -c 'echo activate-noawait ldconfig >$0/DEBIAN/triggers' "$p" \; 2>/dev/null || :
	find "$p" -exec touch -hd "@$SOURCE_DATE_EPOCH" {} +
	dpkg-deb -Zxz --threads-max=1 --root-owner-group --build "$p" . >/dev/null
}
about='Large memory of programs lives in sealed memfds, so that forking, cloning
and sharing it cost mappings instead of copies.'

find "tree/$lib" tree/usr/bin -maxdepth 1 -type f \
	-exec "$(dpkg-architecture -qDEB_HOST_GNU_TYPE)-strip" --strip-unneeded -R .comment -R .note {} +

# library NAME NEEDED TITLE: a library, and which of our packages it needs
library() {
	package "${1}0" "$lib/$1.so.$VERSION" "$lib/$1.so.0"
	printf '%s\n' "$1.so.0 ${1}0 #MINVER#" ' (symver)COWSHED_0.1 0.1.0' \
		" (symver|optional)COWSHED_PRIVATE $VERSION" >debian/symbols
	dpkg-gensymbols -c4 -p"${1}0" -v"$VERSION" -P"$p" -Idebian/symbols -O"$p/DEBIAN/symbols"
	echo "$1 0 ${1}0" >"$p/DEBIAN/shlibs"
	describe "$arch" libs "Multi-Arch: same\nDepends: $2$(needs "$p/$lib/$1.so.0")\n" \
		"copy-on-write, shareable memory: $3" <<<"$about"
}
library libcowshed '' 'the engine'
library libcowshed-tensor "libcowshed0 (= $version), " tensors
library libcowshed-cuda "libcowshed-tensor0 (= $version), libcowshed0 (= $version), " 'CUDA devices'

package cowshed usr/bin "$lib"/libcowshed-{preload,copies}.so usr/{lib/systemd,share/man/man1,share/man/man7}
mkdir -p "$p/usr/share/lintian/overrides" # to be preloaded is all that these are for
printf 'cowshed: %s\n' package-name-doesnt-match-sonames shared-library-lacks-version >"$p/usr/share/lintian/overrides/cowshed"
describe "$arch" utils "Depends: libcowshed0 (= $version), $(needs "$p"/usr/bin/cowshed "$p/$lib"/*.so)
Suggests: libcowshed-cuda0\n" 'copy-on-write, shareable memory for programs as they are' <<<"$about

'cowshed run' runs a program so; other commands look at it from outside."

package libcowshed-dev usr/include "$lib"/libcowshed{,-tensor,-cuda}.so "$lib/pkgconfig" usr/share/man/man3
describe "$arch" libdevel "Multi-Arch: same\nDepends: libcowshed0 (= $version), \
libcowshed-tensor0 (= $version), libcowshed-cuda0 (= $version)\n" \
	'copy-on-write, shareable memory: for compiling programs' <<<"$about

Headers and their manual pages. There is no static library: a process has
one engine, which the preload library shares with programs that link it."

package cowshed-doc
cp -r "$root"/{README.md,docs,examples} "$doc" && rm -r "$doc/docs/man"
describe all doc '' 'copy-on-write, shareable memory: documents' <<<"$about"
ls ./*.deb
