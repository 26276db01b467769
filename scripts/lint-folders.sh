#!/bin/bash
# SPDX-License-Identifier: MIT
#
# lint-folders.sh: the order of the folders in core/. A folder may include headers of the folders
# before it and use their symbols, never those of the folders behind it. Checked on includes and
# on the objects in $BUILD. The one symbol that points up is cow__hooks, a table that core/engine.c
# fills (core/memory/state.h). Inside of a folder, too, includes go in one direction: NAME.h and
# NAME.c count as one, and no two of them may lead to each other (scripts/lint-cycles.py, in other
# folders, too). Tuning constants are in core/policy.
set -u
export LC_ALL=C
obj=${BUILD:-build/plain}/obj/core
folders='base policy memory cow storage program fork .' # from the ground up; . is core/ itself
bad=$(mktemp) && trap 'rm -f "$bad"' EXIT
rule() { sed "s|^|lint: $1: |" | tee -a "$bad"; }

for folder in core/*/; do
	case " $folders " in *" $(basename "$folder") "*) ;; *) echo "$folder" ;; esac
done | rule 'a folder without a place in scripts/lint-folders.sh'
for folder in $folders; do
	[ "$folder" = . ] || [ -s "core/$folder/README.md" ] || echo "core/$folder"
done | rule 'a folder without a README.md'

# Both: lines "FROM-FOLDER TO-FOLDER WHERE WHAT" that point up are violations.
upward() {
	awk -v folders="$folders" '
	BEGIN { n = split(folders, r, " "); for (i = 1; i <= n; i++) rank[r[i]] = i }
	{ uses++; if (rank[$2] > rank[$1]) print $3 " uses " $4 }
	END { if (!uses) print "nothing was found to check" }'
}
grep -HoE '^#include "core/[^"]*"' core/*.[ch] core/*/*.[ch] | tr -d '"' | sed 's/:#include / /' |
	awk 'function folder(path, p) { return split(path, p, "/") == 3 ? p[2] : "." }
		{ print folder($1), folder($2), $1, $2 }' | upward | rule 'folders, includes'
for o in "$obj"/*.o "$obj"/*/*.o; do
	nm "$o" | awk -v o="${o#"$obj"/}" '{ print $(NF - 1), $NF, o }'
done | awk 'function folder(path, p) { return split(path, p, "/") == 2 ? p[1] : "." }
	$1 == "U" { uses[++n] = $2 " " $3; next }
	$1 ~ /[A-Z]/ { home[$2] = folder($3) }
	END {
		for (i = 1; i <= n; i++) {
			split(uses[i], u, " ")
			if (u[1] in home && u[1] != "cow__hooks")
				print folder(u[2]), home[u[1]], "core/" u[2], u[1]
		}
	}' | upward | rule 'folders, objects'

scripts/lint-cycles.py memfd quiet core core/*/ share tensor cuda preload cli bench 2>&1 | rule 'files in a circle'

# A number that could be another one, with the engine still right, stands in core/policy alone.
grep -nE '^#define ([A-Z0-9_]*_)?(NS|LEAST|MOST|SHARE|TRIES|LOOKS|STEPS?|SLICE) ' core/*.[ch] core/*/*.[ch] preload/*.[ch] |
	grep -vE '^core/(base|policy)/' | rule 'a constant of policy outside of core/policy/constants.h'

echo "lint: $(($(wc -w <<<"$folders") - 1)) folders of core/, $(wc -l <"$bad") violations"
[ ! -s "$bad" ]
