# SPDX-License-Identifier: MIT
#
# kernels-debian.sh: functions of kernels-fetch.sh that fetch and unpack Debian's packages; sourced,
# never run. $work is the folder, $arch the architecture, $release the suite of the programs.

# apt COMMAND...: an apt with lists of its own, for the architecture $arch
apt() {
	local own=$work/apt-$arch command=$1
	shift
	"$command" -qq -o Dir::Etc::sourcelist="$own/sources.list" -o Dir::Etc::sourceparts=/dev/null \
		-o Dir::State="$own" -o Dir::State::status="$own/status" -o Dir::Cache="$own" \
		-o APT::Architecture="$arch" -o APT::Architectures="$arch" -o APT::Sandbox::User= \
		-o Acquire::Languages=none "$@"
}

lists() {
	local own=$work/apt-$arch suite
	[ ! -e "$own/done" ] || return 0
	mkdir -p "$own/lists/partial" "$own/archives/partial"
	for suite in bullseye bookworm trixie trixie-backports sid; do
		echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $MIRROR $suite main"
	done >"$own/sources.list"
	: >"$own/status"
	apt apt-get update || die "'apt-get update' from $MIRROR failed"
	touch "$own/done"
}

# unpack FOLDER PACKAGE[/SUITE]... [-- PATTERN...]: only the files that match
unpack() {
	local folder=$1 names=() deb tmp
	shift
	while [ $# -gt 0 ] && [ "$1" != -- ]; do names+=("$1") && shift; done
	shift || :
	tmp=$(mktemp -d "$work/fetch-XXXXXX")
	(cd "$tmp" && apt apt-get download "${names[@]}") || die "could not fetch ${names[*]}"
	mkdir -p "$folder"
	for deb in "$tmp"/*.deb; do
		dpkg-deb --fsys-tarfile "$deb" | tar x -C "$folder" --keep-directory-symlink --wildcards "$@" 2>&1 |
			grep -vE 'Not found in archive|previous errors' || :
	done
	rm -rf "$tmp"
}

# What the first process needs, and for arm64 the libraries and tools of the tests.
root() {
	local folder=$work/$arch name
	rm -rf "$folder" && mkdir -p "$folder"/{usr,proc,sys,dev,tmp,run,mnt,var/tmp}
	for name in bin sbin lib lib64; do
		mkdir -p "$folder/usr/$name" && ln -s "usr/$name" "$folder/$name"
	done
	[ "$arch" = amd64 ] || unpack "$folder" $(printf "%s/$release " libc6 libc-bin libgcc-s1 bash \
		coreutils libtinfo6 libacl1 libattr1 libgmp10 libselinux1 libpcre2-8-0 mawk grep sed \
		diffutils findutils check libsubunit0 libsubunit-dev liburing2 liburing-dev libstdc++6)
	[ -e "$folder/bin/awk" ] || ln -s mawk "$folder/bin/awk"
	[ -e "$folder/bin/sh" ] || ln -s bash "$folder/bin/sh"
	unpack "$folder" "busybox-static/$release"
}
