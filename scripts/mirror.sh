#!/bin/sh
# SPDX-License-Identifier: MIT
#
# mirror.sh: prints the mirror from which Debian's packages come: MIRROR, or the one that the
# system's apt uses. Exit status 1: there is none.
[ -n "${MIRROR:-}" ] || MIRROR=$(apt-get indextargets --format '$(REPO_URI)' 2>/dev/null |
	grep -E '/debian/?$' | head -n 1)
[ -n "$MIRROR" ] || {
	echo "mirror: apt knows no mirror of Debian; name one by MIRROR=, and see that" \
		"debian-archive-keyring is installed" >&2
	exit 1
}
echo "$MIRROR"
