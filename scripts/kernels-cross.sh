#!/bin/bash
# SPDX-License-Identifier: MIT
#
# kernels-cross.sh [PAGE]: builds the libraries, the command, the examples and the short tests for
# arm64, in build/arm64, for the machines of scripts/check-kernels.sh. The tests know the size of a page when
# they are compiled: with 16384 all goes to build/arm64-16384. libcheck comes from the folder that
# scripts/kernels-fetch.sh fills. The code for GPUs is left out.
set -eu
cross=aarch64-linux-gnu root=$PWD/build/linux/arm64
libs=$root/usr/lib/aarch64-linux-gnu
command -v $cross-g++ >/dev/null || {
	echo "check-kernels: no $cross-g++; install g++-$cross" >&2
	exit 1
}
check=$(echo "$libs"/libcheck*.a)
[ -e "${check%% *}" ] || { echo "check-kernels: no libcheck in $libs" >&2 && exit 1; }
subunit=$libs/libsubunit.a b=build/arm64${1:+-$1}

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
tests=$(ls tests/{core,core/*,memfd,share,share/broker}/{test,bug}_*.c 2>/dev/null | sed 's/\.c$//')
programs='zero realloc forks descendants idle_threads safe_points signals'
[ -n "${FULL:-}" ] || tests=$(awk '$2 <= 0.3 { print "tests/" $1 }' tests/seconds.txt |
	grep -Fx -f <(echo "$tests") &&
	echo tests/core/fork/test_fork tests/core/cow/test_layers tests/core/storage/test_storage)
exec env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS NO_INSTALL=1 make -s -j2 MODE=plain B="$b" \
	${1:+CFLAGS=-DTEST_PAGE=$1} NVCC= PYTHON_H= URING= \
	CC=$cross-gcc CXX=$cross-g++ AR=$cross-ar PKG_CONFIG="$PWD/build/linux/pkg-config" all \
	$(printf "$b/%s " $tests) $(printf "$b/tests/programs/%s " $programs) \
	"$b"/bench/{plain_fork,plain_measure,plain_churn,transparent}
