"""The configuration file of a daemon that is a process: its tables, written as an owner has it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

Table = Mapping[str, object]
Tables = Mapping[str, Table | Sequence[Table]]
"""By their names; a list of them is one `[[name]]` each."""


def write_config(path: Path, *layers: Tables) -> None:
    """One file of several layers of tables; later ones win, key by key."""
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
    return "\n".join([head, *(f"{key} = {_value(value)}" for key, value in keys.items()), ""])


def _value(value: object) -> str:
    """As in TOML, which for all but tables is JSON's way."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_value(one)}" for key, one in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False)
