# SPDX-License-Identifier: MIT
"""What the benchmarks of the Python package share: processes, medians, one table.

Each way of doing a thing runs in an interpreter of its own, started anew, and says its
seconds as a line of JSON. Ours and the rivals take turns, `ROUNDS` times, so that what the
machine does meanwhile hits all alike.
"""

import json
import os
import statistics
import subprocess
import sys

ROUNDS = int(os.environ.get("ROUNDS", "5"))
LIMIT = int(os.environ.get("LIMIT", "600"))  # seconds for one of them


def say(**figures):
    """In the interpreter that measures: the figures of this round."""
    print(json.dumps(figures), flush=True)


def measure(script, ways, under_shim=(), prefix=()):
    """{way: [figures of each round]} of `script WAY`, the ways by turns."""
    results = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way in ways:
            shim = ["-m", "cowshed", "run", "--"] if way in under_shim else []
            command = [*prefix, sys.executable, *shim, script, way]
            try:
                run = subprocess.run(command, capture_output=True, text=True, check=False,
                                     timeout=LIMIT)
            except subprocess.TimeoutExpired:
                print(f"  {way}: not done in {LIMIT} s", file=sys.stderr)
                continue
            lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
            if run.returncode or not lines:
                reason = (run.stderr.strip().splitlines() or ["no output"])[-1]
                print(f"  {way}: failed ({run.returncode}): {reason}", file=sys.stderr)
                continue
            results[way].append(json.loads(lines[-1]))
    return results


def table(title, results, figure, ours, unit="ms", scale=1e3):
    """One line a way: its median, its spread, and how many times ours that is."""
    rows = {way: [r[figure] for r in rounds if figure in r] for way, rounds in results.items()}
    base = statistics.median(rows[ours]) if rows.get(ours) else float("nan")
    print(f"\n{title} ({unit}; median of {ROUNDS}, least to most; times ours)")
    for way, values in rows.items():
        if not values:
            print(f"  {way:34} failed")
            continue
        middle = statistics.median(values)
        print(f"  {way:34} {middle * scale:12.3f}   {min(values) * scale:.3f} to "
              f"{max(values) * scale:.3f}   {middle / base:10.1f} x")
