"""Which browser to start.

The problem: the names in the path are wrappers. Debian's `chromium-headless-shell` is a shell
script that waits for the browser instead of becoming it, so whoever kills it leaves the browser;
Debian's `chromium` script becomes the browser, but adds flags of its own for a desktop.

The choice: the programs themselves first, by Debian's place for them, the headless shell before the
full browser (it starts in half the time and takes half the memory); names in the path after that.
Never a snap, which is what Ubuntu's `chromium` is: it starts only from somebody's login, and sees
none of the folders that it is given here.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from smartlinkd.browser.errors import LaunchFailed
from smartlinkd.paths import mode_of

# `google-chrome` is a script too; it becomes the browser.
CANDIDATES = (
    "/usr/lib/chromium/chromium-headless-shell",
    "/usr/lib/chromium/chromium",
    "google-chrome-stable",
    "google-chrome",
    "chromium",
)
DEBIAN_WRAPPERS = {
    "/usr/bin/chromium-headless-shell": "/usr/lib/chromium/chromium-headless-shell",
    "/usr/bin/chromium": "/usr/lib/chromium/chromium",
}
REMEDY = (
    "install one (Debian: apt-get install chromium-headless-shell; elsewhere Google Chrome's own "
    "package) or set browser.executable to the path of a Chromium or Chrome"
)
SNAP = "is a snap, which a daemon cannot use"
REACH = (
    "let the daemon's user pass through every folder above it, or move it to where that user may; "
    "the installed service sees nothing of /home and /root"
)


def find(setting: Path | None) -> Path:
    """The browser to start: the one that is set, else the best one that is installed.

    `setting` is `browser.executable`. Raises LaunchFailed, which names it and says what to do.
    """
    if setting is not None:
        chosen = Path(DEBIAN_WRAPPERS.get(str(setting), setting))
        try:
            mode = mode_of(chosen)
        except OSError as error:
            raise LaunchFailed(
                f"browser.executable: {chosen} cannot be looked at ({error.strerror}); {REACH}"
            ) from None
        if mode is None or not stat.S_ISREG(mode):
            raise LaunchFailed(f"browser.executable: there is no file {chosen}; {REMEDY}")
        if not os.access(chosen, os.X_OK):
            raise LaunchFailed(f"browser.executable: {chosen} is not executable; {REMEDY}")
        if _is_snap(chosen):
            raise LaunchFailed(f"browser.executable: {chosen} {SNAP}; {REMEDY}")
        return chosen
    found = [Path(path) for path in map(shutil.which, CANDIDATES) if path is not None]
    for program in found:
        if not _is_snap(program):
            return program
    if found:
        raise LaunchFailed(f"{found[0]} {SNAP}; {REMEDY}")
    raise LaunchFailed(f"no Chromium was found; {REMEDY}")


def _is_snap(program: Path) -> bool:
    """All of them are links to the one program that starts them."""
    return program.resolve().name == "snap"
