#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The package as its users get it: pip makes it of an exported tree, whose path has a blank, in
# a new environment without an index; then of an sdist. It works on its own, the tree is as it
# was, and uninstalling leaves the environment as it was. The wheel of one CPython serves others.
set -u
root=$PWD build=$(cd "${BUILD:-build/plain}" && pwd) || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# Neither what was built here, nor what somebody set up for pip.
unset PYTHONPATH LD_PRELOAD COWSHED_OPTIONS PYTHONDONTWRITEBYTECODE BUILD MODE T
export PIP_CONFIG_FILE=/dev/null PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
	PIP_NO_CACHE_DIR=1 NO_INSTALL=1
# Machine code for devices takes two thirds of the time, and is made in the same way.
export NVCC=
bad=0
pass() { echo "ok install: $1"; }
fail() { # NAME [FILE...]
	bad=1
	echo "not ok install: $1"
	shift
	[ $# -eq 0 ] || sed 's/^/    /' "$@" | tail -n 40
}
succeeds() { # NAME COMMAND...
	local name=$1
	shift
	if "$@" >"$work/out" 2>&1; then pass "$name"; else
		fail "$name" "$work/out"
		return 1
	fi
}
alike() { if diff "$2" "$3" >"$work/out"; then pass "$1"; else fail "$1" "$work/out"; fi; }
listing() { (cd "$1" && find . -type d -printf '%P\n' -o -printf '%P %m %s %T@\n' | sort); }
sources() { (cd "$1" && find . -name '*.py' -o -name '*.pyi' -o -name py.typed | sort); }
names() { (cd "$1" && find . | sort); }

if ! python=$(scripts/python.sh ensurepip venv) || ! scripts/python.sh include >/dev/null; then
	echo 'skip install: no Python of 3.11 or newer with headers and venv'
	exit 77
fi

tree="$work/a tree"
mkdir "$tree"
if [ -e .git ]; then git ls-files -z -co --exclude-standard; else
	find . -path ./build -prune -o -type f -print0
fi | tar c --null --ignore-failed-read -T - | tar x -C "$tree"
"$python" -m venv "$work/env" || exit 1
bin=$work/env/bin
cd "$work" || exit 1
names env >names.before
listing "$tree" >tree.before
sources "$tree/python/cowshed" >sources.before

uses_it() { # FROM: what a user does, who has only the environment
	succeeds "$1: import" "$bin/python" -I -c 'import cowshed
assert cowshed.__version__ in "'"$version"'"
assert {line.split()[-1] for line in open("/proc/self/maps") if "/libcowshed.so" in line} == \
    {cowshed.__path__[0] + "/lib/libcowshed.so.0"}'
	succeeds "$1: cowshed" test "$(PATH=$bin:$PATH cowshed version | head -n 1)" = \
		"cowshed $version (library $version)"
	cat >script.py <<-'END'
		import cowshed, sys
		big = bytearray(64 << 20)
		maps = open("/proc/self/maps").read()
		assert f"{cowshed.__path__[0]}/lib/libcowshed-preload.so" in maps
		assert len({line.split()[-1] for line in maps.splitlines() if "/libcowshed.so" in line}) == 1
		print(sys.argv)
	END
	succeeds "$1: python -m cowshed run" test \
		"$("$bin/python" -m cowshed run script.py 1 '2 3')" = "['script.py', '1', '2 3']"
	succeeds "$1: cowshed run" test \
		"$("$bin/cowshed" run -- "$bin/python" script.py)" = "['script.py']"
	if "$bin/python" -m cowshed stat $$ >out 2>&1 || [ $? -ne 2 ]; then
		fail "$1: python -m cowshed stat" out
	else pass "$1: python -m cowshed stat"; fi
	sources "$("$bin/python" -I -c 'import cowshed; print(cowshed.__path__[0])')" >sources
	alike "$1: all modules and their types" sources.before sources
}
removed() {
	succeeds "$1: uninstall" "$bin/python" -m pip uninstall -y cowshed
	names env >names.after
	alike "$1: nothing is left" names.before names.after
}

version=$(awk '/^.define COW_VERSION_/ { printf "%s%s", s, $3; s = "." }' "$tree/include/cowshed.h")
if succeeds 'of the tree: pip install' "$bin/python" -m pip install "$tree/python"; then
	uses_it 'of the tree'
	succeeds 'of the tree: the tag' grep -qE '^Tag: cp311-abi3-linux_[a-z0-9_]+$' \
		"$bin"/../lib/python*/site-packages/cowshed-"$version".dist-info/WHEEL
	removed 'of the tree'
fi

mkdir sdist wheels
succeeds 'sdist' env -C "$tree/python" "$bin/python" -c \
	'import backend, sys; backend.build_sdist(sys.argv[1])' "$work/sdist"
listing "$tree" >tree.after
alike 'the tree is as it was' tree.before tree.after
# It has all of what is compiled. That this can be built was seen above; here make finds
# the objects that there are.
compiled=$(cd "$tree" && for f in */; do ! compgen -G "$f*.[ch]" >/dev/null || echo "${f%/}"; done |
	grep -vxE 'bench|examples|tests')
for f in $compiled python; do names "$tree/$f"; done >files.tree
rm -rf "$tree"
tar xf "sdist/cowshed-$version.tar.gz"
(cd "cowshed-$version" && for f in $compiled python; do names $f; done) >files.sdist
alike 'the sdist is whole' files.tree files.sdist
mkdir -p kept/build/plain/obj
cp -a "$root/build/kernels" kept/build
cp -a "$build"/obj/{memfd,quiet,core,share,tensor,cuda,preload,cli,python} kept/build/plain/obj
succeeds 'of the sdist: pip wheel' "$bin/python" -m pip wheel -w wheels \
	--config-settings build-dir="$work/kept" "sdist/cowshed-$version.tar.gz" || exit 1
if succeeds 'of the sdist: pip install' "$bin/python" -m pip install wheels/*.whl; then
	uses_it 'of the sdist'
	removed 'of the sdist'
fi

# Others that are here. Any of them is as good as none.
for other in python3.{11,12,13,14} "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[1-9]*/bin/python3; do
	id=$("$other" -c 'import platform as p, sys, sysconfig, venv
sysconfig.get_config_var("Py_GIL_DISABLED") and sys.exit(1); print(p.python_version())' 2>&-) &&
		case " ${seen:=$("$python" -V | cut -d' ' -f2)} " in *" $id "*) false ;; esac || continue
	seen+=" $id"
	succeeds "the same wheel in $id" eval 'rm -rf other && "$other" -m venv --without-pip other &&
		"$bin/python" -m pip --python other/bin/python install wheels/*.whl &&
		other/bin/python -m cowshed run -c "import cowshed; print(cowshed)"'
done
cd "$root" || exit 1
exit $bad
