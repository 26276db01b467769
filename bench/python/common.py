# SPDX-License-Identifier: MIT
"""Code that the benchmarks of the Python package share: processes, medians, lines.

Each way of doing a thing runs in a fresh interpreter of its own and prints its figures as a line of
JSON. Ours and the rivals take turns, `ROUNDS` times, so that a slow moment of the machine hits all
of them.

A round that fails, or hangs until its time is over, gives no figure. If it is a round of ours (the
name of the way begins with "cowshed"), all lines of that way have failed, and leave() ends the
script with 1. The rounds that a rival lost are in the lines as failed=. A bar against a rival that
never finished has failed, too.
"""

import copy
import json
import mmap
import os
import signal
import statistics
import subprocess
import sys
import threading

ROUNDS = int(os.environ.get("ROUNDS", "5"))
LIMIT = int(os.environ.get("LIMIT", "600"))  # seconds for one of them


def say(**figures):
    """Called in the interpreter that measures: prints the figures of this round."""
    print(json.dumps(figures), flush=True)


def warm(nbytes):
    """Called in the interpreter that measures, after its imports: touches and frees as much memory
    as all processes of the largest way need. Memory that the host of a virtual machine has taken
    back costs several times more at its first touch (warm_host() of bench/common.h)."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        facts = dict(line.split(":") for line in lines)
    nbytes = min(int(nbytes), int(facts["MemAvailable"].split()[0]) * 768)  # of 1024: 3/4
    nbytes = max(nbytes >> 21, 1) << 21
    with mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # a kernel without huge pages
        memory[::4096] = b"\1" * (nbytes >> 12)


def ended(command, limit, **more):
    """(status, output, errors) of a command. All of its processes are killed: some rivals hang."""
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
    """{way: Rounds} of `script WAY`; the ways take turns. `limits`: {way: seconds} of the ways that
    get less than LIMIT."""
    results = {way: Rounds() for way in ways}
    for _ in range(ROUNDS):
        for way in ways:
            shim = ["-m", "cowshed", "run", "--"] if way in under_shim else []
            attempt(results[way], way, [*prefix, sys.executable, *shim, script, way],
                    (limits or {}).get(way, LIMIT))
    return results


def save(how, state, path):
    """Saves a state of tensors by "snapshot" or "checkpoint" of ours, by a copy that a "thread"
    writes, so that it does not wait for the disk, or by "torch.save". Returns what has wait(), or
    None if all is done."""
    if how == "snapshot":
        import cowshed

        return cowshed.snapshot(state).save_async(path)
    if how == "checkpoint":
        import cowshed

        return cowshed.checkpoint(state, path)
    import torch

    if how == "torch.save":
        torch.save(state, path)
        return None
    thread = threading.Thread(target=torch.save, args=(copy.deepcopy(state), path))
    thread.start()
    thread.wait = thread.join
    return thread


def leave():
    """Ends the script after all was printed: with 1 if a round of ours failed, else with 0."""
    sys.exit(1 if _failed else 0)


def main(run, report):
    """`script WAY` measures one round of a way by run(WAY). `script` alone is the benchmark:
    report() measures the ways and prints what was found."""
    if len(sys.argv) > 1:
        run(*sys.argv[1:])
    else:
        report()
        leave()


def line(case, unit, ours, rival=None, bar=None, on="speedup", by=None):
    """Prints a figure: a line that machines read (bench/common.h), and one that people read. Its
    bench is the script's name.

    `ours` and `rival` are Rounds of numbers. `bar`: at least so many times faster ("speedup"), at
    most so many times the rival's ("ratio"), or at most so much ("ours"). `by` says how memory was
    measured; if not by a "cgroup", the bar has failed."""
    bench = "python-" + os.path.basename(sys.argv[0]).removesuffix(".py")
    case = case.replace(" ", "-")
    text, said = f"bench={bench} case={case} unit={unit}", f"  {bench}, {case}:"
    lost = f" ours_failed={ours.failed}" if ours.failed else ""
    lost += f" failed={rival.failed}" if rival is not None and rival.failed else ""
    lost += f" by={by}" if by else ""
    if not ours:
        print(f"{text} ours=- rival=- ratio=- bar=- on=- met=failed n=0{lost}")
        print(f"{said} ours was not measured", flush=True)
        return
    middle = judged = statistics.median(ours)
    text += f" ours={middle:.6g} ours_min={min(ours):.6g} ours_max={max(ours):.6g}"
    said += f" {middle:.4g} {unit} ({min(ours):.4g}..{max(ours):.4g})"
    if rival:
        other = statistics.median(rival)
        ratio = other / middle if on == "speedup" else middle / other
        judged = middle if on == "ours" else ratio
        text += (f" rival={other:.6g} rival_min={min(rival):.6g} rival_max={max(rival):.6g}"
                 f" ratio={ratio:.4g}")
        said += f"; rival {other:.4g} ({min(rival):.4g}..{max(rival):.4g}): {ratio:.4g} x"
        said += " faster" if on == "speedup" else ""
    else:
        text += " rival=- ratio=-"
    met = "-"
    if bar is not None:
        met = "yes" if (judged >= bar if on == "speedup" else judged <= bar) else "no"
        text += f" bar={'>=' if on == 'speedup' else '<='}{bar:g} on={on}"
        if by not in (None, "cgroup"):
            met = "failed"
        if rival is not None and not rival:  # no round of it ended: nothing was judged
            met = "failed"
        said += f"; bar {'at least' if on == 'speedup' else 'at most'} {bar:g}: "
    else:
        text += f" bar=- on={on}"
    met = "failed" if ours.failed else met
    print(f"{text} met={met} n={len(ours)}{lost}")
    words = {"yes": "met", "no": "NOT MET", "-": ""}
    print(f"{said}{words.get(met, met)}{lost}", flush=True)


def table(title, results, figure, pairs, unit="ms", scale=1e3):
    """Prints the lines of a figure of several ways.

    `pairs`: {way of ours: {rival: how many times faster ours has to be, or None}}. Only these pairs
    are compared: arrays with arrays, tensors with tensors."""
    print(f"\n{title} ({unit}; median of {ROUNDS}, least to most)")
    rows = {way: rounds.of(figure, scale) for way, rounds in results.items()}
    for ours, rivals in pairs.items():
        for rival, bar in rivals.items():
            line(f"{figure}/{ours}/{rival}", unit, rows[ours], rows[rival], bar)
