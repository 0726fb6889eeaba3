"""The configuration file of a daemon process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from smartlinkd.config.problems import format_toml

Table = Mapping[str, object]
Tables = Mapping[str, Table | Sequence[Table]]
"""Tables by name. A list of tables is written as `[[name]]` for each."""

HASH: Final = (
    "$argon2id$v=19$m=19456,t=2,p=1$04lTdQj6W5wsF5kDKIV5fg$"
    "3fFGK5r+WrjMQv+Sv7xHwTig4jeKMuxZk/L+we9qREY"
)
"""The hash of the password "correct horse"."""

WITHOUT_BROWSER: dict[str, Any] = {
    "links": {"source": "open_api"},
    "products": {"source": "none"},
    "open_api": {"app_id": "1", "secret": "unused-here", "url": "http://127.0.0.1:1/"},
}
"""The tables of a daemon that needs no browser. It converts no links: port 1 answers nothing."""


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
