# SPDX-License-Identifier: MIT
"""bench/results.py makes docs/results.md and its plots from the figures that are kept with them."""

import os
import re
import shutil
import subprocess
import sys

import pytest

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
DOCS = os.path.join(ROOT, "docs")
PLOTS = os.path.join(ROOT, "build/venv-plots/bin/python")


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def drawer():
    """A Python with the matplotlib that drew the plots; None if there is none."""
    wanted = re.search(r"matplotlib==(\S+)", read(ROOT, "bench/requirements.txt"))[1]
    for python in PLOTS, sys.executable:
        if os.path.exists(python):
            code = f"import matplotlib as m, sys; sys.exit(m.__version__ != '{wanted}')"
            if subprocess.run([python, "-c", code], capture_output=True).returncode == 0:
                return python
    return None


def make(python, folder, *arguments):
    """Makes the pages in a folder; returns what results.py said on stderr."""
    return subprocess.run(
        [python, os.path.join(ROOT, "bench/results.py"), "--to", str(folder), *arguments],
        check=True, capture_output=True, text=True).stderr


def test_the_pages_are_made_of_their_figures(tmp_path):
    shutil.copytree(os.path.join(DOCS, "results"), tmp_path / "results")
    make(sys.executable, tmp_path, os.path.join(DOCS, "results/bench.txt"))
    for name in "results.md", "results/figures.md", "results/bench.txt":
        assert read(tmp_path, name) == read(DOCS, name), (
            f"{name}: run bench/results.py docs/results/bench.txt")


def rounded(text):
    """The last digits of a coordinate are the processor's."""
    return re.sub(r"\d+\.\d+", lambda found: f"{float(found[0]):.3f}", text)


def test_the_plots_are_made_of_their_figures(tmp_path):
    python = drawer()
    if not python:
        pytest.skip("no matplotlib of bench/requirements.txt's version")
    make(python, tmp_path, os.path.join(DOCS, "results/bench.txt"))
    names = sorted(os.listdir(os.path.join(DOCS, "results")))
    assert sorted(os.listdir(tmp_path / "results")) == names
    for name in names:
        made, kept = (rounded(read(folder, "results", name)) for folder in (tmp_path, DOCS))
        assert made == kept, name


def lines_of(*path):
    return [line for line in read(*path).splitlines() if line and line[0] != "#"]


def test_every_bar_that_is_not_met_has_a_mark():
    cases = (dict(part.split("=", 1) for part in line.split())
             for line in lines_of(DOCS, "results/bench.txt"))
    missed = {f"{keys['bench']}: {keys['case']}" for keys in cases if keys["met"] == "no"}
    keys = (line.split(" | ")[0].partition(": ") for line in lines_of(ROOT, "bench/unmet.txt"))
    marked = {f"{bench}: {case}" for bench, _, cases in keys for case in cases.split(", ")}
    assert missed - marked == set(), "not met: say in bench/unmet.txt what is the case"
    assert marked - missed == set(), "met, or not measured: remove these from bench/unmet.txt"


def test_the_marks_name_figures_that_are_kept(tmp_path):
    said = make(sys.executable, tmp_path, os.path.join(DOCS, "results/bench.txt"))
    assert said == ""
    assert "no mark" not in read(tmp_path, "results.md")


def test_a_mark_stands_in_the_rows_of_its_bar(tmp_path):
    measured = "unit=us ours=3 ours_min=2 ours_max=4 rival=- ratio=- on=ours n=7"
    (tmp_path / "lines").write_text(f"bench=page case=one {measured} bar=<=1 met=no\n"
                                    f"bench=page case=two {measured} bar=<=1 met=no\n"
                                    f"bench=page case=three {measured} bar=<=9 met=yes\n"
                                    "bench=page case=four unit=us ours=- rival=- ratio=- bar=- "
                                    "on=- met=failed n=0\n"
                                    f"bench=page case=seven {measured} bar=- met=-\n")
    (tmp_path / "unmet").write_text(
        "# a comment\n\n"
        "page: one | given up | It takes {page three ours_max}, and {page five ours}.\n"
        "page: three | given up | Nothing.\n"
        "page: four | being worked on (issue: bulk) | Nothing.\n"
        "page: six | given up | It was not measured.\npage: seven | given up | Nothing.\n")
    said = make(sys.executable, tmp_path / "to", "--unmet", str(tmp_path / "unmet"),
                str(tmp_path / "lines"))
    page = read(tmp_path, "to/results.md")
    assert "1 bars met, 3 not met" in page
    assert "| **not met** | given up: It takes 4 us, and (page: five). |" in page
    assert "| at most 1 us | **not met**, given up |" in page
    assert "| **not met** | **no mark** in bench/unmet.txt |" in page
    assert "| **failed** | - |" in page
    assert "* *given up*, 1: " in page and "issue: bulk" not in page
    assert [line.split(": ", 2)[2] for line in said.splitlines()] == [
        "page: one: {page five ours} is no figure",
        "page: two is not met, and has no mark",
        "page: three has a mark, but is met", "page: seven has a mark, but has no bar"]


