# SPDX-License-Identifier: MIT
"""What the benchmarks of the Python package share: processes, medians, one table.

Each way of doing a thing runs in an interpreter of its own, started anew, and says its
seconds as a line of JSON. Ours and the rivals take turns, `ROUNDS` times, so that what the
machine does meanwhile hits all alike.

A round that fails, or hangs until its time is over, is no figure, and is not forgotten: a way
of ours (its name begins with "cowshed") has then failed in all its lines, and leave() ends the
script with 1; what a rival lost stands in the lines as failed=, and a bar against a rival that
never finished has failed, too.
"""

import json
import mmap
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


def warm(nbytes):
    """In the interpreter that measures, after its imports: touches and frees as much memory as
    the largest of the ways needs, of all processes together. What a virtual machine's host has
    taken back costs several times more when it is touched first (warm_host() of bench/common.h)."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        facts = dict(line.split(":") for line in lines)
    nbytes = min(int(nbytes), int(facts["MemAvailable"].split()[0]) * 768)  # of 1024: 3/4
    nbytes = max(nbytes >> 21, 1) << 21
    with mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # a kernel without
        memory[::4096] = b"\1" * (nbytes >> 12)


def ended(command, limit, **more):
    """(status, output, errors) of a command, whose processes all end with it: some rivals hang."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True, **more)
    try:
        out, err = process.communicate(timeout=limit)
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    return process.returncode, out, err


class Rounds(list):
    """The figures of a way, round by round; `failed`: how many rounds gave none."""

    def __init__(self, values=(), failed=0):
        super().__init__(values)
        self.failed = failed

    def of(self, figure, scale=1):
        return Rounds([figures[figure] * scale for figures in self], self.failed)

    def lost(self):
        """What to add where it is shown."""
        return f"   ({self.failed} of {len(self) + self.failed} failed)" if self.failed else ""


_failed = False  # did a way of ours fail?


def attempt(rounds, way, command, limit=LIMIT, ours=None, **more):
    """One round of a way: its figures are added to `rounds`, or it is counted as failed."""
    global _failed
    try:
        status, out, err = ended(command, limit, **more)
        lines = [line for line in out.splitlines() if line.startswith("{")]
        if not status and lines:
            rounds.append(json.loads(lines[-1]))
            return
        reason = f"failed ({status}): {(err.strip().splitlines() or ['no output'])[-1]}"
    except subprocess.TimeoutExpired:
        reason = f"not done in {limit} s"
    print(f"  {way}: {reason}", file=sys.stderr)
    rounds.failed += 1
    _failed |= way.startswith("cowshed") if ours is None else ours


def measure(script, ways, under_shim=(), prefix=(), limits=None):
    """{way: Rounds} of `script WAY`, the ways by turns. `limits`: {way: seconds} of those that get
    less than LIMIT."""
    results = {way: Rounds() for way in ways}
    for _ in range(ROUNDS):
        for way in ways:
            shim = ["-m", "cowshed", "run", "--"] if way in under_shim else []
            attempt(results[way], way, [*prefix, sys.executable, *shim, script, way],
                    (limits or {}).get(way, LIMIT))
    return results


def leave():
    """Ends the script, after all was printed: 1 if a round of ours failed."""
    sys.exit(1 if _failed else 0)


def line(case, unit, ours, rival=None, bar=None, on="speedup", by=None):
    """The line that machines read (bench/common.h); its name is the script's.

    `ours` and `rival` are Rounds of numbers. `bar`: at least so many times faster ("speedup"), or
    at most so much of the rival's ("ratio") or alone ("ours"). `by`: of memory, what it was
    measured by: a "cgroup", else the bar has failed."""
    bench = "python-" + os.path.basename(sys.argv[0]).removesuffix(".py")
    text = f"bench={bench} case={case.replace(' ', '-')} unit={unit}"
    lost = f" ours_failed={ours.failed}" if ours.failed else ""
    lost += f" failed={rival.failed}" if rival is not None and rival.failed else ""
    lost += f" by={by}" if by else ""
    if not ours:
        print(f"{text} ours=- rival=- ratio=- bar=- on=- met=failed n=0{lost}", flush=True)
        return
    middle = judged = statistics.median(ours)
    text += f" ours={middle:.6g} ours_min={min(ours):.6g} ours_max={max(ours):.6g}"
    if rival:
        other = statistics.median(rival)
        ratio = other / middle if on == "speedup" else middle / other
        judged = middle if on == "ours" else ratio
        text += (f" rival={other:.6g} rival_min={min(rival):.6g} rival_max={max(rival):.6g}"
                 f" ratio={ratio:.4g}")
    else:
        text += " rival=- ratio=-"
    met = "-"
    if bar is not None:
        met = "yes" if (judged >= bar if on == "speedup" else judged <= bar) else "no"
        text += f" bar={'>=' if on == 'speedup' else '<='}{bar:g} on={on}"
        if by not in (None, "cgroup"):
            met = "failed"
        if rival is not None and not rival:  # it never came to its end: nothing was judged
            met = "failed"
    else:
        text += f" bar=- on={on}"
    print(f"{text} met={'failed' if ours.failed else met} n={len(ours)}{lost}", flush=True)


def table(title, results, figure, pairs, unit="ms", scale=1e3):
    """One line a way: its median, its spread, and how many times that is of ours.

    `pairs`: {way of ours: {rival: how many times faster ours has to be, or None}}. Nothing else
    is compared: an array with arrays, a tensor with tensors. Each has a line for machines; the
    table has a rival's against the first of ours that it is compared with."""
    print(f"\n{title} ({unit}; median of {ROUNDS}, least to most; times ours)")
    rows = {way: rounds.of(figure, scale) for way, rounds in results.items()}
    for way, values in rows.items():
        if not values:
            print(f"  {way:34} failed{values.lost()}")
            continue
        middle = statistics.median(values)
        times = ""
        for ours in [ours for ours, rivals in pairs.items() if way in rivals and rows[ours]][:1]:
            times = f"   {middle / statistics.median(rows[ours]):.1f} x {ours}"
        print(f"  {way:34} {middle:12.3f}   {min(values):.3f} to {max(values):.3f}"
              f"{times}{values.lost()}")
    for ours, rivals in pairs.items():
        for rival, bar in rivals.items():
            line(f"{figure}/{ours}/{rival}", unit, rows[ours], rows[rival], bar)


if __name__ == "__main__":  # common.py BYTES, for who must not have touched them itself
    warm(int(sys.argv[1]))
