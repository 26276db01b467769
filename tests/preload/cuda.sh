#!/bin/bash
# SPDX-License-Identifier: MIT
#
# CUDA programs under the shim: memory that they register stays where it is. The shim notices
# the device's file, which a driver keeps open. Here that file is made in a mount namespace of
# its own, and the driver is the reference driver.
. "$(dirname "$0")/lib.sh"

driver=$BUILD/tests/driver/libcuda.so.1
program=$programs/cuda_registered
if [ ! -e "$driver" ]; then
	echo "skip cuda there is no reference driver in $BUILD/tests"
	exit 77
fi

# within COMMAND...: where /dev/nvidia0 exists
within() {
	unshare "${how[@]}" bash -c '
		mkdir -p "$0/dev" && mount -t tmpfs none "$0/dev" &&
		for f in null zero random urandom; do
			: >"$0/dev/$f" && mount --bind "/dev/$f" "$0/dev/$f" || exit 9
		done
		ln -s /proc/self/fd "$0/dev/fd" && mkdir "$0/dev/shm" &&
		: >"$0/dev/nvidia0" && mount --bind /dev/null "$0/dev/nvidia0" && mount --rbind "$0/dev" /dev || exit 9
		exec "$@"' "$work" "$@" </dev/null
}

for how in "-m" "-rm"; do
	how=("$how")
	within true 2>/dev/null && break
	how=()
done
if [ ${#how[@]} -eq 0 ]; then
	echo "skip cuda no mount namespace for a /dev of our own"
	exit 77
fi

# seen NAME STATUS TEXT COMMAND...
seen() {
	local name=$1 want=$2 text=$3 got=0
	shift 3
	"$@" >"$work/shim.out" 2>"$work/shim.err" || got=$?
	if [ "$got" -eq "$want" ] && grep -q "$text" "$work/shim.err" "$work/shim.out"; then
		pass "$name"
	else
		echo "status $got" >>"$work/shim.err"
		fail "$name" "$work/shim.out" "$work/shim.err"
	fi
}

shimmed() { # THRESHOLD COMMAND...
	local options=
	[ "$1" = default ] || options=threshold=$1
	shift
	within timeout -k 5 "$limit" env LD_PRELOAD="$preload" \
		${options:+COWSHED_OPTIONS="$options"} "$@"
}

seen 'without the shim' 0 'copy is there' within "$program" "$driver" /dev/nvidia0
for t in $thresholds; do
	seen "registered memory stays, at $t" 0 'in a file' \
		shimmed "$t" "$program" "$driver" /dev/nvidia0
	# This is what it would be: the test finds what it is for.
	seen "without the device's file it would not, at $t" 1 'copy is lost' \
		shimmed "$t" "$program" "$driver"
done
finish
