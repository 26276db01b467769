#!/bin/bash
# SPDX-License-Identifier: MIT
#
# moment.sh: lets SPIN try every order of the steps of moment.pml
#
# First the protocol as it is, without an error; then each protection taken away,
# which must give one: else the model says nothing.
# spin.sh says what it needs and which variables it reads.
set -u
MODEL=moment
PAN=
STEPS=3000000
. "$(dirname "$0")/spin.sh"

try moment right
try more right -DREADS=4

try answer-first wrong -DANSWER_FIRST
try no-look wrong -DNO_LOOK
try not-over wrong -DNOT_OVER
try no-limit wrong -DNO_LIMIT
exit $bad
