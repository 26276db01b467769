# SPDX-License-Identifier: MIT
"""The plots of the results page (bench/results.py). Each is an SVG. The same figures always give
the same file: it has no date, its text is text, and a fixed salt makes its identifiers.

A plot is a function of the figures. It returns a function that draws, or None if too few figures
were measured. Without matplotlib nothing is drawn.
"""

import os
import re

try:
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot, ticker
except ImportError:
    matplotlib = None

# Okabe and Ito's colours: colour-blind readers can tell them apart. Each line has a marker, too.
STYLES = {
    "cowshed": ("#0072B2", "o"),
    "second": ("#56B4E9", "s"),
    "third": ("#009E73", "D"),
    "rival": ("#D55E00", "^"),
    "other": ("#E69F00", "v"),
    "more": ("#CC79A7", "P"),
    "last": ("#555555", "x"),
}
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def size_of(text):
    """Bytes of "64KiB", "4G"; None if it is no size."""
    match = re.fullmatch(r"(\d+)([KMG]?)(?:i?B)?", text)
    return int(match[1]) * UNITS[match[2]] if match else None


def size_name(value):
    for unit in "GMK":
        if value >= UNITS[unit]:
            return f"{value / UNITS[unit]:g} {unit}iB"
    return f"{value:g}"


def curve(figures, bench, pattern, key, x=float):
    """[(x, y)] of the cases that match; `x` makes the first of the pattern's group."""
    points = []
    for line in figures.of(bench):
        match = re.fullmatch(pattern, line.case)
        if match and line.number(key) is not None:
            points.append((x(match[1]), line.number(key)))
    return sorted(points)


# ---- Drawing -------------------------------------------------------------------------------


def axes_of(axes, x_label, y_label, sizes=None, shares=None):
    axes.set_xscale("log")
    axes.set_yscale("log")
    least, most = axes.get_ylim()
    if most / least < 100:
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    for axis in axes.xaxis, axes.yaxis:
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
    ticks = sorted(sizes or shares or ())
    if ticks:
        names = [size_name(tick) if sizes else f"{tick:g} %" for tick in ticks]
        axes.set_xticks(ticks, names, rotation=45 if sizes and len(ticks) > 5 else 0)
        axes.minorticks_off()


def lines_of(axes, curves, scale=1.0):
    for name, style, points in curves:
        if points:
            colour, marker = STYLES[style]
            axes.plot([x for x, _ in points], [y * scale for _, y in points], color=colour,
                      marker=marker, markersize=4, linewidth=1.4, label=name)


def panels_side_by_side(count=1, height=3.6):
    figure, axes = pyplot.subplots(1, count, figsize=(4.2 * count + 1.4, height), squeeze=False,
                                   sharey=True)
    return figure, list(axes[0])


def finish(figure, axes, columns=2):
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="upper center", ncols=columns, frameon=False, fontsize=9)
    rows = -(-len(names) // columns)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.07 * rows))


# ---- Plots: each returns a function that draws, or None --------------------------------------


def panels_of(panels, x_label, y_label, columns=2, scale=1.0, height=3.6, by_size=False,
              shares=None, from_zero=False):
    """A plot of panels side by side. Each is (title, curves); curves are (name, style, points)."""
    figure, all_axes = panels_side_by_side(len(panels), height)
    for axes, (title, curves) in zip(all_axes, panels):
        lines_of(axes, curves, scale)
        axes_of(axes, x_label, y_label if axes is all_axes[0] else "",
                [x for x, _ in curves[0][2]] if by_size else None, shares)
        if from_zero:
            axes.set_xscale("symlog", linthresh=0.1)
            axes.set_xticks([0, 0.1, 1, 10, 100], ["0", "0.1 %", "1 %", "10 %", "100 %"])
            axes.minorticks_off()
        if title:
            axes.set_title(title, fontsize=10)
    finish(figure, all_axes, columns)
    return figure


def clone_by_size(f):
    def sized(pattern, key):
        return curve(f, "curves", pattern, key, size_of)

    curves = [
        ("cowshed: clone, write a page, drop", "cowshed", sized(r"size/(\w+)", "ours")),
        ("malloc, memcpy, write, free", "rival", sized(r"size/(\w+)", "rival")),
        ("the same in huge pages", "other", sized(r"size/(\w+)/huge-pages", "rival")),
    ]
    return (lambda: panels_of([("", curves)], "size", "us", by_size=True)) \
        if curves[0][2] else None


def written(f):
    def curves(how):
        at = rf"written/{how}/([\d.]+)%"
        return [
            ("cowshed, as it chooses", "cowshed", curve(f, "curves", at, "ours")),
            ("cowshed, by page", "second", curve(f, "curves", at + "/page-against-copy", "ours")),
            ("cowshed, by copy", "third", curve(f, "curves", at + "/page-against-copy", "rival")),
            ("malloc, memcpy, write, free", "rival", curve(f, "curves", at, "rival")),
            ("the same in huge pages", "other", curve(f, "curves", at + "/huge-pages", "rival")),
        ]

    panels = [("in one run", curves("run")), ("scattered", curves("scattered"))]
    return (lambda: panels_of(panels, "share of pages written", "ms", 3, 1e-3, 4.2,
                              shares=[0.1, 1, 10, 100])) if panels[0][1][0][2] else None


def fork_curves(f, ours, huge, x=float):
    """The three sides of fork.sh; `ours` and `huge` are the patterns of their cases."""
    return [("cowshed", "cowshed", curve(f, "fork", ours, "ours", x)),
            ("glibc, 4 KiB pages", "rival", curve(f, "fork", ours, "rival", x)),
            ("glibc, huge pages", "other", curve(f, "fork", huge, "rival", x))]


def fork_by_size(f):
    at = "/([^/]+)/64MiB-blocks"
    panels = [(f"{which} fork", fork_curves(f, which + at, f"{which}/huge{at}", size_of))
              for which in ("first", "tenth")]
    return (lambda: panels_of(panels, "heap", "us", 3, by_size=True)) \
        if len(panels[0][1][0][2]) > 1 else None


def fork_by_written(f):
    at = r"/[^/]+/([\d.]+)%"
    panels = [(title, fork_curves(f, f"written-{what}{at}", f"written-{what}/huge{at}"))
              for what, title in (("pause", "pause of fork"),
                                  ("wall", "fork, child exits, wait, write"))]
    return (lambda: panels_of(panels, "share written between forks", "ms", 3, 1e-3,
                              from_zero=True)) if panels[0][1][0][2] else None


def dots(rows, sides, label, log=False):
    """One row a name: a marker for each side; 1 is the rival's."""
    figure, (at,) = panels_side_by_side()
    figure.set_size_inches(7.2, 1.6 + 0.19 * len(rows))
    for side, style in sides:
        points = [(values[side], -i) for i, (_, values) in enumerate(rows)
                  if values.get(side) is not None]
        if points:
            colour, marker = STYLES[style]
            at.plot([x for x, _ in points], [y for _, y in points], color=colour, marker=marker,
                    linestyle="none", markersize=5, label=side)
    at.axvline(1, color="#999999", linewidth=0.8)
    at.set_yticks([-i for i in range(len(rows))], [name for name, _ in rows], fontsize=7)
    at.set_ylim(-len(rows) + 0.3, 0.7)
    at.grid(True, axis="x", color="#dddddd", linewidth=0.6)
    at.set_xlabel(label)
    if log:
        at.set_xscale("log")
    handles, names = at.get_legend_handles_labels()
    figure.legend(handles, names, loc="upper center", ncols=5, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.4 / figure.get_size_inches()[1]))
    return figure


