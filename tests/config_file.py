"""The configuration file of a daemon process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from smartlinkd.config.problems import format_toml

Table = Mapping[str, object]
Tables = Mapping[str, Table | Sequence[Table]]
"""Tables by name. A list of tables is written as `[[name]]` for each."""


def write_config(path: Path, *layers: Tables) -> None:
    """Write several layers of tables to a file; later layers replace earlier keys."""
    plain: dict[str, dict[str, object]] = {}
    many: list[str] = []
    for name, table in (pair for layer in layers for pair in layer.items()):
        if isinstance(table, Mapping):
            plain.setdefault(name, {}).update(table)
        else:
            many += [_table(f"[[{name}]]", one) for one in table]
    text = "\n".join([*(_table(f"[{name}]", keys) for name, keys in plain.items()), *many])
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)


def _table(head: str, keys: Table) -> str:
    return "\n".join([head, *(f"{key} = {format_toml(value)}" for key, value in keys.items()), ""])
