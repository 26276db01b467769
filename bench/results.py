#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The results page: tables and plots of what bench/run.sh measured.

    results.py FILE...              docs/results.md and docs/results/
    results.py --to FOLDER FILE...  the same in another folder

FILE is what bench/run.sh keeps (build/bench.txt; bench/common.h tells the format). Of several, runs
of parts, all is taken, and of what was measured twice the last. They are kept together as
docs/results/bench.txt, from which the page can be made again.

The page has the bars: each table is a row of docs/benchmarks.md, which tells what is measured,
how and with which bar; so rows that were not measured are known, too. All other figures are in
docs/results/figures.md. The plots need matplotlib (bench/requirements.txt, bench/plots.py);
without it the page has those that were drawn of the same figures before, or none.
"""

import argparse
import math
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TIMES = {"ns", "us", "ms", "s"}
HIGHER_IS_BETTER = {"pages/ms", "operations/s"}
# Why there are no lines of these.
ELSEWHERE = {"gpu": "not measured: no GPU", "scaling": "its tables are in [scaling.md](scaling.md)"}
# What a row's bar names, how the cases end in which it was measured, and what lacks without.
NAMED = {"PyTorch": ("/torch", "PyTorch"), "64 elements": ("/call", "a call of 64 elements"),
         "the best rival": ("/glibc-huge", "rivals with huge pages")}
LOST = 1.05  # by more than this much of the rival's, else it is called even


# ---- What was measured ---------------------------------------------------------------------


class Line:
    """A measurement: the keys of bench/common.h, numbers where they are numbers."""

    def __init__(self, text):
        self.text = text
        self.keys = dict(part.split("=", 1) for part in text.split())
        self.bench, self.case, self.unit = (self.keys[key] for key in ("bench", "case", "unit"))

    def number(self, key):
        try:
            return float(self.keys.get(key, "-"))
        except ValueError:
            return None

    @property
    def met(self):
        return self.keys.get("met", "-")

    @property
    def slower(self):
        """How many times worse than the rival; None: there is none."""
        ours, rival = self.number("ours"), self.number("rival")
        if not ours or not rival:
            return None
        return rival / ours if self.unit in HIGHER_IS_BETTER else ours / rival


class Figures:
    """All lines, by (bench, case), and what was said about the machine and the runs."""

    def __init__(self, files):
        self.about, self.lines = [], {}
        for name in files:
            with open(name, encoding="utf-8") as file:
                for text in map(str.strip, file):
                    if text.startswith("#"):
                        self.about += [text] if text not in self.about else []
                    elif text.startswith("bench="):
                        line = Line(text)
                        self.lines[line.bench, line.case] = line

    def of(self, bench):
        return [line for line in self.lines.values() if line.bench == bench]

    def get(self, bench, case, key="ours"):
        line = self.lines.get((bench, case))
        return line.number(key) if line else None

    @property
    def quick(self):
        return any("BENCH_QUICK" in text for text in self.about)

    def text(self):
        return "\n".join(self.about + [line.text for line in self.lines.values()]) + "\n"


class Program:
    """A row, and those below it without a name, of the table of docs/benchmarks.md. If these have
    a command, too, its last word is what their cases begin with."""

    def __init__(self, name, command):
        self.name, self.command, self.what = name, command, []
        stem = re.sub(r"\.(c|sh|py)$", "", name)
        self.bench = stem.replace("python/", "python-")


def programs():
    with open(os.path.join(ROOT, "docs/benchmarks.md"), encoding="utf-8") as file:
        rows = [re.split(r"(?<!\\)\|", line.strip())[1:-1] for line in file if line[0] == "|"]
    found = []
    for name, command, what, bar in ([cell.strip() for cell in row] for row in rows[2:]):
        if name:
            found.append(Program(re.search("`(.+?)`", name)[1], command))
        found[-1].what.append((what, bar, command))
    return found


def parts(program, figures):
    """What of it was measured, and what was not: (what, bar, command) each."""
    cases = [line.case for line in figures.of(program.bench)]
    several = len([command for _, _, command in program.what if command]) > 1
    there, absent = [], []
    for part in program.what:
        word = part[2].strip("`").split()[-1] if several and part[2] else ""
        measured = any(case.startswith(f"{word}/" if word else "") for case in cases)
        (there if measured else absent).append(part)
    return there, absent


def missing(program, figures):
    """What can't be told of it from these lines: (part, why) each."""
    there, absent = parts(program, figures)
    lines = figures.of(program.bench)
    for part in absent:
        yield part, ELSEWHERE.get(program.bench, "not measured in this run")
    for part in there:
        for name, (end, lack) in NAMED.items():
            if name in part[1] and not any(
                    line.case.endswith(end) and line.met != "failed" for line in lines):
                yield part, f"measured without {lack}"
    failed = [line for line in lines if line.met == "failed"]
    if failed and there:
        yield there[0], f"{len(failed)} of {len(lines)} cases failed, or had no such rival"


