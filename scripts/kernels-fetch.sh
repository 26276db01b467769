#!/bin/bash
# SPDX-License-Identifier: MIT
#
# kernels-fetch.sh KERNEL...: fetches kernels from Debian's packages, for scripts/kernels-boot.sh.
# KERNEL is 5.10, 6.1, 6.12 or newest; arm64-6.12 and arm64-6.12-16k are kernels for arm64. Each
# gets a folder in build/linux with vmlinuz and initramfs; nothing is installed. For arm64, the
# programs and libraries that its tests need lie in build/linux/arm64.
#
# scripts/mirror.sh says from where.
set -eu
umask 022
work=$PWD/build/linux
die() { echo "check-kernels: $*" >&2 && exit 1; }
for tool in apt-get dpkg-deb xz cpio; do
	command -v $tool >/dev/null || die "no $tool here; it unpacks or packs the kernels of Debian's packages"
done
MIRROR=$(scripts/mirror.sh)
# The programs of the build's own release fit its compilers' libc.
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-bookworm}")

. scripts/kernels-debian.sh

modules=({virtio{,_ring,_pci,_pci_modern_dev,_pci_legacy_dev,_blk},netfs,fscache,9pnet{,_virtio},9p}.ko)
modules=("${modules[@]/#/*/}")

kernel() { # NAME VERSION FLAVOUR
	local folder=$work/$1 version packages
	[ ! -e "$folder/initramfs" ] || return 0
	version=$(apt apt-cache pkgnames linux-image- | sed -n "s/^linux-image-//p" |
		grep -E "^$2\.[.0-9+a-z-]*-$3\$" | grep -vE -- '-(cloud|rt)-' | sort -V | tail -n 1)
	[ -n "$version" ] || die "$MIRROR has no kernel $2 for $3"
	packages=$(apt apt-cache pkgnames linux- | grep -Fx -e "linux-image-$version" \
		-e "linux-binary-$version" -e "linux-modules-$version")
	rm -rf "$folder" && mkdir -p "$folder/ram/"{bin,modules,proc,sys,dev,root}
	unpack "$folder/all" $packages -- './boot/vmlinu*' '*/vmlinuz' "${modules[@]}" \
		"${modules[@]/%/.xz}"
	cp "$folder"/all/boot/vmlinu[xz]-* "$folder/vmlinuz" 2>/dev/null ||
		cp "$(find "$folder/all" -name 'vmlinuz*' | head -n 1)" "$folder/vmlinuz"
	find "$folder/all" -name '*.ko.xz' -exec xz -d {} +
	find "$folder/all" -name '*.ko' -exec mv -t "$folder/ram/modules" {} +
	[ -s "$folder/vmlinuz" ] && [ -e "$folder/ram/modules/9p.ko" ] || die "no vmlinuz or no 9p in $packages"
	cp "$work/$arch/bin/busybox" "$folder/ram/bin/"
	cp tests/kernels/init "$folder/ram/init" && chmod +x "$folder/ram/init"
	(cd "$folder/ram" && find . | cpio -o -H newc --quiet | gzip -1) >"$folder/initramfs.new"
	echo "$version" >"$folder/version"
	rm -rf "$folder/all" && mv "$folder/initramfs.new" "$folder/initramfs"
}

for spec; do
	case $spec in arm64-*) arch=arm64 ;; *) arch=amd64 ;; esac
	version=${spec#arm64-} flavour=$arch
	case $version in *-16k) version=${version%-16k} flavour=$arch-16k ;; esac
	[ "$version" != newest ] || version='[1-9][0-9]*'
	lists
	[ -e "$work/$arch/bin/busybox" ] || root
	kernel "$spec" "$version" "$flavour"
	echo "$spec: $(cat "$work/$spec/version")"
done
