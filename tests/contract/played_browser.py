"""The extension's own script in a Chromium that imitates a browser, in virtual time.

Chromium's virtual time stands still during a request and otherwise jumps to the next timer, so
hours take a second. The extension's code and its requests to the daemon are real.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import trio

if TYPE_CHECKING:
    from tests.contract.conftest import Daemon

Json = dict[str, Any]

PAGE = Path(__file__).with_suffix(".html")
EXECUTABLES = ("chromium-headless-shell", "chromium", "google-chrome-stable", "google-chrome")
SPARE_MS = 12 * 3600 * 1000
"""Milliseconds of virtual time for the start. Unused virtual time costs nothing."""


@dataclass
class PlayedBrowser:
    """A browser in which the extension of `daemon` is installed, in an empty `folder`."""

    daemon: Daemon
    folder: Path

    async def run(self, key: str, steps: list[Json], *, until_s: int) -> list[Json]:
        """Pair the extension and let the steps happen. Return its calls, oldest first.

        A call has `at_s`, `origin`, `method`, `path`, `body` (None without one) and `status`.
        """
        await self._install()
        manifest = json.loads((self.folder / "manifest.json").read_text(encoding="utf-8"))
        given = {
            "script": f"./{manifest['background']['service_worker']}",
            "pairing": {"url": self.daemon.url, "key": key, "portal": "https://portal.example"},
            "steps": steps,
            "until_s": until_s,
        }
        page = f"{(self.folder / PAGE.name).as_uri()}#{quote(json.dumps(given))}"
        shown = await self._show(page, until_s * 1000 + SPARE_MS)
        found = re.search(r"calls: (\S+?)\s*</body>", shown)
        assert found, shown
        calls: list[Json] = json.loads(unquote(found[1]))
        return calls

    async def _install(self) -> None:
        packed = await self.daemon.ask("GET", "/extension/smartlinkd-chromium.zip")
        zipfile.ZipFile(io.BytesIO(packed.content)).extractall(self.folder)
        shutil.copy(PAGE, self.folder)

    async def _show(self, page: str, budget_ms: int) -> str:
        """Return the page's elements when the virtual time is over."""
        executable = next(filter(None, map(shutil.which, EXECUTABLES)))
        command = [
            executable,
            "--headless",
            "--no-sandbox",  # it opens only our own files
            "--disable-gpu",
            "--allow-file-access-from-files",
            "--disable-web-security",  # replaces the permission for hosts that a person grants
            f"--user-data-dir={self.folder / 'profile'}",
            f"--virtual-time-budget={budget_ms}",
            "--dump-dom",
            page,
        ]
        with trio.fail_after(60):
            done = await trio.run_process(command, capture_stdout=True, capture_stderr=True)
        return done.stdout.decode()