# ---- Tables --------------------------------------------------------------------------------


def shown(value):
    """Three or four digits, never an exponent."""
    if value is None:
        return "-"
    if abs(value) >= 10000:
        return f"{value:,.0f}".replace(",", " ")
    if abs(value) >= 1000:
        return f"{value:.0f}"
    digits = 2 - math.floor(math.log10(abs(value))) if value else 0
    text = f"{value:.{max(digits, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def spread(line, whose):
    least, most = (line.number(f"{whose}_{end}") for end in ("min", "max"))
    return "-" if least is None else f"{shown(least)} to {shown(most)}"


def ratio(line):
    slower = line.slower
    if slower is None:
        return "-"
    if line.keys["on"] in ("speedup", "ours", "worst"):
        better, worse = ("faster", "slower") if line.unit in TIMES else ("less", "more")
        return f"{shown(1 / slower)} x {better}" if slower < 1 else f"{shown(slower)} x {worse}"
    return f"{shown(line.number('ours') / line.number('rival'))} x"


def bar(line):
    text = line.keys.get("bar", "-")
    if text == "-":
        return "-"
    sign, limit = ("at least", text[2:]) if text.startswith(">") else ("at most", text[2:])
    unit = {"ours": line.unit, "worst": f"{line.unit}, each", "speedup": "x faster",
            "ratio": "x"}[line.keys["on"]]
    return f"{sign} {limit} {unit}"


def verdict(line):
    lost = f", {line.keys['failed']} of the rival's rounds failed" if "failed" in line.keys else ""
    return judged(line) + lost


def judged(line):
    if line.met in ("yes", "no"):
        return {"yes": "met", "no": "**not met**"}[line.met]
    if line.met == "failed":
        return "**failed**"
    slower = line.slower
    if slower is None:
        return "-"
    return "**lost**" if slower > LOST else "even" if slower > 1 / LOST else "won"


def row(cells):
    return "| " + " | ".join(cells) + " |"


def table(lines, bars, named=False):
    head = ["what", "unit", "ours", "least to most", "rival", "least to most", "ours to the rival"]
    yield row([*head, *(["bar"] if bars else []), "met" if bars else "against it"])
    yield row(["---"] * (len(head) + 1 + bars))
    for line in lines:
        by = line.keys.get("by", "cgroup")
        name = ((f"{line.bench}: " if named else "") + line.case +
                (f" (by {by})" if by != "cgroup" else ""))
        yield row([name, line.unit, shown(line.number("ours")), spread(line, "ours"),
                   shown(line.number("rival")), spread(line, "rival"), ratio(line),
                   *([bar(line)] if bars else []), verdict(line)])


def what_of(there):
    return "; ".join(what for what, _, _ in there)


# ---- Pages ---------------------------------------------------------------------------------


def head(title, figures):
    yield "<!-- SPDX-License-Identifier: MIT -->"
    yield "<!-- Made by bench/results.py of docs/results/bench.txt: change these. -->"
    yield f"# {title}"
    yield ""
    if figures.quick:
        yield "**Of a quick run, with small sizes: no results.**"
        yield ""


