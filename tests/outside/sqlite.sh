#!/bin/bash
# SPDX-License-Identifier: MIT
#
# SQLite's own tests: testfixture, which its source package builds, and the scripts of its tests.
. tests/outside/lib.sh
command -v tclsh >/dev/null || skip 'there is no tclsh'
find /usr/include -name tcl.h | grep -q . || skip 'there is no tcl.h (tcl-dev)'
tree=$(sources bookworm sqlite3) || exit 77
if [ ! -x "$tree/testfixture" ]; then
	(cd "$tree" && ./configure --enable-all && make -j2 testfixture) >"$work/build.log" 2>&1 ||
		skip "testfixture can't be built: $(tail -n 1 "$work/build.log")"
fi
files='malloc malloc3 memsubsys1 mmap1 mmap2 mmap4 bigrow bigfile zeroblob pcache wal walshared
	wal2 thread001 thread002 shared multiplex'
[ -z "$quick" ] || { settings=threshold=4096 && files='memsubsys1 mmap1 mmap2 bigrow zeroblob wal'; }
limit=1200
[ -n "$quick" ] || files+=' veryquick'
# How often malloc-15 repeats its failure depends on addresses: without the shim the count differs
# from run to run, too.
sift() { grep -E '^[!]|errors out of|^Ok$|\.\.\. Ok$' "$1" | grep -v 'malloc-15.persistent' |
	sed 's/ in [0-9.]* seconds.*//; s/ out of [0-9]* tests//'; }
mkdir -p "$work/run" && cd "$work/run" || exit 1
for file in $files; do
	compare "$file" "$tree/testfixture" "$tree/test/$file.test"
done
finish
