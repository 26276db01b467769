#!/bin/bash
# SPDX-License-Identifier: MIT
#
# share.sh: lets SPIN try every order of the steps of share.pml
#
# First the protocol as it is, in a few small instances, without an error; then
# each protection taken away, which must give one: else the model says nothing.
# Needs spin and a C compiler; CASES="name..." tries only these.
set -u
here=$(cd "$(dirname "$0")" && pwd)
command -v spin >/dev/null || {
	echo "skip model-share spin is not installed"
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
	if ! spin -a "$@" "$here/share.pml" >log 2>&1 ||
		! ${CC:-gcc} -O2 -w -DSAFETY -DNOREDUCE -DCOLLAPSE -DMEMLIM=6000 \
			-o pan pan.c >>log 2>&1; then
		echo "not ok model-share-$name: it could not be built"
		sed 's/^/  /' log
		bad=1
		return
	fi
	# Who is killed stops for good: such ends are no errors.
	timeout "${LIMIT:-300}" ./pan -E -m100000 >log 2>&1
	errors=$(sed -n 's/^State-vector.*errors: //p' log)
	if grep -q 'max search depth too small\|^Warning: Search not completed' log &&
		[ "$want" = right ]; then
		errors=unfinished
	fi
	case $want/${errors:-unfinished} in
	right/0 | wrong/[1-9]*)
		echo "ok model-share-$name ($(sed -n \
			's/^ *\([0-9]*\) states, stored.*/\1/p' log) states)" ;;
	*)
		echo "not ok model-share-$name: $want expected, errors: ${errors:-unfinished}"
		grep -a 'assertion\|error:' log | sed 's/^/  /'
		bad=1 ;;
	esac
	rm -rf "${tmp:?}/$name"
}

none="-DSENDS=0 -DKILLS=0"
travel="-DTURNS=2 -DSENDS=1 -DKILLS=1"
leave="-DALL_HOLD -DTURNS=1 -DROWS=3"
reuse="-DALL_HOLD -DTURNS=2 -DROWS=2 $none"

try travel right $travel
try travel-calm right -DTURNS=3 -DSENDS=1 -DKILLS=0 -DROWS=3
try leave right $leave -DMEMBERS=2 -DSENDS=0 -DKILLS=1
try leave-ownerless right $leave -DOWNERLESS $none
try leave-stopped right $leave -DSTOPS $none
try reuse right $reuse
try newcomer right -DALL_HOLD -DNEWCOMER -DTURNS=1 -DSENDS=0 -DKILLS=1 -DROWS=2
try fork right -DFORK=0 -DMEMBERS=2 -DALL_HOLD -DTURNS=2 -DROWS=3 -DSENDS=0 -DKILLS=1

try no-moves wrong $travel -DNO_MOVES
try clear-before-set wrong $travel -DCLEAR_BEFORE_SET
try no-leaving wrong $leave $none -DOWNERLESS -DNO_LEAVING
try no-wait wrong $leave $none -DOWNERLESS -DNO_WAIT
try no-second-look wrong $leave $none -DOWNERLESS -DNO_SECOND_LOOK
try clear-before-punch wrong $reuse -DCLEAR_BEFORE_PUNCH
try reuse-while-followed wrong $reuse -DREUSE_FOLLOWED
try blind-to-own-bit wrong -DTURNS=4 -DSENDS=2 -DKILLS=0 -DPOLL_OWN
try no-epoch wrong -DALL_HOLD -DNEWCOMER -DTURNS=1 -DSENDS=0 -DKILLS=1 -DNO_EPOCH
try no-sweep wrong $travel -DALL_HOLD -DNO_SWEEP
try no-death wrong $leave -DSENDS=0 -DKILLS=1 -DNO_DEATH
exit $bad
