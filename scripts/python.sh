#!/bin/bash
# SPDX-License-Identifier: MIT
#
# python.sh [MODULE...]: the first Python of 3.11 or newer that has these modules; with
# "include", the folder of its Python.h. Exit status 1: there is none. $PYTHON is asked first,
# then the environment of the tests (python-env.sh), then what the system calls python3.
set -u
looks='
import importlib, os, sys, sysconfig
if sys.version_info < (3, 11):
    sys.exit(1)
answer = sys.executable
for name in sys.argv[1:]:
    if name == "include":
        answer = sysconfig.get_path("include")
        if not os.path.exists(answer + "/Python.h"):
            sys.exit(1)
    else:
        importlib.import_module(name)
print(answer)
'
for python in ${PYTHON:+"$PYTHON"} build/venv/bin/python python3 /usr/bin/python3; do
	"$python" -c "$looks" "$@" 2>/dev/null && exit
done
exit 1
