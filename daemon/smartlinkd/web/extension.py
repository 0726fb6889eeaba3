"""The browser extension as the files that people install.

`extension/` of the repository is the extension itself. An installed daemon has it in its
environment, at `share/smartlinkd/extension`.
"""

from __future__ import annotations

import io
import sys
import zipfile
from functools import cache
from pathlib import Path
from typing import Final

from quart import Quart, Response
from werkzeug.exceptions import NotFound

from smartlinkd.web.assets import REVALIDATE, Asset, serve
from smartlinkd.web.policy import HEADERS

PREFIX: Final = "/extension/"
NAMES: Final = ("smartlinkd-chromium.zip", "smartlinkd-firefox.zip")
"""Both have the same content: one manifest is good for both browsers."""
_FOLDERS: Final = (
    Path(__file__).parents[3] / "extension",
    Path(sys.prefix) / "share" / "smartlinkd" / "extension",
)
_BEGINNING: Final = (1980, 1, 1, 0, 0, 0)
"""The time of every file in it, so that the same files are the same zip."""


@cache
def read_extension() -> bytes | None:
    """Return the extension as a zip; None where its folder was not installed."""
    folder = next((each for each in _FOLDERS if (each / "manifest.json").is_file()), None)
    return None if folder is None else _zipped(folder)


def register(target: Quart) -> None:
    """Serve the files to anyone: there is no secret in them."""

    async def file(name: str) -> Response:
        content = read_extension()
        if name not in NAMES or content is None:
            raise NotFound
        return Asset(name, content).answer(HEADERS, cache=REVALIDATE)

    serve(target, f"{PREFIX}<name>", file)


def _zipped(folder: Path) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), _BEGINNING)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, path.read_bytes())
    return content.getvalue()
