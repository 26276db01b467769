#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Programs under the shim that a kernel or a processor may well break: forks, freed and unmapped
# memory, threads that heal frozen memory on the shim's own stack (safe_points), old signal
# handlers. tests/preload runs all of them.
THRESHOLDS=${THRESHOLDS:-65536}
. "$(dirname "$0")/../preload/lib.sh"
for name in zero realloc forks descendants idle_threads safe_points signals; do
	program $name
done
finish
