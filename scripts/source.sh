#!/bin/bash
# SPDX-License-Identifier: MIT
#
# source.sh SUITE PACKAGE [upstream]: gets the sources of a Debian package, as Debian builds it, into
# build/sources/PACKAGE, and prints that folder; with "upstream" without Debian's patches. It has
# package lists of its own in build/sources, so the machine's apt stays as it is.
# Exit status 1: they can't be had; a sentence says why.
set -eu
suite=$1 package=$2 patches=${3:+--skip-patches}
work=$PWD/build/sources
tree=$work/$package

[ -f "$tree/.complete" ] && echo "$tree" && exit
MIRROR=$(scripts/mirror.sh)
for tool in apt-get dpkg-source; do
	command -v $tool >/dev/null || {
		echo "source: no $tool (Debian: apt dpkg-dev)" >&2
		exit 1
	}
done
apt=$work/apt-$suite
mkdir -p "$apt"/{lists/partial,cache/archives/partial,state,etc}
keys=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb-src [signed-by=$keys] $MIRROR $suite main" >"$apt/etc/sources.list"
: >"$apt/state/status"
options=(-qq -o "Dir::Etc::SourceList=$apt/etc/sources.list" -o Dir::Etc::SourceParts=/dev/null
	-o "Dir::State::Lists=$apt/lists" -o "Dir::Cache=$apt/cache"
	-o "Dir::State::Status=$apt/state/status" -o APT::Sandbox::User=)
[ -f "$apt/.updated" ] || { apt-get "${options[@]}" update >&2 && touch "$apt/.updated"; } || {
	echo "source: can't read the package lists of $suite" >&2
	exit 1
}
rm -rf "$tree" "$tree.get"
mkdir -p "$tree.get"
(cd "$tree.get" && apt-get "${options[@]}" source --download-only "$package" &&
	dpkg-source --no-check $patches -x ./*.dsc tree) >"$work/$package.log" 2>&1 || {
	echo "source: can't get $package of $suite:" >&2
	tail -n 5 "$work/$package.log" >&2
	exit 1
}
mv "$tree.get/tree" "$tree"
rm -rf "$tree.get"
touch "$tree/.complete"
echo "$tree"
