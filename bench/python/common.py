# SPDX-License-Identifier: MIT
"""What the benchmarks of the Python package share: processes, medians, one table.

Each way of doing a thing runs in an interpreter of its own, started anew, and says its
seconds as a line of JSON. Ours and the rivals take turns, `ROUNDS` times, so that what the
machine does meanwhile hits all alike.
"""

import json
import os
import signal
import statistics
import subprocess
import sys

ROUNDS = int(os.environ.get("ROUNDS", "5"))
LIMIT = int(os.environ.get("LIMIT", "600"))  # seconds for one of them


def say(**figures):
    """In the interpreter that measures: the figures of this round."""
    print(json.dumps(figures), flush=True)


def ended(command, limit):
    """(status, output, errors) of a command, whose processes all end with it: some rivals hang."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True)
    try:
        out, err = process.communicate(timeout=limit)
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    return process.returncode, out, err


def measure(script, ways, under_shim=(), prefix=(), limits=None):
    """{way: [figures of each round]} of `script WAY`, the ways by turns. `limits`: {way: seconds}
    of those that get less than LIMIT."""
    results = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way in ways:
            shim = ["-m", "cowshed", "run", "--"] if way in under_shim else []
            command = [*prefix, sys.executable, *shim, script, way]
            limit = (limits or {}).get(way, LIMIT)
            try:
                status, out, err = ended(command, limit)
            except subprocess.TimeoutExpired:
                print(f"  {way}: not done in {limit} s", file=sys.stderr)
                continue
            lines = [line for line in out.splitlines() if line.startswith("{")]
            if status or not lines:
                reason = (err.strip().splitlines() or ["no output"])[-1]
                print(f"  {way}: failed ({status}): {reason}", file=sys.stderr)
                continue
            results[way].append(json.loads(lines[-1]))
    return results


def line(case, unit, ours, rival=(), bar=None, on="speedup"):
    """The line that machines read (bench/common.h); its name is the script's. `bar`: at least so
    many times faster ("speedup"), or at most so much of the rival's ("ratio") or alone ("ours")."""
    bench = "python-" + os.path.basename(sys.argv[0]).removesuffix(".py")
    text = f"bench={bench} case={case.replace(' ', '-')} unit={unit}"
    if not ours:
        print(f"{text} ours=- rival=- ratio=- bar=- on=- met=failed n=0")
        return
    middle = statistics.median(ours)
    text += f" ours={middle:.6g} ours_min={min(ours):.6g} ours_max={max(ours):.6g}"
    judged = middle
    if rival:
        other = statistics.median(rival)
        ratio = other / middle if on == "speedup" else middle / other
        judged = middle if on == "ours" else ratio
        text += (f" rival={other:.6g} rival_min={min(rival):.6g} rival_max={max(rival):.6g}"
                 f" ratio={ratio:.4g}")
    else:
        text += " rival=- ratio=-"
    if bar is None or (on != "ours" and not rival):
        text += f" bar=- on={on} met=-"
    else:
        met = judged >= bar if on == "speedup" else judged <= bar
        sign = ">=" if on == "speedup" else "<="
        text += f" bar={sign}{bar:g} on={on} met={'yes' if met else 'no'}"
    print(f"{text} n={len(ours)}", flush=True)


def table(title, results, figure, ours, unit="ms", scale=1e3, faster=(), judged=(), most=None):
    """One line a way: its median, its spread, and how many times ours that is.

    And lines for machines: each of ours against each rival. `faster`: {rival: how many times
    faster `ours` has to be}, and all of `judged`; `most`: how much `ours` may be by itself."""
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
    scaled = {way: [value * scale for value in values] for way, values in rows.items()}
    if most is not None:
        line(f"{figure}/{ours}", unit, scaled[ours], bar=most, on="ours")
    for way in (way for way in scaled if way.startswith("cowshed")):
        for rival in (rival for rival in scaled if not rival.startswith("cowshed")):
            bar = dict(faster).get(rival) if way in (judged or [ours]) else None
            line(f"{figure}/{way}/{rival}", unit, scaled[way], scaled[rival], bar)
