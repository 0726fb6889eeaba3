"""The plot of a soak: `python -m tests.soak.plot FOLDER` draws it from the folder's soak.json.

Everything is drawn over the conversions done, since that is what the limits go by; next to each
curve that has a limit is the line of that limit, beginning where the fit begins.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl  # type: ignore[import-not-found, unused-ignore]
from matplotlib import pyplot as plt  # type: ignore[import-not-found, unused-ignore]

from tests.soak.fit import Run, slope
from tests.soak.jobs import Kind
from tests.soak.judgement import LIMITS, generations, whole
from tests.soak.samples import Sample

NAME = "soak.png"
MB = 1000.0


def draw(samples: list[Sample], title: str, file: Path) -> None:
    """Four panels, one over the other, as a PNG."""
    mpl.use("Agg")
    figure, panels = plt.subplots(
        4, 1, figsize=(12, 13), sharex=True, gridspec_kw={"height_ratios": [3, 3, 2, 2]}
    )
    memory, chromium, tree, things = panels
    figure.suptitle(title)
    _curve(memory, samples, "daemon private", "the daemon's private memory, MB", MB)
    _lines(memory, whole(samples, "daemon private"), LIMITS.daemon)
    _curve(chromium, samples, "chromium private", "Chromium's main process, private, MB", MB)
    _lines(chromium, generations(samples, "chromium private"), LIMITS.chromium)
    _curve(tree, samples, "tree private", "all of Chromium's processes, private, MB", MB)
    for column in ("daemon descriptors", "daemon tasks", "daemon threads", "daemon reapers"):
        things.plot(_conversions(samples), _column(samples, column), label=column)
    things.set_ylabel("numbers")
    things.set_xlabel("conversions done")
    things.set_ylim(bottom=0)
    for panel in panels:
        _shade(panel, samples)
        panel.grid(visible=True, alpha=0.3)
        panel.legend(loc="best", fontsize="small")
    figure.tight_layout()
    figure.savefig(file, dpi=100)
    plt.close(figure)


def _curve(panel: Any, samples: list[Sample], column: str, label: str, unit: float) -> None:
    panel.plot(
        _conversions(samples),
        [value / unit for value in _column(samples, column)],
        marker=".",
        markersize=3,
        linewidth=0.8,
        label=label,
    )
    panel.set_ylabel("MB")


def _lines(panel: Any, runs: list[Run], limit: float) -> None:
    """The fitted slope and the limit's, through the middle and from the beginning of each run."""
    found = slope(runs)
    fitted = f"fitted: {found.value:+.2g} kB a conversion"
    allowed = f"limit: {limit:g} kB a conversion"
    for run in runs:
        if len(run) > 1:
            xs = [run[0][0], run[-1][0]]
            middle = sorted(y - found.value * x for x, y in run)[len(run) // 2]
            panel.plot(xs, [(middle + found.value * x) / MB for x in xs], "k-", label=fitted)
            start = middle + found.value * xs[0]
            ys = [start / MB, (start + limit * (xs[1] - xs[0])) / MB]
            panel.plot(xs, ys, "r--", label=allowed)
            fitted = allowed = "_nolegend_"


def _shade(panel: Any, samples: list[Sample]) -> None:
    """The warm-up and the storms, which look different."""
    begun = 0
    labels = {"warm-up": "warm-up", "crashes": "Chromium is killed"}
    colours = {"warm-up": "tab:gray", "crashes": "tab:red"}
    for sample in samples:
        ended = sample.jobs[Kind.CONVERSION]
        if colour := colours.get(sample.name):
            label = labels.pop(sample.name, "_nolegend_")
            panel.axvspan(begun, ended, color=colour, alpha=0.12, linewidth=0, label=label)
        begun = ended


def _conversions(samples: list[Sample]) -> list[int]:
    return [sample.jobs[Kind.CONVERSION] for sample in samples]


def _column(samples: list[Sample], column: str) -> list[float]:
    return [sample.values[column] for sample in samples]


def main(folder: Path) -> Path:
    """Draw what is in the folder; where the plot is."""
    told = json.loads((folder / "soak.json").read_text(encoding="utf-8"))
    samples = [Sample(**sample) for sample in told["samples"]]
    title = f"soak of {told['minutes']:g} minutes, seed {told['seed']}"
    draw(samples, title, folder / NAME)
    return folder / NAME


if __name__ == "__main__":
    print(main(Path(sys.argv[1])))
