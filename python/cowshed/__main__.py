# SPDX-License-Identifier: MIT
"""The command that came with the package.

    cowshed ARGUMENT...                     this process becomes the command
    python -m cowshed ARGUMENT...           the same, but for `run`:
    python -m cowshed run [OPTION...] SCRIPT|-m MODULE|-c CODE [ARGUMENT...]
                                            this interpreter, under the shim

`run` takes its own options, and all that follows is what `python` would be given. So a script
that is started by `python script.py` is started under the shim by
`python -m cowshed run script.py`, by the same interpreter and with the same packages.
"""

import os
import sys

COMMAND = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "cowshed")
# Those of `cowshed run` that have a value, maybe as the next word; and those that don't.
# The command itself knows which are good.
WITH_VALUE = ("--threshold", "--backing", "--copies", "--option")
ALONE = ("--report", "--help")


def command():
    """The entry point `cowshed`."""
    become(sys.argv[1:])


def become(arguments):
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execv(COMMAND, ["cowshed", *arguments])
    except OSError as error:
        sys.exit(f"cowshed: the command can't be run: {error}. Is the package whole?")


def own_options(words):
    """How many of the words, from the first, are options of `cowshed run`."""
    count = 0
    while count < len(words):
        word = words[count]
        name, equals, _ = word.partition("=")
        if word == "--":
            return count
        if word == "-o" or not equals and _begins(name, WITH_VALUE):
            count += 2
        elif word == "-h" or word.startswith("-o") or _begins(name, WITH_VALUE + ALONE):
            count += 1
        else:
            break
    return min(count, len(words))


def _begins(name, options):
    return len(name) > 2 and any(option.startswith(name) for option in options)


def main(arguments):
    if arguments[:1] != ["run"]:
        become(arguments)
    count = 1 + own_options(arguments[1:])
    ours, theirs = arguments[:count], arguments[count:]
    if theirs[:1] == ["--"]:
        theirs = theirs[1:]
    # Without a program the command says what is wrong, or gives help.
    become(ours + (["--", sys.executable, *theirs] if theirs else []))


if __name__ == "__main__":
    main(sys.argv[1:])
