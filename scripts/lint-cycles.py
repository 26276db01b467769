#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""lint-cycles.py [--order ORDER] [--objects FOLDER] FOLDER...: files that need each other

A FOLDER with an __init__.py is a package of Python. A module needs those that it imports, also in
its functions and for type checkers. The packages around it do not count.

Other folders have files of C, which are looked at together. NAME.c and NAME.h count as one, which
needs those whose headers it includes. With --objects it also needs those whose symbols it uses.

--order    the order of a package's parts, from the ground up: its folders and files. No module may
           import one of a later part. Of parts in one word, with commas, none may import another.
           Modules without a part are above all. Each folder is a part.
--objects  where the objects are: that of memfd/map.c is FOLDER/memfd/map.o

Prints a line for each circle and each import that points up. Status 1: there is one.
"""

import argparse
import ast
import pathlib
import re
import subprocess


def python_needs(folder, order):
    """{module: the modules that it needs}, and the rules of the order that it breaks."""
    files = {}
    for path in sorted(folder.rglob("*.py*")):
        if path.suffix in (".py", ".pyi"):
            name = ".".join(path.relative_to(folder.parent).with_suffix("").parts)
            files.setdefault(name.removesuffix(".__init__"), []).append(path)
    needs = {name: {found for path in paths for found in imports(name, path, files)} - {name}
             for name, paths in files.items()}
    rank = {part: i for i, word in enumerate(order) for part in word.split(",")}
    part = {name: (name.split(".") + [""])[1] for name in files}
    wrong = [f"the part {part[name]} of {name} has no place in the order" for name in files
             if order and name.count(".") > 1 and part[name] not in rank]
    for name, found in needs.items():
        if part[name] in rank:
            wrong += [f"{name} imports {other}, which is not in a part below" for other in found
                      if part[other] != part[name]
                      and rank.get(part[other], len(rank)) >= rank[part[name]]]
    return needs, wrong


def imports(name, path, files):
    """Yields the modules of `files` that a module imports."""
    package = name.split(".")[: None if path.stem == "__init__" else -1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            base = ".".join([*above, *filter(None, [node.module])])
            for alias in node.names:
                yield from [x for x in (f"{base}.{alias.name}", base) if x in files][:1]


def c_needs(folders, objects):
    """{file without its ending: the files that it needs}"""
    needs, home, used = {}, {}, []
    for path in sorted(path for folder in folders for path in folder.glob("*.[ch]")):
        text = path.read_text(encoding="utf-8")
        found = re.findall(r'^\s*#\s*include\s+["<]([^">]*)\.h[">]', text, re.M)
        needs.setdefault(str(path.with_suffix("")), set()).update(found)
    for path in (path for folder in folders if objects for path in (objects / folder).glob("*.o")):
        name = str(path.relative_to(objects)).partition(".")[0]
        for line in subprocess.check_output(["nm", path], text=True).splitlines():
            kind, symbol = line.split()[-2:]
            if kind == "U":
                used.append((name, symbol))
            elif kind.isupper():
                home[symbol] = name
    for name, symbol in used:
        needs.get(name, set()).add(home.get(symbol))
    return {name: {x for x in found if x in needs and x != name} for name, found in needs.items()}


def circles(needs, path=(), done=None):
    """Yields circles: if all of them are cut, no other is left."""
    done = set() if done is None else done
    for name in sorted(needs[path[-1]] if path else needs):
        if name in path:
            yield "a circle: " + " -> ".join([*path[path.index(name):], name])
        elif name not in done:
            yield from circles(needs, (*path, name), done)
            done.add(name)


parser = argparse.ArgumentParser(usage=__doc__)
parser.add_argument("--order", default="")
parser.add_argument("--objects", type=pathlib.Path)
parser.add_argument("folders", type=pathlib.Path, nargs="+")
options = parser.parse_args()
for folder in options.folders:
    files = [*folder.glob("*.[ch]"), *folder.glob("*.py")]
    if folder.is_absolute() or not folder.name or not files:
        parser.error(f"{folder}: no files to check, or not spelt from the root")
if options.objects and not [*options.objects.glob("**/*.o")]:
    parser.error(f"{options.objects}: no objects")
packages = {folder for folder in options.folders if (folder / "__init__.py").exists()}
lines = [*circles(c_needs(set(options.folders) - packages, options.objects))]
for folder in packages:
    needs, wrong = python_needs(folder, options.order.split())
    lines += [*sorted(wrong), *circles(needs)]
raise SystemExit("\n".join(lines) or 0)
