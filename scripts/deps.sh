#!/bin/bash
# SPDX-License-Identifier: MIT
#
# deps.sh [check|demo|programs...]: installs missing packages for these goals, by default check and
# demo. NO_INSTALL=1 only names them. scripts/deps.txt lists them.
set -u
goals=" ${*:-check demo} "
goals=${goals//check-/check check-} goals=${goals//bench/demo bench} goals=${goals//check-programs/programs}
case $goals in *' stress '* | *' soak '* | *' lint '*) goals+='check ' ;; esac
clang_has() { ls "$(clang -print-resource-dir)"/lib/linux/$1; }
header() { printf '#include <%s>\n' "$1" | gcc -E -x c - ; }
library() { gcc -print-file-name="$1" | grep /; }
any_numpy() { python3 -c 'import numpy' || system_python 'import numpy'; }
system_python() { /usr/bin/python3 -c "$1"; } # not a pyenv's or a conda's
python=python$(system_python 'import sys; print("%d.%d" % sys.version_info[:2])' 2>&-)
table=$(grep -v '^#' scripts/deps.txt)

look() { # sets must and may
	local what test package needed for goal wanted
	must=() may=()
	while IFS='|' read -r what test package needed for; do
		[ -n "$what" ] || continue
		wanted=
		for goal in $for; do
			case $goals in *" $goal "*) wanted=1 ;; esac
		done
		[ -n "$wanted" ] || continue
		eval "$test" >/dev/null 2>&1 && continue
		package=${package// /} package=${package//\$python/$python}
		[ "${needed// /}" = must ] && must+=("$package") || may+=("$package")
	done <<<"$table"
}

# Ends the script if packages can't be installed. The status is 1 if a "must" is among them.
give_up() {
	[ ${#must[@]} -eq 0 ] || echo "deps: $1; install these (Debian's names): ${must[*]}"
	[ ${#may[@]} -eq 0 ] || echo "deps: $1; optional (Debian's names): ${may[*]}"
	exit "$((${#must[@]} > 0))"
}

look
[ $((${#must[@]} + ${#may[@]})) -gt 0 ] || exit 0
[ -z "${NO_INSTALL:-}" ] || give_up 'NO_INSTALL is set'
command -v apt-get >/dev/null || give_up 'there is no apt-get'
[ "$(id -u)" -eq 0 ] && sudo= || sudo=sudo
[ -z "$sudo" ] || command -v sudo >/dev/null || give_up 'installing needs root or sudo'

apt() { $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" >/dev/null; }
add() { apt install -y --no-install-recommends "$@"; }
echo "deps: installing ${must[*]} ${may[*]}"
# If the package lists are old they are fetched. An unknown name must not stop the others.
if ! add "${must[@]}" "${may[@]}" 2>/dev/null; then
	apt update || echo "deps: 'apt-get update' failed; run it by hand to see why"
	add "${must[@]}" "${may[@]}" ||
		for package in "${must[@]}" "${may[@]}"; do add "$package"; done
fi; look
[ $((${#must[@]} + ${#may[@]})) -eq 0 ] || give_up 'apt-get could not install all'
