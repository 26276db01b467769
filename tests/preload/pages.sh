#!/bin/bash
# SPDX-License-Identifier: MIT
#
# A block behaves as anonymous memory: advice, protections, remapping, and the
# kernel's own reads and writes, before forks and after them.
. "$(dirname "$0")/lib.sh"

program advice
program protect
program remap
program merged
program kernel_io
program lent
program raw_calls
program registered

# A program that forbids itself huge pages still has the engine's memory in them, where the
# kernel can make that exception.
program huge_forbidden
if [ "$("$programs/huge_forbidden" known | head -n 1)" != 1 ]; then
	skip 'huge_forbidden mapped' 'the kernel makes no exception (Linux 6.18 does)'
else
	under default "$programs/huge_forbidden" mapped >"$work/out" 2>&1
	says 'huge_forbidden mapped' '^1$' "$work/out"
fi

# A core file where one is written to the working directory.
pattern=$(cat /proc/sys/kernel/core_pattern 2>/dev/null)
case $pattern in
core*)
	mkdir "$work/cores"
	program dump "$work/cores"
	;;
*) skip "dump the kernel's core_pattern is ${pattern:-not to be seen}" ;;
esac

# With each backing, and with the engine's own choice.
thresholds='65536,backing=memfd'
program remap
program raw_calls
program kernel_io
program anonymous 1024
program anonymous_maps 1024
thresholds=default
program anonymous
program anonymous_maps
finish
