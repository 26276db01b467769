#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Finds files of C that include each other in a circle.

    scripts/lint-cycles.py FOLDER...

A module is a pair NAME.h and NAME.c in one of the folders. A NAME.c without a header is a module
of its own, which nothing includes. Module A depends on module B if NAME.h or NAME.c of A includes
the header of B, with its folder spelt from the root. Prints circles, one a line, until each
include that is a part of any circle has been in one of them. So nothing is printed if each
folder, and all of them together, can be read from the ground up.
"""

import collections
import pathlib
import re
import sys

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)\.h"', re.MULTILINE)

# Folders that have circles still: so many of their includes are a part of one. The number may
# only fall, and a folder without any leaves this list for good.
LEFT = {}


def read(folders):
    """The modules, each with the modules that it depends on."""
    needs = {}
    for folder in map(pathlib.PurePosixPath, folders):
        for file in sorted(pathlib.Path(folder).glob("*.[ch]")):
            name = str(folder / file.stem)
            found = INCLUDE.findall(file.read_text(encoding="utf-8"))
            needs.setdefault(name, set()).update(set(found) - {name})
    return {name: sorted(on & needs.keys()) for name, on in needs.items()}


def way(needs, start, end):
    """The shortest way from a module to another, or None."""
    before, todo = {start: None}, collections.deque([start])
    while todo:
        here = todo.popleft()
        if here == end:
            steps = []
            while here:
                steps.append(here)
                here = before[here]
            return steps[::-1]
        for there in needs[here]:
            if there not in before:
                before[there] = here
                todo.append(there)
    return None


def main(folders):
    needs = read(folders)
    if not needs:
        return "no files to check"
    seen, count, circles = set(), collections.Counter(), []
    for name in needs:
        for on in needs[name]:
            back = way(needs, on, name)
            if not back:
                continue
            count[str(pathlib.PurePosixPath(name).parent)] += 1
            if (name, on) not in seen:
                circle = [name, *back]
                seen.update(zip(circle, circle[1:]))
                circles.append(circle)
    bad = [f"{folder}: {count[folder]} includes in circles, but LEFT has {LEFT[folder]}"
           for folder in map(str, map(pathlib.PurePosixPath, folders))
           if count[folder] < LEFT.get(folder, 0)]
    for circle in circles:
        folder = str(pathlib.PurePosixPath(circle[0]).parent)
        if count[folder] > LEFT.get(folder, 0):
            bad.append(f"{folder}, {count[folder]} includes: {' -> '.join(circle)}")
    print(*bad, sep="\n", end="\n" if bad else "")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
