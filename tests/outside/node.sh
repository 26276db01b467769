#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Node's own tests of buffers, workers, processes, memory and files, from Debian's source package.
# Each test is a program, which its runner starts. They fit one version: $NODE, else `node`.
. tests/outside/lib.sh
node=$(readlink -f "$(command -v "${NODE:-node}")")
[ -x "$node" ] || skip 'there is no node'
command -v python3 >/dev/null || skip 'there is no python3'
tree=$(sources bookworm nodejs) || exit 77
[ -e "$tree/tools/test.py" ] || skip 'the sources have no tools/test.py'
wanted=$(awk '/^#define NODE_(MAJOR|MINOR|PATCH)_VERSION/ { v = v "." $3 } END { print "v" substr(v, 2) }' \
	"$tree/src/node_version.h")
[ "$("$node" --version)" = "$wanted" ] || skip "node is $("$node" --version), and the tests are of $wanted"
groups='buffer worker child-process cluster heap memory fs-read fs-write zlib
	stream vm v8 process http-a http-c net-s'
[ -z "$quick" ] || { settings=threshold=4096 && groups='buffer child-process'; }
limit=1800
sift() { grep -E '^(not )?ok [0-9]+ ' "$1" | sed -E 's/ok [0-9]+ /ok /' | sort; }
cd "$tree" || exit 1
ln -sf "$node" node # Debian's runner takes this one
for group in $groups; do
	compare "test-$group*" python3 tools/test.py -p tap -j 2 \
		"parallel/test-$group*"
done
finish
