#!/bin/bash
# SPDX-License-Identifier: MIT
#
# kernels-boot.sh KERNEL OUT: boots a kernel of scripts/kernels-fetch.sh in QEMU, runs the script
# OUT/run.sh in it, in the tree and as root, and leaves its output in OUT/log and its exit status
# in OUT/status. OUT is writable in the machine, as /mnt/out; the tree is /mnt/tree.
#
# Environment: LIMIT=450 seconds, CPUS=1 (more are slower under emulation), MEMORY=3072 MiB,
# SWAP=0 MiB of swap, APPEND= more kernel options.
# ACCEL=kvm uses the processor; without it, QEMU computes what the processor would do (TCG). The
# machine's clock then counts instructions, 2 ns each: a busy host makes no test late in there.
set -eu
spec=$1 out=$(cd "$2" && pwd) work=$PWD/build/linux
die() { echo "check-kernels: $*" >&2 && exit 1; }
case $spec in
arm64-*) arch=arm64 qemu=qemu-system-aarch64 package=qemu-system-arm root=$work/arm64
	machine=(-machine virt,gic-version=3) console=ttyAMA0 ;;
*) arch=amd64 qemu=qemu-system-x86_64 package=qemu-system-x86 root=/
	machine=(-machine q35) console=ttyS0 ;;
esac
command -v $qemu >/dev/null || die "no $qemu; install $package"
[ -e "$work/$spec/initramfs" ] || die "no kernel $spec; scripts/kernels-fetch.sh $spec fetches it"

accel=(-accel tcg,thread=single -icount shift=1 -cpu max)
# Nested, KVM may refuse what the processor says of its own defects.
[ "${ACCEL:-}" != kvm ] || accel=(-accel kvm -cpu host,-arch-capabilities)
disk=()
if [ "${SWAP:-0}" -gt 0 ]; then
	rm -f "$out/swap" && truncate -s "${SWAP}M" "$out/swap"
	disk=(-drive "file=$out/swap,format=raw,if=virtio,cache=unsafe")
fi
folder() { # TAG PATH MORE
	printf '%s\n' -fsdev "local,id=$1,path=$2,security_model=none,multidevs=remap$3" \
		-device "virtio-9p-pci,fsdev=$1,mount_tag=$1"
}
mapfile -t folders < <(folder host "$root" ,readonly=on && folder tree "$PWD" ,readonly=on &&
	folder out "$out" '')
rm -f "$out/status" "$out/log"
status=0
timeout -k 5 "${LIMIT:-450}" $qemu "${machine[@]}" "${accel[@]}" -smp "${CPUS:-1}" \
	-m "${MEMORY:-3072}" \
	-kernel "$work/$spec/vmlinuz" -initrd "$work/$spec/initramfs" \
	-append "console=$console panic=-1 quiet ${APPEND:-}" \
	-no-reboot -nographic -nodefaults -serial stdio \
	"${folders[@]}" "${disk[@]}" >"$out/console" 2>&1 </dev/null || status=$?
rm -f "$out/swap"
if [ ! -e "$out/status" ]; then
	[ $status -ne 124 ] || die "kernel $spec: not done after ${LIMIT:-450} s ($out/log, $out/console)"
	tail -n 20 "$out/console" >&2
	die "kernel $spec did not come to its end ($out/console)"
fi
exit "$(cat "$out/status")"
