#!/bin/bash
# SPDX-License-Identifier: MIT
#
# kernels-cross.sh PAGE: builds for arm64 what the machines of scripts/check-kernels.sh run, in a copy of
# the tree: build/linux/tree-PAGE. These are the libraries, the command, the examples, tests/programs
# and the short tests. The tests know the size of a page when they are compiled. libcheck and
# liburing come from the folder that scripts/kernels-fetch.sh fills. The code for GPUs is left out.
set -eu
cross=aarch64-linux-gnu root=$PWD/build/linux/arm64
libs=$root/usr/lib/aarch64-linux-gnu
command -v $cross-g++ >/dev/null || {
	echo "check-kernels: no $cross-g++; install g++-$cross" >&2
	exit 1
}
check=$(echo "$libs"/libcheck*.a)
subunit=$libs/libsubunit.a uring=$libs/liburing.a
for library in "${check%% *}" "$uring"; do
	[ -e "$library" ] || { echo "check-kernels: no $library; remove $root, and fetch again" >&2 && exit 1; }
done
tree=build/linux/tree-$1

# pkg-config for that folder: only libcheck is asked for.
cat >build/linux/pkg-config <<-END
	#!/bin/sh
	case "\$*" in
	'--cflags check') echo '-isystem $root/usr/include' ;;
	'--libs check') echo '${check%% *} $subunit -lrt -lm' ;;
	*) exit 1 ;;
	esac
END
chmod +x build/linux/pkg-config
tests=$(ls tests/{core,core/*,memfd,quiet,share,share/broker}/{test,bug}_*.c 2>/dev/null | sed 's/\.c$//')
programs=$(basename -a tests/programs/*.c tests/programs/*.cc | sed 's/\.cc*$//')
[ -n "${FULL:-}" ] || tests=$(awk '$2 > 0.3 { print "tests/" $1 }' tests/seconds.txt |
	grep -vFx -f - <(echo "$tests") &&
	echo tests/core/fork/test_fork tests/core/cow/test_layers tests/core/storage/test_storage)
mkdir -p "$tree"
if [ -e .git ]; then git ls-files -z -co --exclude-standard; else
	find . -path ./build -prune -o -type f -print0
fi | tar c --null --ignore-failed-read -T - | tar x -C "$tree"
exec env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS NO_INSTALL=1 make -s -j2 -C "$tree" MODE=plain NVCC= \
	CFLAGS="-DTEST_PAGE=$1" PYTHON_H= URING="$uring" CC=$cross-gcc CXX=$cross-g++ AR=$cross-ar \
	PKG_CONFIG="$PWD/build/linux/pkg-config" all $(printf 'build/plain/%s ' $tests) \
	$(printf 'build/plain/tests/programs/%s ' $programs) \
	build/plain/bench/{plain_fork,plain_measure,plain_churn,transparent}
