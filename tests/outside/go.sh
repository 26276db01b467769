#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The tests of Go's runtime, and of its packages for processes, signals and sockets, which the
# package of its sources brings. Go links such programs statically. Here libc is linked, so that
# the shim can be loaded at all. Go maps its memory itself, so only the option mmap reaches it.
. tests/outside/lib.sh
settings='threshold=65536,mmap=65536 mmap=1M'
for tool in go gcc; do
	command -v $tool >/dev/null || skip "there is no $tool"
done
source=$(go env GOROOT)/src
[ -e "$source/runtime/malloc_test.go" ] || skip 'Go has no tests here (Debian: golang-src)'
export HOME=$work GOFLAGS=-mod=mod GOPROXY=off
packages='runtime runtime/cgo runtime/debug runtime/pprof os os/exec os/signal syscall net plugin'
[ -z "$quick" ] || { settings=threshold=65536,mmap=65536 && packages='runtime/debug os/exec os/signal syscall'; }
limit=1800
sift() { grep -E '^ *--- (PASS|FAIL|SKIP): ' "$1" | sed 's/ ([0-9.]*s)$//' | sort; }
for package in $packages; do
	program=$work/${package//\//-}.test
	(cd "$source" && go test -c -vet=off -ldflags=-linkmode=external -o "$program" "$package") \
		>"$work/build.log" 2>&1 && [ -x "$program" ] || {
		echo "skip outside/go: $package can't be built: $(head -n 1 "$work/build.log")"
		continue
	}
	cd "$source/$package" || exit 1
	compare "$package" "$program" -test.short -test.v
done
finish
