#!/bin/bash
# SPDX-License-Identifier: MIT
#
# PostgreSQL's own tests (make check) on a server that is built from its source package: a new
# cluster for each setting, and 200 files of SQL, up to 20 at a time, each by a forked process.
. tests/outside/lib.sh
command -v cc >/dev/null || skip 'there is no compiler'
as=()
if [ "$(id -u)" -eq 0 ]; then # the server refuses to run as root
	command -v runuser >/dev/null || skip 'there is no runuser'
	as=(runuser -u nobody --)
fi
tree=$(sources bookworm postgresql-15) || exit 77
if [ ! -f "$tree/built" ]; then
	(cd "$tree" && ./configure --without-readline --without-zlib --without-icu --prefix="$tree/to" &&
		make -j2 -s && make -j2 -s -C src/test/regress && touch built) \
		>"$work/build.log" 2>&1 ||
		skip "PostgreSQL can't be built: $(tail -n 1 "$work/build.log")"
fi
limit=900
sift() { sed -nE 's/^(test)? +([a-z_0-9.]+) +\.\.\. (ok|FAILED).*/\2 \3/p' "$1" | sort; }
[ -z "$quick" ] || settings=threshold=65536,mmap=65536
rm -rf "$tree/tmp_install" "$tree/src/test/regress/tmp_check"
[ ${#as[@]} -eq 0 ] || chown -R nobody "$tree" "$work"
cd "$tree/src/test/regress" || exit 1
compare 'make check' "${as[@]}" make -s check
[ $differing -gt 0 ] || [ "$(grep -c ' ok$' "$work/none.out")" -ge 100 ] ||
	skip "its tests can't run: $(tail -n 1 "$work/none.log")"
finish
