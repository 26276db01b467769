#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The results page: tables and plots of what bench/run.sh measured.

    results.py FILE...                docs/results.md and docs/results/
    results.py --to FOLDER FILE...    the same in another folder
    results.py --unmet TABLE FILE...  the same with another table than bench/unmet.txt

FILE is what bench/run.sh keeps (build/bench.txt); bench/common.h describes the format. Several
files may hold runs of parts. The page takes all lines; of a case in two files it takes the last
line. The lines are kept together as docs/results/bench.txt, which makes the same page again.

The page has the bars. Each of its tables is a row of docs/benchmarks.md, which says what is
measured, how and with which bar. So the page also knows which rows were not measured. All other
figures are in docs/results/figures.md. The plots need matplotlib (bench/requirements.txt,
bench/plots.py). Without it the page shows the plots that are there if their figures are the same.

bench/unmet.txt says of each bar that is not met what is the case. A bar that is not met and has no
mark is called so on the page and on stderr, as is a mark of a bar that is met.
tests/python/test_results.py fails then.
"""

import argparse
import math
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TIMES = {"ns", "us", "ms", "s"}
HIGHER_IS_BETTER = {"pages/ms", "operations/s"}
# Why these programs have no lines.
ELSEWHERE = {"gpu": "not measured: no GPU", "scaling": "its tables are in [scaling.md](scaling.md)"}
# What a row's bar names; how the names of such cases end; what is missing where there are none.
NAMED = {"PyTorch": ("/torch", "PyTorch"), "64 elements": ("/call", "a call of 64 elements"),
         "the best rival": ("/glibc-huge", "rivals with huge pages")}
LOST = 1.05  # times the rival's figure: beyond it we lost, below its inverse we won, else even
# States of a bar that is not met: issues that are to change it, and what they are about.
ISSUES = {"healing": "the hundredth fork as cheap as the first, whatever the program writes",
          "bulk": "whole rewrites in bulk",
          "everywhere": "kernels, libcs, THP=always, aarch64, blocks of many sizes",
          "pains": "pains of Python users",
          "faithful": "no program and no monitor is surprised by the library"}
STATES = {"given up": "nobody works on it, for the reason in the row",
          "wrong measure": "the benchmark compares with the wrong thing, the bar was set wrong, or "
                           "it is finer than the spread of the rounds"}


# ---- What was measured ---------------------------------------------------------------------


class Line:
    """A measurement: the keys of bench/common.h, numbers where they are numbers. `mark` is the
    (state, sentence) of bench/unmet.txt, if it has any."""

    def __init__(self, text):
        self.text, self.mark = text, None
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
    """All lines, by (bench, case), and the comments about the machine and the runs."""

    def __init__(self, files, marks):
        self.about, self.lines = [], {}
        for name in files:
            with open(name, encoding="utf-8") as file:
                for text in map(str.strip, file):
                    if text.startswith("#"):
                        self._add_about(text)
                    elif text.startswith("bench="):
                        line = Line(text)
                        line.mark = marks.get((line.bench, line.case))
                        self.lines[line.bench, line.case] = line

    def _add_about(self, text):
        """A line of the head, once. A machine may come back: the runs after its line are its."""
        seen = self.about
        if text.startswith("# Linux"):
            seen = [line for line in seen if line.startswith("# Linux")][-1:]
        if text not in seen:
            self.about.append(text)

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
    """A row of the table of docs/benchmarks.md, and the rows below it that have no name. If those
    have a command, too, the names of their cases begin with its last word."""

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
    """Which parts of a program were measured, and which were not: (what, bar, command) each."""
    cases = [line.case for line in figures.of(program.bench)]
    several = len([command for _, _, command in program.what if command]) > 1
    there, absent = [], []
    for part in program.what:
        word = part[2].strip("`").split()[-1] if several and part[2] else ""
        measured = any(case.startswith(f"{word}/" if word else "") for case in cases)
        (there if measured else absent).append(part)
    return there, absent


def missing(program, figures):
    """What these lines can't tell of a program: (part, why) each."""
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


# ---- Marks of bars that are not met --------------------------------------------------------


def read_marks(path):
    """{(bench, case): (state, sentence)} of a table such as bench/unmet.txt."""
    found = {}
    for text in map(str.strip, read(path).splitlines()):
        if not text or text[0] == "#":
            continue
        key, state, sentence = ([part.strip() for part in text.split(" | ")] + ["", ""])[:3]
        bench, _, cases = key.partition(": ")
        issue = re.fullmatch(r"being worked on \(issue: (\w+)\)", state)
        known = issue[1] in ISSUES if issue else state in STATES
        for case in cases.split(", "):
            if not known or not case or not sentence or (bench, case) in found:
                sys.exit(f"{path}: no mark, or a second one: {text}")
            found[bench, case] = state, sentence
    return found


def quoted(figures, match):
    """What stands for {BENCH CASE KEY} in a sentence: that figure, with its unit; else None."""
    bench, case, key = match.groups()
    line = figures.lines.get((bench, case))
    value = line.number(key) if line else None
    if value is None:
        return None
    if key == "ratio":
        return f"{line.keys[key]} x"
    return shown(value) + ("" if line.unit == "of-glibc" else f" {line.unit}")


def with_figures(figures, sentence):
    return re.sub(r"\{(\S+) (\S+) (\w+)\}",
                  lambda match: quoted(figures, match) or f"({match[1]}: {match[2]})", sentence)


def reason(figures, line):
    """The last cell of a row of a bar that is not met."""
    if line.met == "failed":
        return "-"
    if not line.mark:
        return "**no mark** in bench/unmet.txt"
    return f"{line.mark[0]}: {with_figures(figures, line.mark[1])}"


