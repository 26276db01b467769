#!/bin/bash
# SPDX-License-Identifier: MIT
#
# python-env.sh: build/venv, a Python with the packages of python/requirements-test.txt, for
# the tests and the lint. Silent if it is there. It is a help and no need: without it the
# tests take what Pythons the system has, and skip what these can't do. So a machine without a
# package index is told so once, and all goes on. NO_INSTALL=1: nothing is fetched.
#
# python-env.sh LIST VENV: another one, of another list.
set -u
cd "$(dirname "$0")/.." || exit 1
wanted=${1:-python/requirements-test.txt} venv=${2:-build/venv}
# Of another list, or half done: made anew.
cmp -s "$wanted" "$venv/made-of" && exit 0
without() { echo "python-env: $1: without $venv; what the system has is used"; exit 0; }
[ -z "${NO_INSTALL:-}" ] || without 'NO_INSTALL is set'

rm -rf "$venv"
python=$(scripts/python.sh ensurepip venv) ||
	without 'no Python of 3.11 or newer with venv (python3-venv)'

echo "python-env: installing $(grep -c '^[a-z]' "$wanted") packages in $venv"
mkdir -p build && "$python" -m venv "$venv" || without 'venv failed'
# Who looks for compiled modules has a place of his own for them (tests/python/run.sh).
add() {
	"$venv/bin/python" -m pip --disable-pip-version-check install -q --no-compile --prefer-binary \
		--retries 1 --timeout 20 "$@" 2>"$venv/pip.log"
}
# The first of them shows whether there is an index.
if ! add "$(grep -m 1 '^[a-z]' "$wanted")"; then
	grep . "$venv/pip.log" | tail -n 1
	rm -rf "$venv"
	without 'no package index'
fi
# A package that is not to be had here must not keep the others away.
add -r "$wanted" || for package in $(grep '^[a-z]' "$wanted"); do
	add "$package" || echo "python-env: without $package"
done
cp "$wanted" "$venv/made-of"
