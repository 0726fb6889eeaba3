"""The unit files of an installation: which there are to be, and which there are.

They are looked at as a whole, path and text, so that those of the version before can be put back as
they were. The drop-ins of the owner, in /etc/systemd/system, are not looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from smartlinkd.installation.service_paths import UNIT, ServicePaths
from smartlinkd.net.addresses import Bind

NAMES: Final = tuple(f"{UNIT}{at}.{kind}" for at in ("", "@") for kind in ("service", "socket"))

Files = Mapping[Path, str]


def wanted(paths: ServicePaths, source: Path, bind: Bind) -> Files:
    """Those of the version whose units are in `source`."""
    files = {paths.units / name: _text(source / name) for name in NAMES}
    files[address(paths)] = f"[Socket]\nListenStream=\nListenStream={bind}\n"
    return files


def found(paths: ServicePaths) -> Files:
    """Those that are there."""
    return {path: _text(path) for path in _all(paths) if path.exists()}


def put(paths: ServicePaths, files: Files) -> None:
    """Have these there, and no others of ours.

    Nothing is changed before all that is new has been written: on a full disk, `OSError` leaves
    them as they were. It is on the disk by then, with the version that it starts: whoever loses
    power has one that is whole.
    """
    changed = {path: text for path, text in files.items() if not _is(path, text)}
    try:
        for path, text in changed.items():
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            _fresh(path).write_text(text, encoding="utf-8")
            _fresh(path).chmod(0o644)
        os.sync()
    except BaseException:  # a signal as well: nothing half done stays
        for path in changed:
            _fresh(path).unlink(missing_ok=True)
        raise
    for path in _all(paths):
        if path not in files:
            path.unlink(missing_ok=True)
    for path in changed:
        _fresh(path).rename(path)


def address(paths: ServicePaths) -> Path:
    """The drop-in that gives its socket the address of its configuration."""
    return paths.units / f"{paths.socket}.d" / "address.conf"


def _all(paths: ServicePaths) -> Iterator[Path]:
    yield from (paths.units / name for name in NAMES)
    yield address(paths)


def _is(path: Path, text: str) -> bool:
    return path.exists() and _text(path) == text


def _fresh(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
