#!/bin/bash
# SPDX-License-Identifier: MIT
#
# check-roots.sh [FOLDER...]: what `make wheels` built, installed into other systems and used there:
#
#     bullseye      Debian 11, glibc 2.31, with a Python 3.13 that is built on it in build/roots; with
#                   a second one without the GIL, if there is a wheel for it (make nogil)
#     trixie        Debian 13, glibc 2.41 and its own Python 3.13
#     trixie-arm64  the same for arm64, under qemu-user, in a user namespace: nothing is registered outside of it
#
# debootstrap makes them in build/roots, once (2 GB). It needs root. What can't be had is skipped.
set -u
cd "$(dirname "$0")/.." || exit 1
roots=$PWD/build/roots wheels=$PWD/build/wheels
failed=0 all=" ${*:-bullseye trixie trixie-arm64} "
for name in $all; do
	case $name in bullseye | trixie | trixie-arm64) ;; *) echo "check-roots: no root '$name'" >&2 && exit 1 ;; esac
done
wanted() { case $all in *" $1 "*) ;; *) return 1 ;; esac }
skip() { echo "skip roots: $1" && exit "${2:-77}"; }

[ "$(id -u)" -eq 0 ] || skip 'only root can make and enter other systems'
command -v debootstrap >/dev/null || skip 'there is no debootstrap'
MIRROR=$(scripts/mirror.sh) || exit
ls "$wheels"/*x86_64.whl >/dev/null 2>&1 || skip 'there are no wheels: run make wheels first'
mkdir -p "$roots"

# make_root FOLDER SUITE PACKAGES [OPTION...]
make_root() {
	local folder=$roots/$1 suite=$2 packages=$3
	shift 3
	[ ! -f "$folder.complete" ] || return 0
	echo "roots: making $folder"
	rm -rf "$folder"
	debootstrap --variant=minbase "--include=$packages" "$@" "$suite" "$folder" "$MIRROR" \
		>"$folder.log" 2>&1 && touch "$folder.complete" && return
	echo "skip roots: debootstrap $suite failed: $(tail -n 1 "$folder.log")"
	return 1
}

# Debian 11's own Python is too old for the package.
make_python() { # NAME [OPTION]: /opt/NAME
	[ -x "$roots/bullseye/opt/$1/bin/python3" ] ||
		{ make_root bullseye-dev bullseye build-essential,zlib1g-dev,libffi-dev && scripts/roots-python.sh "$@"; }
}

# give FOLDER ARCHITECTURE DEBIAN'S-NAME [ABI]: /check in it
give() {
	local folder=$roots/$1 built=$wheels/$2/build
	rm -rf "$folder/check" && mkdir -p "$folder/check/debs"
	cp "$(ls -t "$wheels"/cowshed-*-"${4:-abi3}"-*"$2".whl | head -n 1)" tests/roots/inside.* "$folder/check"
	cp "$built"/plain/examples/{hello,fork} "$folder/check"
	cp "$built"/deb/{libcowshed0,libcowshed-tensor0,cowshed}_*"$3".deb "$folder/check/debs"
}

# results COMMAND...: shows its lines, and whether one of them is "not ok"
results() {
	timeout -k 5 400 "$@" </dev/null 2>&1 | tee "$roots/out"
	[ "${PIPESTATUS[0]}" -eq 0 ] || { echo "not ok roots: exit status ${PIPESTATUS[0]}" && failed=1; }
	! grep -q '^not ok' "$roots/out" && grep -q '^ok' "$roots/out" || failed=1
}
# shellcheck disable=SC2016
inside='mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev" || exit 1
exec chroot "$1" bash /check/inside.sh "$2" "$3"'

if wanted bullseye && make_root bullseye bullseye zlib1g,libffi7 && make_python python && give bullseye x86_64 amd64; then
	results unshare -mpf --kill-child sh -c "$inside" sh "$roots/bullseye" 'Debian 11' /opt/python/bin/python3
fi
if wanted bullseye && ! ls "$wheels"/cowshed-*-cp313t-*x86_64.whl >/dev/null 2>&1; then
	echo 'skip roots: there is no wheel without the GIL: run make nogil wheels first'
elif wanted bullseye && [ -e "$roots/bullseye.complete" ] && make_python nogil --disable-gil &&
	give bullseye x86_64 amd64 cp313t; then
	results unshare -mpf --kill-child sh -c "$inside" sh "$roots/bullseye" 'Debian 11, no GIL' \
		/opt/nogil/bin/python3
fi
if wanted trixie && make_root trixie trixie python3,python3-venv && give trixie x86_64 amd64; then
	results unshare -mpf --kill-child sh -c "$inside" sh "$roots/trixie" 'Debian 13' /usr/bin/python3
fi

# arm64. The packages are unpacked, not configured, which would run their programs as many users.
wanted trixie-arm64 || exit $failed
qemu=$(command -v qemu-aarch64-static) || skip 'no qemu-aarch64-static: no arm64' $failed
make_root trixie-arm64 trixie python3,python3-venv --arch=arm64 --foreign &&
	give trixie-arm64 aarch64 arm64 || exit $failed
arm=$roots/trixie-arm64
for deb in "$arm"/var/cache/apt/archives/*.deb "$arm"/check/debs/*.deb; do
	dpkg-deb -x "$deb" "$arm"
done
rm -r "$arm/check/debs"
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
register="mount -t binfmt_misc none /proc/sys/fs/binfmt_misc &&
	printf '%s' ':cowshed:M::$magic:$mask:$qemu:F' >/proc/sys/fs/binfmt_misc/register || exit 1;"
if ! timeout 60 unshare -Ur -mpf --kill-child sh -c "$register"' chroot "$1" /bin/true' sh "$arm" 2>"$roots/out"; then
	echo "skip roots: arm64 programs can't run in a user namespace: $(tail -n 1 "$roots/out")"
else
	results unshare -Ur -mpf --kill-child sh -c "$register $inside" sh "$arm" 'arm64' /usr/bin/python3
fi
exit $failed
