#!/bin/bash
# SPDX-License-Identifier: MIT
#
# inside.sh NAME PYTHON: runs in another system, whose /check has the wheel, the Debian packages and
# a program that was compiled elsewhere. Nothing is compiled or fetched here. scripts/check-roots.sh
name=$1 python=$2
export PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C HOME=/tmp
cd /check || exit 1
says() { # TEST EXPECTED COMMAND...: its last line
	test=$1 expected=$2
	shift 2
	"$@" >out 2>&1
	if [ $? -eq 0 ] && tail -n 1 out | grep -Exq "$expected"; then echo "ok $name: $test"; else
		echo "not ok $name: $test ($(tail -n 3 out | tr '\n' ' '))"
	fi
}
command -v cc >/dev/null && echo "not ok $name: there is a compiler"

# In a system without a package manager's state the packages were only unpacked.
[ ! -e debs ] || says 'dpkg -i' 0 bash -c 'dpkg -i debs/*.deb >&2; echo $?'
ldconfig
version=$(/usr/bin/cowshed --version)
says 'the command of the package' "${version//[()]/.}" cowshed --version
# Under qemu-user the engine copies: there is no advice that it follows.
case $name in
*arm64*) own=67108864 froze=0 ;;
*) own=4096 froze=67108864 ;;
esac
says 'a program with the library' "of 67108864 bytes, b has $own of its own" ./hello
says 'fork with the library' "the fork froze $froze bytes and copied 0" ./fork
says 'cowshed run, of the package' done cowshed run -- sh -c 'ls / >/dev/null && echo done'

# Under qemu-user pip hangs now and then. There the wheel is unpacked, which is what pip does.
rm -rf venv
case $name in
*arm64*)
	says 'unpack the wheel' done bash -c "'$python' -m venv --without-pip venv && site=\$(echo \
		venv/lib/python3*/site-packages) && '$python' -m zipfile -e cowshed-*.whl \"\$site\" &&
		chmod +x \"\$site/cowshed/bin/cowshed\" && echo done"
	;;
*)
	says 'pip install, without index and compiler' done bash -c "'$python' -m venv venv &&
		venv/bin/python -m pip install --no-index --no-compile ./cowshed-*.whl && echo done"
	;;
esac
# Python 3.12 warns of a fork beside the engine's helper.
venv/bin/python -B -W ignore::DeprecationWarning inside.py "$name: wheel"
