# SPDX-License-Identifier: MIT
"""What the README shows does what it says."""

import os
import re

import pytest

README = os.path.join(os.path.dirname(__file__), "../../README.md")
RECORD = os.path.join(os.path.dirname(__file__), "../../docs/results/bench.txt")


def examples():
    with open(README, encoding="utf-8") as text:
        return re.findall(r"^```python\n(.*?)^```", text.read(), re.M | re.S)


# The figures of the table, in its order: the benchmark and the case of docs/results/bench.txt.
ROWS = [("clone", "64MiB"), ("page", "clone+write-1-page"), ("fork", "tenth/4G/64MiB-blocks"),
        ("cycle", "exit-1%-one-thread/wall"), ("share", "send-4KiB"),
        ("python-send", "got/cowshed/multiprocessing"), ("fill", "first/huge-pages"),
        ("programs", "large/mean/best-rival"), ("redis", "later/plain"),
        ("redis", "request-after/plain"),
        ("python-clone", "one/cowshed/clone()"), ("python-clone", "all/cowshed,-auto/clone()"),
        ("python-clone", "all/cowshed,-install()/clone()")]
UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "": 1, "of-glibc": 1}


def rows():
    with open(README, encoding="utf-8") as text:
        table = re.search(r"^## Figures\n.*?^\| ---.*?\n(.*?)\n\n", text.read(), re.M | re.S)[1]
    return [[cell.strip(" *") for cell in row.strip("|").split("|")] for row in table.split("\n")]


@pytest.mark.parametrize("number", range(len(ROWS)))
def test_figures_are_those_of_the_record(number):
    assert len(rows()) == len(ROWS)
    _, ours, rival, _ = rows()[number]
    with open(RECORD, encoding="utf-8") as record:
        start = "bench={} case={} ".format(*ROWS[number])
        line = dict(pair.split("=", 1) for line in record if line.startswith(start)
                    for pair in line.split())
    for cell, key in (ours, "ours"), (rival, "rival"):
        value, unit = re.match(r"\**([\d.]+) ?(ns|us|ms|s)?\b", cell).groups()
        recorded = float(line[key]) * UNITS[line["unit"]] / UNITS[unit or ""]
        digits = len(value.partition(".")[2])
        assert abs(float(value) - recorded) <= 0.51 * 10 ** -digits, (cell, recorded)


def test_there_are_some():
    assert examples()


@pytest.mark.parametrize("number", range(len(examples())))
def test_example(number):
    pytest.importorskip("numpy")
    exec(compile(examples()[number], f"README.md, example {number + 1}", "exec"), {})
