#!/bin/bash
# SPDX-License-Identifier: MIT
#
# rewrite.sh: lets SPIN try every order of the steps of rewrite.pml
#
# First the protocol as it is, without an error; then each protection taken away,
# which must give one: else the model says nothing.
# spin.sh says what it needs and which variables it reads.
set -u
MODEL=rewrite
PAN=
STEPS=3000000
. "$(dirname "$0")/spin.sh"

try clones right -DNO_CHILD
try child right -DNO_CLONES
try both right

try no-ref wrong -DNO_REF
try no-open wrong -DNO_OPEN
try no-census wrong -DNO_CENSUS
try no-release wrong -DNO_RELEASE
try shown-at-once wrong -DSHOWN_AT_ONCE
try release-first wrong -DRELEASE_FIRST
try child-keeps-spares wrong -DCHILD_KEEPS_SPARES
exit $bad
