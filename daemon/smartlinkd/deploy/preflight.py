"""Checks before anything is downloaded: wrong usage, and a systemd that is too old.

    python3 -I smartlinkd/deploy/preflight.py [--instance NAME] [--bind ADDRESS]

Any Python can run this: it imports the standard library only. An environment for the new version,
which all other checks need, takes minutes. `__main__.py` parses its arguments with this too.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Final

OLDEST: Final = 252
HIGHEST_PORT: Final = 65535
ETC: Final = Path("/etc")

# systemd names an instance's user smartlinkdNAME, of at most 31 characters.
_INSTANCE = re.compile(r"[a-z0-9][a-z0-9-]{0,19}")


def main() -> int:
    """Return 0 if the installation may go on."""
    parse_arguments(make_parser())
    why = reason_too_old()
    if why:
        print(f"install: {why}", file=sys.stderr)
    return 1 if why else 0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser for the arguments of `./run install`."""
    made = argparse.ArgumentParser(prog="run install", allow_abbrev=False, add_help=False)
    made.add_argument("--instance", type=_instance, default="", metavar="NAME")
    made.add_argument("--bind", type=_address, metavar="HOST:PORT")
    return made


def parse_arguments(
    parser: argparse.ArgumentParser, words: Sequence[str] | None = None, *, etc: Path = ETC
) -> argparse.Namespace:
    """Parse `words`, by default the program's own. Exits with 2 if they are wrong.

    `etc` is the folder of configurations.
    """
    arguments = parser.parse_args(words)
    configuration = etc / f"smartlinkd@{arguments.instance}" / "config.toml"
    if arguments.instance and not arguments.bind and not configuration.exists():
        parser.error("a new instance needs an address of its own: --bind HOST:PORT")
    return arguments


def reason_too_old() -> str:
    """Return why this machine's systemd cannot run the service; "" if it can."""
    try:
        said = subprocess.run(
            ["systemctl", "--version"],  # noqa: S607 - root's own path
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        ).stdout
    except FileNotFoundError:
        return "systemd is needed, and there is no systemctl here"
    version = re.match(r"systemd (\d+)", said)
    if version is None or int(version[1]) < OLDEST:
        return f"systemd {OLDEST} or newer is needed (Debian 12 has it): {said[:40]!r}"
    return ""


def reason_unfit(host: str, port: int) -> str:
    """Return why a socket unit cannot have this address; "" if it can."""
    try:
        ip_address(host)
    except ValueError:
        return "names a host, and a socket of systemd's needs an IP address"
    return "" if port else "has port 0, and a socket of systemd's needs one that stays"


def _instance(text: str) -> str:
    if text and not _INSTANCE.fullmatch(text):
        raise argparse.ArgumentTypeError(
            "a name is 1 to 20 lower-case letters, digits and hyphens, the first no hyphen"
        )
    return text


def _address(text: str) -> str:
    """Check an address like `127.0.0.1:8787` or `[::1]:8787`."""
    host, _, port = text.rpartition(":")
    bracketed = re.fullmatch(r"\[([^]]*:[^]]*)\]", host)
    digits = re.fullmatch(r"[0-9]{1,5}", port)
    if not host or digits is None or int(port) > HIGHEST_PORT or (":" in host and not bracketed):
        raise argparse.ArgumentTypeError("must be an IP address, IPv6 in brackets, : and a port")
    fault = reason_unfit(bracketed[1] if bracketed else host, int(port))
    if fault:
        raise argparse.ArgumentTypeError(fault)
    return text


if __name__ == "__main__":
    sys.exit(main())
