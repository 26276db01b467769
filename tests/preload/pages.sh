#!/bin/bash
# SPDX-License-Identifier: MIT
#
# A block behaves as anonymous memory: advice, protections, remapping, and the
# kernel's own reads and writes, before forks and after them.
. "$(dirname "$0")/lib.sh"

program advice
program protect
program remap
program kernel_io
finish
