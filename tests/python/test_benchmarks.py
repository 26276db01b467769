# SPDX-License-Identifier: MIT
"""The code that the benchmarks of the package share (bench/python/common.py): the lines tell of
rounds that failed, and memory is touched before it is measured."""

import os
import subprocess
import sys

FOLDER = os.path.realpath(os.path.join(os.path.dirname(__file__), "../../bench/python"))

# "NAME 1h2" fails in the first round and hangs in the second one.
SCRIPT = """
import os, sys, time
sys.path.insert(0, {folder!r})
import common

if len(sys.argv) > 1:
    log = {log!r} + sys.argv[1].replace(" ", "-")
    with open(log, "a") as file:
        file.write("x")
    turn = str(os.path.getsize(log))
    fails, _, hangs = sys.argv[1].partition(" ")[2].partition("h")
    if turn in hangs:
        time.sleep(600)
    if turn in fails:
        sys.exit("no such luck")
    common.say(seconds=1.0)
else:
    found = common.measure(__file__, {ways!r}, limits=dict.fromkeys({ways!r}, 5))
    common.line("it", "s", *(found[way].of("seconds") for way in {ways!r}), bar=0.5)
    common.leave()
"""


def bench(tmp_path, *ways):
    script = tmp_path / "luck.py"
    script.write_text(SCRIPT.format(folder=FOLDER, log=str(tmp_path / "log-"), ways=ways))
    end = subprocess.run([sys.executable, str(script)], capture_output=True, text=True,
                         env={**os.environ, "ROUNDS": "2"}, check=False, timeout=55)
    lines = [line for line in end.stdout.splitlines() if line.startswith("bench=")]
    return end, dict(part.split("=", 1) for part in lines[0].split())


def test_a_round_of_ours_that_failed_is_told(tmp_path):
    end, line = bench(tmp_path, "cowshed 1", "rival")
    assert end.returncode == 1 and "cowshed 1: failed (1): no such luck" in end.stderr
    assert (line["met"], line["n"], line["ours_failed"]) == ("failed", "1", "1")
    assert line["ours"] == "1" and "failed" not in line


def test_all_rounds_of_ours_failed(tmp_path):
    end, line = bench(tmp_path, "cowshed 12", "rival")
    assert end.returncode == 1 and (line["met"], line["n"]) == ("failed", "0")


def test_a_round_of_ours_that_hung_is_told(tmp_path):
    end, line = bench(tmp_path, "cowshed h2", "rival")
    assert end.returncode == 1 and "cowshed h2: not done in 5 s" in end.stderr
    assert (line["met"], line["n"], line["ours_failed"]) == ("failed", "1", "1")


def test_a_round_that_a_rival_lost_is_told(tmp_path):
    end, line = bench(tmp_path, "cowshed", "rival 2")
    assert end.returncode == 0
    assert (line["met"], line["failed"], line["bar"]) == ("yes", "1", ">=0.5")


def test_no_bar_is_met_against_nothing(tmp_path):
    end, line = bench(tmp_path, "cowshed", "rival 12")
    assert end.returncode == 0
    assert (line["met"], line["failed"], line["bar"]) == ("failed", "2", ">=0.5")


def test_nothing_failed(tmp_path):
    end, line = bench(tmp_path, "cowshed", "rival")
    assert (end.returncode, line["met"], line["n"]) == (0, "yes", "2")
    assert "failed" not in line and "ours_failed" not in line


def test_memory_is_touched_and_given_back():
    code = ("import common\n"
            "def kib(name):\n"
            "    with open('/proc/self/status') as lines:\n"
            "        return [int(l.split()[1]) for l in lines if l.startswith(name)][0]\n"
            "before = kib('VmHWM'); common.warm(64 << 20); peak = kib('VmHWM')\n"
            "print((peak - before) >> 10, (peak - kib('VmRSS')) >> 10)")
    end = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                         env={**os.environ, "PYTHONPATH": FOLDER})
    touched, freed = map(int, end.stdout.split())
    assert 60 <= touched <= 72 and freed >= 60