def complaints(figures):
    """What is wrong with the marks of these figures. A mark of what was not measured is right."""
    for line in figures.lines.values():
        name = f"{line.bench}: {line.case}"
        if line.met == "no" and not line.mark:
            yield f"{name} is not met, and has no mark"
        if line.mark and line.met not in ("no", "failed"):
            yield f"{name} has a mark, but {'is met' if line.met == 'yes' else 'has no bar'}"
        for match in re.finditer(r"\{(\S+) (\S+) (\w+)\}", line.mark[1] if line.mark else ""):
            if quoted(figures, match) is None:
                yield f"{name}: {match[0]} is no figure"


# ---- Tables --------------------------------------------------------------------------------


def shown(value):
    """Three or four digits, without an exponent."""
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


def verdict(line, named):
    lost = f", {line.keys['failed']} of the rival's rounds failed" if "failed" in line.keys else ""
    state = f", {line.mark[0]}" if line.mark and line.met == "no" and not named else ""
    return judged(line) + state + lost


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


def table(lines, bars, reasons=None):
    """`reasons`: a function of a line, for a table of several programs: its last column."""
    named = reasons is not None
    head = ["what", "unit", "ours", "least to most", "rival", "least to most", "ours to the rival",
            *(["bar", "met"] if bars else ["against it"]), *(["what is the case"] if named else [])]
    yield row(head)
    yield row(["---"] * len(head))
    for line in lines:
        by = line.keys.get("by", "cgroup")
        name = ((f"{line.bench}: " if named else "") + line.case +
                (f" (by {by})" if by != "cgroup" else ""))
        yield row([name, line.unit, shown(line.number("ours")), spread(line, "ours"),
                   shown(line.number("rival")), spread(line, "rival"), ratio(line),
                   *([bar(line)] if bars else []), verdict(line, named),
                   *([reasons(line)] if named else [])])


def what_of(there):
    return "; ".join(what for what, _, _ in there)


# ---- Pages ---------------------------------------------------------------------------------


def head(title, figures):
    yield "<!-- SPDX-License-Identifier: MIT -->"
    yield "<!-- bench/results.py makes this page from docs/results/bench.txt: change those. -->"
    yield f"# {title}"
    yield ""
    if figures.quick:
        yield "**A quick run with small sizes measured this: these are no results.**"
        yield ""


def not_met(figures, missed):
    states = [line.mark[0] for line in missed if line.mark and line.met == "no"]
    yield ""
    yield "## Bars not met"
    yield ""
    yield "The last column says what is the case. The states, and how many bars are in each:"
    yield ""
    for issue, what in ISSUES.items():
        state = f"being worked on (issue: {issue})"
        if state in states:
            yield f"* *{state}*, {states.count(state)}: an open issue. {what[0].upper()}{what[1:]}."
    for state, what in STATES.items():
        if state in states:
            yield f"* *{state}*, {states.count(state)}: {what}."
    yield ""
    yield from table(missed, True, lambda line: reason(figures, line))


def page(figures, plots):
    all_programs = programs()
    barred = [line for line in figures.lines.values() if line.met != "-"]
    missed = [line for line in barred if line.met != "yes"]
    absent = [program for program in all_programs if not figures.of(program.bench)]
    yield from head("Results", figures)
    yield "Each figure is a median. Ours and its rivals ran in turns, with default settings unless"
    yield "a row names an option. [benchmarks.md](benchmarks.md) says how each figure is measured,"
    yield "and why so. Less is better unless a row says otherwise. A bar is the target of a figure."
    yield "These runs measured the figures:"
    yield ""
    yield "```"
    yield from (text.removeprefix("# ") for text in figures.about)
    yield "```"
    yield ""
    yield f"{len(barred) - len(missed)} bars met, {len(missed)} not met."
    yield f"{len(absent)} of {len(all_programs)} benchmarks have no figures on this page."
    yield "Figures without a bar are in [results/figures.md](results/figures.md), including those"
    yield "where a rival wins. [results/bench.txt](results/bench.txt) has the lines of all figures."
    if missed:
        yield from not_met(figures, missed)
    yield ""
    yield "## Plots"
    if not plots:
        yield ""
        yield "No plots: they need matplotlib (bench/requirements.txt) and figures to draw."
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
    yield "[results.md](../results.md) has the figures with a bar. *Won* and *lost*: ours and the"
    yield "rival's figure differ by more than 5 %."
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
    parser.add_argument("--unmet", metavar="TABLE", default=os.path.join(ROOT, "bench/unmet.txt"))
    parser.add_argument("files", nargs="+", metavar="FILE")
    arguments = parser.parse_args()
    figures = Figures(arguments.files, read_marks(arguments.unmet))
    if arguments.to is None and figures.quick:
        print("results.py: a quick run has no results: docs/ stays unchanged")
        return
    arguments.to = arguments.to or os.path.join(ROOT, "docs")
    to = os.path.join(arguments.to, "results")
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    import plots

    kept = os.path.join(to, "bench.txt")
    same = os.path.exists(kept) and read(kept) == figures.text()
    drawn = plots.draw_all(figures, to, same)
    if not plots.matplotlib:
        print("results.py: matplotlib is not installed (bench/requirements.txt): no plots drawn")
    write(kept, figures.text())
    write(os.path.join(to, "figures.md"), "\n".join(other_page(figures)) + "\n")
    write(arguments.to + "/results.md", "\n".join(page(figures, drawn)) + "\n")
    for complaint in complaints(figures) if not figures.quick else ():
        print(f"results.py: {arguments.unmet}: {complaint}", file=sys.stderr)
    print(f"Results: {arguments.to}/results.md")


if __name__ == "__main__":
    main()
