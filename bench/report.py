"""The benchmark's reports: ratios as text, figures in results.json, plots in report.html.

The text shows no time and no rate: they hold for this machine alone. results.json has them.
"""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from bench.measure import Row

Json = dict[str, Any]

RESULTS: Final = "results.json"
PAGE: Final = "report.html"


def results(
    rows: Sequence[Row],
    failures: Mapping[int, str],
    versions: Mapping[str, str],
    *,
    quick: bool,
    complete: bool,
) -> Json:
    """Return the content of results.json. `complete` means that no row is left to be measured."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "complete": complete,
        "versions": dict(versions),
        "rows": [row.as_dict() for row in rows],
        "failures": {str(number): text for number, text in failures.items()},
    }


def all_met(found: Json) -> bool:
    return not found["failures"] and all(row["met"] for row in found["rows"])


def text(rows: Sequence[Row]) -> str:
    """Return the rows as text for a terminal."""
    return "\n".join(line for row in rows for line in _lines(row.as_dict()))


def summary(found: Json) -> str:
    """Return which goals are missed, and which rows failed."""
    with_goals = [one for one in _comparisons(found) if _goal(one)]
    missed = [one for one in with_goals if not one["met"]]
    lines = [f"{len(with_goals) - len(missed)} of {len(with_goals)} goals met"]
    lines += [
        f"  {'missed' if one['within_reach'] else 'out of reach'}: {one['name']}: {_ratio(one)}"
        for one in missed
    ]
    lines += [
        f"  faster than its floor, which is none then: {one['name']}: {_ratio(one)}"
        for one in _comparisons(found)
        if one["least"] is not None and one["ratio"]["median"] < one["least"]
    ]
    lines += [f"  row {number} could not be measured" for number in found["failures"]]
    if found["quick"]:
        lines.append("  a peek only (--quick): too few rounds to go by")
    return "\n".join(lines)


def save(found: Json, folder: Path) -> None:
    """Write results.json, atomically."""
    new = folder / f"{RESULTS}.new"
    new.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    new.replace(folder / RESULTS)


def draw(found: Json, folder: Path) -> Path:
    """Write report.html and return its path."""
    page = folder / PAGE
    page.write_text(_page(found), encoding="utf-8")
    return page


def _lines(row: Json) -> Iterator[str]:
    yield f"\n{row['number']}  {row['title']}"
    width = max((len(one["name"]) for one in row["comparisons"]), default=0)
    for one in row["comparisons"]:
        mark = " " if not _goal(one) else "✓" if one["met"] else "✗"
        yield f"  {mark} {one['name']:<{width}}  {_ratio(one)}"
    yield from (f"    {note}" for note in row["notes"])


def _ratio(one: Json) -> str:
    ratio = one["ratio"]
    goal = _goal(one)
    return (
        f"{ratio['median']:.3g} times {one['theirs']['name']} "
        f"({ratio['low']:.3g} … {ratio['high']:.3g}, {one['rounds']} rounds)"
        + (f", goal: {goal}" if goal else "")
        + (f", floor: {one['least']:.3g}" if one["least"] is not None else "")
    )


def _goal(one: Json) -> str:
    goal = one["goal"]
    if goal["at_most"] is not None:
        return f"at most {goal['at_most']:g}"
    return f"at least {goal['at_least']:g}" if goal["at_least"] is not None else ""


def _comparisons(found: Json) -> Iterator[Json]:
    for row in found["rows"]:
        yield from row["comparisons"]


def _page(found: Json) -> str:
    parts = [_head(found)]
    for row in found["rows"]:
        parts.append(f"<h2>{row['number']}. {html.escape(row['title'])}</h2>")
        if row["comparisons"]:
            drawn = base64.b64encode(_plot_png(row["comparisons"])).decode()
            parts.append(f'<img alt="ratios" src="data:image/png;base64,{drawn}">')
        parts.append(_table(row["comparisons"]))
        parts += [f"<p>{html.escape(note)}</p>" for note in row["notes"]]
    for number, told in found["failures"].items():
        parts.append(f"<h2>{number}. could not be measured</h2><pre>{html.escape(told)}</pre>")
    return "\n".join(parts) + "\n"


def _head(found: Json) -> str:
    versions = ", ".join(f"{name} {told}" for name, told in found["versions"].items())
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>smartlinkd, measured</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 70em; margin: 2em auto; padding: 0 1em }}
table {{ border-collapse: collapse }} td, th {{ padding: .2em .8em; text-align: right }}
td:first-child, th:first-child {{ text-align: left }} tr.missed {{ background: #fdd }}
img {{ max-width: 100% }} pre {{ overflow-x: auto }}
</style>
<h1>smartlinkd, measured</h1>
<p>{html.escape(summary(found)).replace(chr(10), "<br>")}</p>
<p>A ratio is ours divided by theirs: the medians', with the quartiles of the rounds' own ratios.
The floor is that of somebody who does only what nobody can leave out.
Measured {html.escape(found["when"])} with {html.escape(versions)}.</p>"""


def _table(comparisons: Sequence[Json]) -> str:
    rows = "\n".join(
        f"<tr{'' if one['met'] else ' class=missed'}><td>{html.escape(one['name'])}</td>"
        f"<td>{html.escape(one['theirs']['name'])}</td>"
        f"<td>{one['ratio']['median']:.3g}</td>"
        f"<td>{one['ratio']['low']:.3g} … {one['ratio']['high']:.3g}</td>"
        f"<td>{one['rounds']}</td><td>{_goal(one)}</td>"
        f"<td>{'' if one['least'] is None else format(one['least'], '.3g')}</td></tr>"
        for one in comparisons
    )
    return (
        "<table><tr><th>measured</th><th>beside</th><th>ratio</th><th>quartiles</th>"
        f"<th>rounds</th><th>goal</th><th>floor</th></tr>\n{rows}</table>"
    )


def _plot_png(comparisons: Sequence[Json]) -> bytes:
    """Return a PNG: a line for each ratio on a log scale, with its quartiles, goal and floor."""
    import matplotlib as mpl  # noqa: PLC0415 - only the plots need matplotlib
    from matplotlib import pyplot as plt  # noqa: PLC0415

    mpl.use("Agg")
    figure, panel = plt.subplots(figsize=(10, 0.9 + 0.36 * len(comparisons)))
    for place, one in enumerate(comparisons):
        ratio = one["ratio"]
        colour = "tab:gray" if not _goal(one) else "tab:green" if one["met"] else "tab:red"
        panel.plot(
            [ratio["low"], ratio["high"]], [place, place], color=colour, linewidth=4, alpha=0.4
        )
        panel.plot(ratio["median"], place, "o", color=colour)
        for bound in (one["goal"]["at_most"], one["goal"]["at_least"]):
            if bound is not None:
                panel.plot([bound, bound], [place - 0.4, place + 0.4], "k-", linewidth=1.5)
        if one["least"] is not None:
            panel.plot(one["least"], place, "k|", markersize=9)
    panel.axvline(1.0, color="k", linewidth=0.7, linestyle=":")
    panel.set_xscale("log", base=2)
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    panel.set_yticks(range(len(comparisons)))
    panel.set_yticklabels(
        [f"{one['name']}\nbeside {one['theirs']['name']}" for one in comparisons], fontsize="small"
    )
    panel.invert_yaxis()
    panel.set_xlabel("ours / theirs; the long stroke is the goal, the short one the floor")
    panel.grid(visible=True, axis="x", alpha=0.3)
    figure.tight_layout()
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=90)
    plt.close(figure)
    return png.getvalue()
