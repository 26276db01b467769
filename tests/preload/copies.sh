#!/bin/bash
# SPDX-License-Identifier: MIT
#
# With libcowshed-copies.so beside the shim large copies may be lazy. Programs must
# behave as without it, and copies must be lazy where that pays.
. "$(dirname "$0")/lib.sh"

copies=$BUILD/lib/libcowshed-copies.so
if [ ! -e "$copies" ]; then
	skip 'copies it is not built'
	finish
fi

preload="$shim $copies"
thresholds='4096 default'
for also in copies=lazy copies=auto; do
	program copies
	program forks
done
thresholds=default
also=copies=off program copies
also=copies=auto,helper=no program copies
also=copies=lazy,backing=anon program copies
also=copies=lazy program kernel_io
also=copies=lazy program realloc
also=copies=lazy program busy_threads

# Without the shim, or without the engine's consent, it is libc's memcpy.
also=
preload=$copies program copies

# spared OPTIONS: bytes that the program's own process was spared
spared() {
	rm -f "$work/report"
	also=$1,report=$work/report under default "$programs/copies" \
		>/dev/null 2>&1
	sed -n 's/.* bytes_not_copied=\([0-9]*\).*/\1/p' "$work/report" |
		sort -n | tail -n 1 | grep . || echo 0
}

for mode in lazy auto; do
	if [ "$(spared copies=$mode)" -gt 4000000 ]; then
		pass "some copies are lazy: $mode"
	else
		fail "some copies are lazy: $mode" "$work/report"
	fi
done
if [ "$(spared copies=off)" -eq 0 ]; then
	pass 'none is when off'
else
	fail 'none is when off' "$work/report"
fi

# What does not fit is an error as ever.
cat >"$work/overflow.c" <<'END'
#include <string.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
	char to[8];
	if (argc == 5)
		memmove(to, argv[0], 8 * (size_t)argc);
	memcpy(to, argv[0], 8 * (size_t)argc);
	return to[0] == 0;
}
END
if command -v gcc >/dev/null && gcc -O2 -D_FORTIFY_SOURCE=2 -w -o \
	"$work/overflow" "$work/overflow.c" 2>/dev/null; then
	compare 'too large a copy is caught' \
		sh -c '"$0" 2 3 4 5 6 7; echo $?' "$work/overflow"
	compare 'too large a move is caught' \
		sh -c '"$0" 2 3 4 5; echo $?' "$work/overflow"
	compare 'others are not' "$work/overflow"
else
	skip 'too large a copy: no gcc here'
fi
finish
