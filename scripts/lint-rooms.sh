#!/bin/bash
# SPDX-License-Identifier: MIT
#
# lint-rooms.sh: the order of the rooms in core/. A room may include headers of the rooms before
# it and use their symbols, never those of the rooms behind it. Checked on includes and on the
# objects in $BUILD. The one symbol that points up is cow__hooks, a table that core/engine.c
# fills (core/memory/state.h). Inside of a room, too, includes go in one direction: NAME.h and
# NAME.c count as one, and no two of them may lead to each other (scripts/lint-cycles.py, in other
# folders, too). Tuning constants are in core/policy.
set -u
export LC_ALL=C
obj=${BUILD:-build/plain}/obj/core
rooms='base policy memory cow storage program fork .' # from the ground up; . is core/ itself
bad=$(mktemp) && trap 'rm -f "$bad"' EXIT
rule() { sed "s|^|lint: $1: |" | tee -a "$bad"; }

for room in core/*/; do
	case " $rooms " in *" $(basename "$room") "*) ;; *) echo "$room" ;; esac
done | rule 'a room without a place in scripts/lint-rooms.sh'
for room in $rooms; do
	[ "$room" = . ] || [ -s "core/$room/README.md" ] || echo "core/$room"
done | rule 'a room without a README.md'

# Both: lines "FROM-ROOM TO-ROOM WHERE WHAT" that point up are violations.
upward() {
	awk -v rooms="$rooms" '
	BEGIN { n = split(rooms, r, " "); for (i = 1; i <= n; i++) rank[r[i]] = i }
	{ uses++; if (rank[$2] > rank[$1]) print $3 " uses " $4 }
	END { if (!uses) print "nothing was found to check" }'
}
grep -HoE '^#include "core/[^"]*"' core/*.[ch] core/*/*.[ch] | tr -d '"' | sed 's/:#include / /' |
	awk 'function room(path, p) { return split(path, p, "/") == 3 ? p[2] : "." }
		{ print room($1), room($2), $1, $2 }' | upward | rule 'rooms, includes'
for o in "$obj"/*.o "$obj"/*/*.o; do
	nm "$o" | awk -v o="${o#"$obj"/}" '{ print $(NF - 1), $NF, o }'
done | awk 'function room(path, p) { return split(path, p, "/") == 2 ? p[1] : "." }
	$1 == "U" { uses[++n] = $2 " " $3; next }
	$1 ~ /[A-Z]/ { home[$2] = room($3) }
	END {
		for (i = 1; i <= n; i++) {
			split(uses[i], u, " ")
			if (u[1] in home && u[1] != "cow__hooks")
				print room(u[2]), home[u[1]], "core/" u[2], u[1]
		}
	}' | upward | rule 'rooms, objects'

scripts/lint-cycles.py memfd quiet core core/*/ share tensor cuda preload cli bench 2>&1 | rule 'files in a circle'

# A number that could be another one, with the engine still right, stands in core/policy alone.
grep -nE '^#define ([A-Z0-9_]*_)?(NS|LEAST|MOST|SHARE|TRIES|LOOKS|STEPS?|SLICE) ' core/*.[ch] core/*/*.[ch] |
	grep -vE '^core/(base|policy)/' | rule 'a constant of policy outside of core/policy/constants.h'

echo "lint: $(($(wc -w <<<"$rooms") - 1)) rooms of core/, $(wc -l <"$bad") violations"
[ ! -s "$bad" ]