def copies(f):
    rows = []
    for line in f.of("tensors"):
        match = re.fullmatch(r"t1/(.+)/memcpy", line.case)
        if match and line.number("ours") and line.number("rival"):
            by = line.number("rival")
            values = {"cowshed": line.number("ours") / by}
            for side in "numpy", "torch":
                other = f.get("tensors", f"t1/{match[1]}/{side}", "rival")
                values[side] = other / by if other else None
            rows.append((match[1], values))
    sides = [("cowshed", "cowshed"), ("torch", "rival"), ("numpy", "other")]
    return (lambda: dots(rows, sides, "times memcpy of the same bytes", True)) if rows else None


def allocators(f):
    rows, sides = [], {"cowshed": "cowshed"}
    styles = iter(("rival", "other", "more", "third", "last"))
    for line in f.of("programs"):
        match = re.fullmatch(r"large/([^/]+)", line.case)
        if match and match[1] != "mean" and line.number("rival"):
            rows.append((match[1], {"cowshed": line.number("ours") / line.number("rival")}))
            for other in f.of("programs"):
                side = re.fullmatch(rf"large/{re.escape(match[1])}/([^/]+)", other.case)
                if side and side[1] != "peak" and other.number("rival"):
                    rows[-1][1][side[1]] = other.number("rival") / line.number("rival")
                    if side[1] not in sides:
                        sides[side[1]] = next(styles)
    label = "wall time, times glibc's"
    return (lambda: dots(rows, list(sides.items()), label)) if rows else None


PLOTS = [
    ("clone", clone_by_size, "Clone, write one page, drop: by size",
     "The cost of a clone hardly grows with the size. The cost of a copy grows with its bytes.",
     "build/plain/bench/curves size"),
    ("written", written, "A clone of 256 MiB, by the share of its pages written",
     "A write to a clone copies single pages, or all at once. The curves show where the two cross.",
     "build/plain/bench/curves written"),
    ("fork", fork_by_size, "Pause of fork, by heap size",
     "Blocks of 64 MiB; each child exits at once.", "FORK_ONLY='256M 1G 4G' bench/fork.sh"),
    ("fork-written", fork_by_written, "Fork, by the share written since the last one",
     "1 GiB. Later writes pay for a shorter pause, so the second plot shows the whole cycle.",
     "FORK_ONLY=written bench/fork.sh"),
    ("copies", copies, "Copies between tensors, by pattern",
     "One thread. Further left is faster; 1 is `memcpy` of as many bytes.", "bench/tensors.sh"),
    ("programs", allocators, "Programs under allocators",
     "Further left is faster; 1 is glibc.", "bench/programs.sh large"),
]


def draw_all(figures, folder, keep):
    """Draws the plots; returns [(name, title, text, command)] of those that the page shall show.
    Without matplotlib, existing plots stay if `keep` says that they are of the same figures."""
    shown = []
    for name, plot, title, text, command in PLOTS:
        draw = plot(figures)
        path = os.path.join(folder, name + ".svg")
        if draw is None or not (matplotlib or keep):
            if os.path.exists(path):
                os.remove(path)
            continue
        if matplotlib:
            os.makedirs(folder, exist_ok=True)
            settings = {"svg.hashsalt": "cowshed", "svg.fonttype": "none", "font.size": 9,
                        "axes.spines.top": False, "axes.spines.right": False,
                        "font.family": "DejaVu Sans"}
            with matplotlib.rc_context(settings):
                figure = draw()
                figure.savefig(path, metadata=dict.fromkeys(
                    ("Date", "Creator", "Format", "Type")))
                pyplot.close(figure)
        if os.path.exists(path):
            shown.append((name, title, text, command))
    return shown
