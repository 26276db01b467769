# SPDX-License-Identifier: MIT
"""The command `cowshed`, which is installed with the package.

    cowshed ARGUMENT...                     this process becomes the command
    python -m cowshed ARGUMENT...           the same, except for these two:
    python -m cowshed run [OPTION...] SCRIPT|-m MODULE|-c CODE [ARGUMENT...]
                                            this interpreter, under the shim
    python -m cowshed profile [OPTION...] SCRIPT|-m MODULE|-c CODE [ARGUMENT...]
                                            the same, and a page about its memory

`run` and `profile` take their own options first. All words after them are arguments of the
interpreter. So `python -m cowshed run script.py` starts under the shim what `python script.py`
starts without it.
The interpreter and the packages are the same.
"""

import os
import sys

COMMAND = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "cowshed")
# Options of `cowshed run` with a value, which may be the next word, and options without one.
# The command itself checks them.
WITH_VALUE = ("--threshold", "--backing", "--copies", "--option", "--output")
ALONE = ("--report", "--help")


def command():
    """The entry point `cowshed`. Never returns: this process becomes the command."""
    become(sys.argv[1:])


def become(arguments):
    """Executes the command in this process. Exits with a message if that fails."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execv(COMMAND, ["cowshed", *arguments])
    except OSError as error:
        sys.exit(f"cowshed: can't run the command: {error}. Install the package again.")


def own_options(words):
    """How many of the first words are options of `cowshed run`, or values of these."""
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
    """What `python -m cowshed` does with its arguments. Never returns."""
    if arguments[:1] not in (["run"], ["profile"]):
        become(arguments)
    count = 1 + own_options(arguments[1:])
    ours, theirs = arguments[:count], arguments[count:]
    if theirs[:1] == ["--"]:
        theirs = theirs[1:]
    # Without a program the command itself prints help, or what is missing.
    become(ours + (["--", sys.executable, *theirs] if theirs else []))


if __name__ == "__main__":
    main(sys.argv[1:])
