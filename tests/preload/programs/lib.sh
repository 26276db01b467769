# SPDX-License-Identifier: MIT
#
# lib.sh: what the slow scripts share; sourced, never run.
. "$(dirname "$0")/../lib.sh"
limit=1500
must_succeed=1 # what fails by itself proves nothing
