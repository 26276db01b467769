#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Filters of system calls that end a program for a call that libc would not make: set by the
# program itself, or before exec. Nothing of the shim's may be that call.
. "$(dirname "$0")/lib.sh"

actions=kill
[ -n "${QUICK:-}" ] || actions='kill trap errno'
ways() {
	local way action
	for way in own own-threads again vfork exec; do
		for action in $actions; do program filters $way $action; done
	done
}
ways
also=mmap=64K ways
program filters exec-without kill
[ -n "${QUICK:-}" ] || also=mmap=64K program filters exec-without errno
program filters exec-cores kill

program filter_closed 0
program filter_closed 2

# What a filter allows, the engine uses.
serves() { # NAME ARGUMENTS...
	local name=$1
	shift
	rm -f "$work/report"
	report=$work/report under 4096 "$programs/filters" "$@" >/dev/null 2>&1
	if [ "$(served "$work/report")" -gt 8000000 ]; then pass "$name"; else fail "$name" "$work/report"; fi
}
serves 'filters: the engine serves before the filter' own kill
serves 'filters: the engine serves under one that came with exec' exec-without kill

# A service of systemd: its list, if systemd-analyze can tell it, ends the program for others.
names() { # GROUP...: the calls in these groups
	local name
	systemd-analyze syscall-filter "$@" 2>/dev/null | sed -n 's/^ \{4\}\([-@a-z0-9_]*\).*/\1/p' |
		while read -r name; do
			case $name in @*) names "$name" ;; ?*) echo "$name" ;; esac
		done
}
numbers() {
	{ echo '#include <sys/syscall.h>' && sed 's/.*/number SYS_&/' | sort -u; } |
		"${CC:-cc}" -E -P - | sed -n 's/^number \([0-9]\{1,\}\)$/\1/p'
}
names @default @system-service | numbers >"$work/numbers"
if [ "$(wc -l <"$work/numbers")" -gt 100 ]; then
	program filters service "$work/numbers"
	serves 'filters: the engine serves a service' service "$work/numbers"
else
	skip 'filters: SystemCallFilter=@system-service no systemd-analyze or compiler here'
fi
finish
