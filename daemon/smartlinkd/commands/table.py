"""JSON as text for people: lines of `key  value`, and a table for a list of objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from smartlinkd.untrusted import blank_unprintable

INDENT = "  "
WIDEST = 60  # characters of a cell; the last column has no limit


def table(answer: Mapping[str, object], indent: str = "") -> str:
    """Return the object as text. Nested objects and lists are indented below their key."""
    if not answer:
        return f"{indent}-"
    width = max(map(len, answer))
    lines = []
    for key, value in ((blank_unprintable(key), value) for key, value in answer.items()):
        if isinstance(value, Mapping) and value:
            lines += [f"{indent}{key}", table(value, indent + INDENT)]
        elif isinstance(value, list) and value and all(isinstance(v, Mapping) for v in value):
            lines += [f"{indent}{key}", *(f"{indent}{INDENT}{row}" for row in _rows(value))]
        else:
            lines.append(f"{indent}{key:<{width}}  {_cell(value)}")
    return "\n".join(lines)


def _rows(objects: Sequence[Mapping[str, object]]) -> list[str]:
    columns = list(dict.fromkeys(key for item in objects for key in item))
    cells = [
        [*map(blank_unprintable, columns)],
        *([_cell(item.get(key)) for key in columns] for item in objects),
    ]
    cells = [[*map(_cut, row[:-1]), row[-1]] for row in cells]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    return [
        "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells
    ]


def _cell(value: object) -> str:
    """Return a value as one line; a dash if it is None or empty."""
    if value is None or value in ("", [], {}):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, list):
        return ", ".join(map(_cell, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{blank_unprintable(key)} {_cell(item)}" for key, item in value.items())
    return blank_unprintable(str(value))


def _cut(text: str) -> str:
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"
