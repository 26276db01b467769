#!/bin/bash
# SPDX-License-Identifier: MIT
#
# check-gpu.sh: the CUDA tests on the machine's own driver and GPU instead of the
# reference driver, then under compute-sanitizer where that is and works. Tests that can't
# do without the reference driver say so themselves ("skip NAME ..."). What was run goes
# to docs/gpu.md.
#
# Needs no compiler, package or make: copied beside a build of the same architecture
# (bin/, lib/ and tests/ of build/plain) it runs there, BUILD=/copied/plain. T=text: only
# programs with it in their name. LIMIT: seconds for each program (300).
# COWSHED_CUDA_DRIVER: another driver than libcuda.so.1. STRICT=1: no GPU is a failure.
set -u
export LC_ALL=C COWSHED_CUDA_DRIVER=${COWSHED_CUDA_DRIVER:-libcuda.so.1}
build=$(cd "${BUILD:-build/plain}" && pwd) || exit 1
limit=${LIMIT:-300}
unset LD_PRELOAD COWSHED_OPTIONS
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT

uname -srm
"$build/bin/cowshed" doctor >"$out" 2>&1
grep -aiE -A4 'cuda|device [0-9]' "$out"
if ! grep -aq 'CUDA driver: .* [1-9][0-9]* device' <(tr -s '\n ' ' ' <"$out"); then
	echo 'check-gpu: no CUDA driver, or no device in it'
	[ "${STRICT:-0}" = 1 ] && exit 1
	exit 77
fi
command -v nvidia-smi >/dev/null &&
	nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader

programs=0 bad=0 passed=0 skipped=0
# one NAME COMMAND...: runs it, adds it up, and shows all of it if it failed
one() {
	local name=$1 start=$SECONDS status checks failed
	shift
	timeout -k 10 "$limit" "$@" >"$out" 2>&1 </dev/null
	status=$?
	read -r checks failed < <(awk '
		/^[0-9]+%: Checks:/ { gsub(",", ""); c += $3; f += $5 + $7 }
		END { print c + 0, f + 0 }' "$out")
	programs=$((programs + 1))
	passed=$((passed + checks - failed))
	skipped=$((skipped + $(grep -ac '^skip ' "$out")))
	if [ "$status" -eq 0 ] && [ "$failed" -eq 0 ] && [ "$checks" -gt 0 ]; then
		printf 'ok      %-40s %3d tests  %d s\n' "$name" "$checks" $((SECONDS - start))
		grep -a '^skip ' "$out" | sed 's/^/          /'
		return
	fi
	bad=$((bad + 1))
	[ "$status" -ne 124 ] || echo "not done after $limit s" >>"$out"
	printf 'not ok  %-40s %d of %d tests, exit status %d:\n' \
		"$name" "$failed" "$checks" "$status"
	tail -n 60 "$out"
}

tests=()
for t in "$build"/tests/cuda/test_* "$build"/tests/hostile/test_cuda; do
	case ${t#"$build"/tests/} in *.* | cuda/test_driver*) ;; *"${T:-}"*) [ ! -x "$t" ] || tests+=("$t") ;; esac
done
for t in "${tests[@]}"; do
	one "${t#"$build"/tests/}" "$t"
done

# The sanitizer sees the process that it starts, so tests run without children of theirs:
# not those of starting, nor those whose processes each start the driver. It refuses some
# devices and kernels altogether, which is found out first.
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
export CK_FORK=no CK_TIMEOUT_MULTIPLIER=10
first=$build/tests/cuda/test_memory_trace
if [ -n "$sanitizer" ] && [ -x "$first" ]; then
	if timeout -k 10 "$limit" "$sanitizer" --error-exitcode 1 "$first" >"$out" 2>&1; then
		for t in "${tests[@]}"; do
			case ${t##*/} in test_loading | test_share) continue ;; esac
			one "memcheck ${t#"$build"/tests/}" "$sanitizer" --error-exitcode 1 "$t"
		done
		for tool in racecheck synccheck; do
			case cuda/test_copy in *"${T:-}"*) one "$tool cuda/test_copy" "$sanitizer" \
				--tool "$tool" --error-exitcode 1 "$build/tests/cuda/test_copy" ;; esac
		done
	else
		echo 'skip    compute-sanitizer does not work here:'
		tail -n 5 "$out"
	fi
else
	echo 'skip    compute-sanitizer is not installed'
fi
echo "$programs programs, $bad failed; $passed tests passed, $skipped left out"
[ "$programs" -gt 0 ] && [ "$bad" -eq 0 ]