def page(figures, plots):
    all_programs = programs()
    barred = [line for line in figures.lines.values() if line.met != "-"]
    missed = [line for line in barred if line.met != "yes"]
    absent = [program for program in all_programs if not figures.of(program.bench)]
    yield from head("Results", figures)
    yield "Medians of runs in turns with their rivals, with default settings but where an option is"
    yield "named; [benchmarks.md](benchmarks.md) tells how each is measured and why so."
    yield "Where nothing else is said, less is better. Measured by these runs:"
    yield ""
    yield "```"
    yield from (text.removeprefix("# ") for text in figures.about)
    yield "```"
    yield ""
    yield (f"{len(barred) - len(missed)} bars met, {len(missed)} not met; "
           f"{len(absent)} of {len(all_programs)} benchmarks have no figures on this page.")
    yield "Figures without a bar are in [results/figures.md](results/figures.md), those that we"
    yield ("lose against a rival among them; the lines they were made of in "
           "[results/bench.txt](results/bench.txt).")
    if missed:
        yield ""
        yield "## Bars not met"
        yield ""
        yield from table(missed, True, named=True)
    yield ""
    yield "## Plots"
    if not plots:
        yield ""
        yield "None: they need matplotlib (bench/requirements.txt) and the figures of curves."
    else:
        for name, title, text, command in plots:
            yield ""
            yield f"### {title}"
            yield ""
            yield f"{text} `{command}`"
            yield ""
            yield f"![{title}](results/{name}.svg)"
    yield ""
    yield "## Bars"
    for program in all_programs:
        lines = [line for line in figures.of(program.bench) if line.met != "-"]
        if lines:
            yield ""
            yield f"### {program.name}"
            yield ""
            yield f"{what_of(parts(program, figures)[0])}. {program.command}"
            yield ""
            yield from table(lines, True)
    rest = [(program, *missed) for program in all_programs for missed in missing(program, figures)]
    if rest:
        yield ""
        yield "## Not measured in this run"
        yield ""
        yield row(["program", "what", "bar", "command", "why"])
        yield row(["---"] * 5)
        for program, (what, limit, command), why in rest:
            yield row([program.name, what, limit or "-", command or program.command, why])


def other_page(figures):
    yield from head("All figures without a bar", figures)
    yield "Those with one are in [results.md](../results.md). Won and lost: by more than 5 %."
    known = {program.bench: program for program in programs()}
    for bench in dict.fromkeys(line.bench for line in figures.lines.values()):
        lines = [line for line in figures.of(bench) if line.met == "-"]
        if not lines:
            continue
        yield ""
        yield f"## {known[bench].name if bench in known else bench}"
        yield ""
        if bench in known:
            yield f"{what_of(parts(known[bench], figures)[0])}. {known[bench].command}"
            yield ""
        yield from table(lines, False)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--to", metavar="FOLDER")
    parser.add_argument("files", nargs="+", metavar="FILE")
    arguments = parser.parse_args()
    figures = Figures(arguments.files)
    if arguments.to is None and figures.quick:
        print("results.py: a quick run has no results: docs/ stays as it is")
        return
    arguments.to = arguments.to or os.path.join(ROOT, "docs")
    to = os.path.join(arguments.to, "results")
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import plots

    kept = os.path.join(to, "bench.txt")
    same = os.path.exists(kept) and read(kept) == figures.text()
    drawn = plots.draw_all(figures, to, same)
    if not plots.matplotlib:
        print("results.py: no matplotlib here (bench/requirements.txt): no plots were drawn")
    write(kept, figures.text())
    write(os.path.join(to, "figures.md"), "\n".join(other_page(figures)) + "\n")
    write(arguments.to + "/results.md", "\n".join(page(figures, drawn)) + "\n")
    print(f"Results: {arguments.to}/results.md")


if __name__ == "__main__":
    main()
