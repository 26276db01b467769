# SPDX-License-Identifier: MIT
#
# spin.sh: lets SPIN try every order of the steps of a model
#
# Needs spin and a C compiler. The scripts that include it set MODEL, the name of
# their .pml file, and PAN, more flags of the search.
#
#   CASES="name..."  only these instances
#   LIMIT            seconds for each
#   MEMLIM           MiB for each
#   STEPS            the longest path of the search
#   OPT              how the search is compiled
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v spin >/dev/null || {
	echo "skip model-$MODEL spin is not installed"
	exit 77
}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
bad=0

# try NAME wrong|right FLAG...
try() {
	local name=$1 want=$2 errors
	shift 2
	case " ${CASES:-$name} " in *" $name "*) ;; *) return ;; esac
	mkdir "$tmp/$name" && cd "$tmp/$name" || exit 1
	if ! spin -a "$@" "$here/$MODEL.pml" >log 2>&1 ||
		! ${CC:-gcc} ${OPT:--O2} -w -DSAFETY -DNOREDUCE -DCOLLAPSE \
			-DMEMLIM="${MEMLIM:-4000}" -o pan pan.c >>log 2>&1; then
		echo "not ok model-$MODEL-$name: it could not be built"
		sed 's/^/  /' log
		bad=1
		return
	fi
	timeout "${LIMIT:-300}" ./pan $PAN -m"${STEPS:-100000}" >log 2>&1
	errors=$(sed -n 's/^State-vector.*errors: //p' log)
	if grep -q 'max search depth too small\|^Warning: Search not completed' log &&
		[ "$want" = right ]; then
		errors=unfinished
	fi
	case $want/${errors:-unfinished} in
	right/0 | wrong/[1-9]*)
		echo "ok model-$MODEL-$name ($(sed -n \
			's/^ *\([0-9]*\) states, stored.*/\1/p' log) states)" ;;
	*)
		echo "not ok model-$MODEL-$name: $want expected, errors: ${errors:-unfinished}"
		grep -a 'assertion\|error:\|invalid end' log | sed 's/^/  /'
		bad=1 ;;
	esac
	rm -rf "${tmp:?}/$name"
}
