#!/bin/bash
# SPDX-License-Identifier: MIT
#
# python-env.sh: makes build/venv, a Python with the packages of python/requirements-test.txt, for
# the tests and the lint. Prints nothing if it is there. It is optional: without it the tests use
# the Pythons of the system, and skip what these can't do. So on a machine without a package
# index the script says so, and succeeds. NO_INSTALL=1: nothing is fetched.
#
# python-env.sh LIST VENV: another environment, with the packages of another list.
set -u
cd "$(dirname "$0")/.." || exit 1
wanted=${1:-python/requirements-test.txt} venv=${2:-build/venv}
# If it is of another list, or not complete, it is made anew.
cmp -s "$wanted" "$venv/made-of" && exit 0
without() { echo "python-env: $1; the tests use the Pythons of the system, not $venv"; exit 0; }
[ -z "${NO_INSTALL:-}" ] || without 'NO_INSTALL is set'

rm -rf "$venv"
python=$(scripts/python.sh ensurepip venv) ||
	without 'there is no Python 3.11 or newer with venv (package python3-venv)'

echo "python-env: installing $(grep -c '^[a-z]' "$wanted") packages into $venv"
mkdir -p build && "$python" -m venv "$venv" || without "'$python -m venv $venv' failed"
# Tests that look for compiled modules have a place of their own for them (tests/python/run.sh).
add() {
	"$venv/bin/python" -m pip --disable-pip-version-check install -q --no-compile --prefer-binary \
		--retries 1 --timeout 20 "$@" 2>"$venv/pip.log"
}
# The first package shows whether there is an index.
if ! add "$(grep -m 1 '^[a-z]' "$wanted")"; then
	grep . "$venv/pip.log" | tail -n 1
	rm -rf "$venv"
	without 'there is no package index'
fi
# A package that can't be installed must not stop the others.
add -r "$wanted" || for package in $(grep '^[a-z]' "$wanted"); do
	add "$package" || echo "python-env: $package can't be installed; what needs it is skipped"
done
cp "$wanted" "$venv/made-of"
