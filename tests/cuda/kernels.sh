#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The images that are embedded (build/kernels/) have machine code for every kernel and
# every architecture that mk/libraries.mk names, and PTX for what is newer. Says nothing
# of whether the code is right: that a GPU must tell (make check-gpu). The library says
# that it has them, to a driver that brings none of its own.
set -u
if ! command -v nvcc >/dev/null && [ ! -s build/kernels/move.fatbin ]; then
	echo 'skip kernels: built without nvcc'
	exit 77
fi
for tool in python3 zstd readelf; do
	command -v "$tool" >/dev/null || { echo "skip kernels: no $tool"; exit 77; }
done
sms=$(sed -n 's/^SMS := //p' mk/libraries.mk)
bad=0
for source in cuda/kernels/*.cu; do
	name=$(basename "$source" .cu)
	want=$(${CXX:-g++} -std=gnu++17 -I. -Iinclude -include tests/driver/host_cuda.h \
		-DCOWREF_LIST -E -x c++ "$source" | tr '\n' ' ' |
		grep -oE 'COWREF_KERNEL +void +[A-Za-z0-9_]+' | awk '{ print $NF }' | sort)
	[ -n "$want" ] || { echo "not ok $name: no kernels found"; bad=1; continue; }
	have=$(python3 - "build/kernels/$name.fatbin" <<'EOF'
# Of each entry: what it is, its architecture, and its kernels. An image is entries of
# a header and data, compressed or not.
import re, struct, subprocess, sys, tempfile

data = open(sys.argv[1], 'rb').read()
at = 16
while at < len(data):
    kind, _, header = struct.unpack_from('<HHI', data, at)
    size, = struct.unpack_from('<Q', data, at + 8)
    sm, = struct.unpack_from('<I', data, at + 28)
    body = data[at + header:at + header + size]
    at += header + size
    if body[:4] == b'\x28\xb5\x2f\xfd':
        # Padded at its end, which zstd complains of after all is out.
        body = subprocess.run(['zstd', '-dcq'], input=body, capture_output=True).stdout
    if kind == 1:
        names = re.findall(rb'\.entry\s+(\w+)', body)
        print('\n'.join('ptx %d %s' % (sm, n.decode()) for n in names))
        continue
    with tempfile.NamedTemporaryFile() as f:
        f.write(body)
        f.flush()
        out = subprocess.run(['readelf', '-sW', f.name], capture_output=True, text=True).stdout
    for line in out.splitlines():
        w = line.split()
        if len(w) >= 8 and w[3] == 'FUNC' and w[4] == 'GLOBAL':
            print('sm %d %s' % (sm, w[-1]))
EOF
	)
	for sm in $(printf 'sm-%s ' $sms) "ptx-${sms##* }"; do
		got=$(awk -v k="${sm%-*}" -v n="${sm#*-}" '$1 == k && $2 == n { print $3 }' <<<"$have" | sort)
		if [ "$got" = "$want" ]; then
			echo "ok $name.$sm: $(wc -l <<<"$want") kernels"
		else
			echo "not ok $name.$sm: $(diff <(echo "$want") <(echo "$got") | head -n 3 | tr '\n' ' ')"
			bad=1
		fi
	done
done

driver=${BUILD:-build/plain}/tests/driver
if [ -e "$driver/libcuda.so.1" ]; then
	said=$(env -u COWSHED_CUDA_DRIVER LD_LIBRARY_PATH="$driver" \
		"${BUILD:-build/plain}/bin/cowshed" doctor 2>&1 | grep 'CUDA kernels')
	case $said in
	*'in this library') echo 'ok kernels.told' ;;
	*) echo "not ok kernels.told: $said"; bad=1 ;;
	esac
fi
exit $bad