@pytest.mark.parametrize("text", [
    "page: one | nearly met | Nothing.", "page: one | given up", "one | given up | Nothing.",
    "page: one | being worked on (issue: none) | Nothing.",
    "page: one | given up | Nothing.\npage: one | given up | Again."])
def test_a_wrong_mark_ends_the_script(tmp_path, text):
    (tmp_path / "unmet").write_text(text + "\n")
    with pytest.raises(subprocess.CalledProcessError) as error:
        make(sys.executable, tmp_path, "--unmet", str(tmp_path / "unmet"),
             os.path.join(DOCS, "results/bench.txt"))
    assert "no mark, or a second one: " in error.value.stderr


def test_what_was_not_met_is_told(tmp_path):
    lines = tmp_path / "lines"
    lines.write_text("# a machine\n"
                     "bench=page case=one unit=us ours=3 ours_min=2 ours_max=4 rival=2 rival_min=1 "
                     "rival_max=3 ratio=0.6667 bar=>=10 on=speedup met=no n=7\n"
                     "bench=page case=two unit=us ours=3 ours_min=2 ours_max=4 rival=2 rival_min=1 "
                     "rival_max=3 ratio=0.6667 bar=- on=speedup met=- n=7\n"
                     "bench=page case=three unit=us ours=3 ours_min=2 ours_max=4 rival=- ratio=- "
                     "bar=- on=speedup met=- n=7 failed=5\n"
                     "bench=page case=four unit=us ours=3 ours_min=2 ours_max=4 rival=- ratio=- "
                     "bar=>=10 on=speedup met=failed n=7 failed=5\n")
    make(sys.executable, tmp_path / "to", str(lines))
    page = read(tmp_path, "to/results.md")
    row = ("one | us | 3 | 2 to 4 | 2 | 1 to 3 | 1.5 x slower | at least 10 x faster | "
           "**not met** |")
    assert f"| {row}" in page and f"| page: {row}" in page and "0 bars met, 2 not met" in page
    assert "| at least 10 x faster | **failed**, 5 of the rival's rounds failed |" in page
    assert "| fork.sh |" in page.split("## Not measured in this run")[1]
    figures = read(tmp_path, "to/results/figures.md")
    assert "| 1.5 x slower | **lost** |" in figures
    assert "| three | us | 3 | 2 to 4 | - | - | - | -, 5 of the rival's rounds failed |" in figures


def test_a_barred_rival_that_was_not_there_is_told(tmp_path):
    lines = tmp_path / "lines"
    measured = "ours=3 ours_min=2 ours_max=4 rival=2 rival_min=1 rival_max=3 ratio=1.5"
    lines.write_text(f"bench=tensors case=t1/rows/numpy unit=ns {measured} bar=- on=ratio met=- "
                     "n=7\n"
                     "bench=fork case=first unit=us ours=3 rival=- ratio=- bar=>=20 on=speedup "
                     f"met=failed n=7\nbench=fork case=second unit=us {measured} bar=>=1 "
                     "on=speedup met=yes n=7\n")
    make(sys.executable, tmp_path / "to", str(lines))
    page = read(tmp_path, "to/results.md")
    assert "1 bars met, 1 not met" in page and "| at least 20 x faster | **failed** |" in page
    rest = page.split("## Not measured in this run")[1]
    assert "measured without PyTorch |" in rest
    assert "measured without a call of 64 elements |" in rest
    assert "| 1 of 2 cases failed, or had no such rival |" in rest
    with open(lines, "a", encoding="utf-8") as file:
        for end in "rows/torch", "small-64/call":
            file.write(f"bench=tensors case=t1/{end} unit=ns {measured} bar=<=2 on=ratio "
                       "met=yes n=7\n")
    make(sys.executable, tmp_path / "to", str(lines))
    assert "measured without" not in read(tmp_path, "to/results.md")
