"""`smartlinkd doctor`: check that this machine has what the daemon needs, and say what to do.

Each point is tried: Chromium is started, its sandbox is read from the kernel's tables, a file is
written. A point that fails keeps no other from being tried, unless that needs it.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import trio

from smartlinkd.browser.cdp import CdpConnection, connect
from smartlinkd.browser.chromium import LaunchSettings, find_executable, launch, product
from smartlinkd.browser.errors import LaunchFailed
from smartlinkd.browser.instance import confirm_sandbox
from smartlinkd.browser.page import BrowserContext
from smartlinkd.commands.codes import FAILED, GOOD
from smartlinkd.config import ConfigError, Settings
from smartlinkd.config.settings import BrowserSection
from smartlinkd.errors import Refused
from smartlinkd.path_checks import mode_of
from smartlinkd.state_files import disk_is_full, fault_of, fault_of_owner


@dataclass(frozen=True)
class Finding:
    """The result of one check, and what was found or has to be done."""

    point: str
    is_good: bool
    text: str

    def __str__(self) -> str:
        return f"{'ok  ' if self.is_good else 'FAIL'}  {self.point:<13}  {self.text}"


def main(read: Callable[[], Settings] | None) -> int:
    """Run all checks and print a line for each. Return `GOOD` if all passed, else `FAILED`.

    Args:
        read: returns the settings; None if there is no configuration.
    """
    all_good = True
    for finding in trio.run(_run_checks, read):
        print(finding)
        all_good = all_good and finding.is_good
    return GOOD if all_good else FAILED


async def _run_checks(read: Callable[[], Settings] | None) -> list[Finding]:
    findings, settings = _configuration(read)
    if settings is None or settings.needs_browser:
        findings += await _chromium(settings.browser if settings else BrowserSection())
    else:
        findings.append(Finding("Chromium", True, "not needed: links and products are an API's"))
    if settings:
        findings.append(_state(settings.state.directory))
    return findings


def _configuration(read: Callable[[], Settings] | None) -> tuple[list[Finding], Settings | None]:
    if read is None:
        says = "none given, so its password and state directory are not looked at (--config FILE)"
        return [Finding("configuration", True, says)], None
    try:
        settings = read()
    except ConfigError as error:
        return [Finding("configuration", False, str(p)) for p in error.problems], None
    findings = [Finding("configuration", True, "good, a password is set")]
    findings += [Finding("configuration", True, f"warning: {w}") for w in settings.warnings]
    return findings, settings


async def _chromium(wanted: BrowserSection) -> list[Finding]:
    """Find and start Chromium, open a page, and check that its sandbox is on."""
    settings = LaunchSettings(
        executable=wanted.executable,
        user=wanted.user,
        no_sandbox=wanted.no_sandbox,
        start_timeout=wanted.start_timeout,
    )
    try:
        executable = find_executable(settings.executable)
        async with launch(settings) as chromium, connect(chromium.endpoint) as connection:
            context = await BrowserContext.create(connection, ())
            await (await context.new_page()).evaluate("() => 1")
            sandbox = await _sandbox(connection, wanted=not wanted.no_sandbox)
            version = await product(connection)
    except Refused as refusal:
        return [Finding("Chromium", False, str(refusal))]
    return [Finding("Chromium", True, f"{version} ({executable})"), sandbox]


async def _sandbox(connection: CdpConnection, *, wanted: bool) -> Finding:
    if not wanted:
        return Finding("sandbox", True, "switched off by browser.no_sandbox; better leave it on")
    try:
        await confirm_sandbox(connection)
    except LaunchFailed as failure:
        return Finding("sandbox", False, str(failure))
    return Finding("sandbox", True, "on: pages run confined")


def _state(directory: Path) -> Finding:
    """Check that this user can keep state in `directory`, which a start would make."""
    found = fault_of(directory)
    if found is not None:
        return Finding("state", False, "; ".join(found))
    there = directory
    try:
        there = next(folder for folder in (directory, *directory.parents) if mode_of(folder))
        found = fault_of_owner(directory) if there == directory else None
        if found is not None and os.geteuid() != 0:  # root may check for a daemon of another user
            return Finding("state", False, "; ".join(found))
        with tempfile.TemporaryFile(dir=there, buffering=0) as file:
            file.write(bytes(mmap.PAGESIZE))  # on a full disk an empty file can still be made
    except OSError as error:
        remedy = (
            "make room on its disk"
            if disk_is_full(error)
            else f"make {directory} for the daemon's user (install -d -m 700 -o USER), or name "
            "another one as state.directory"
        )
        fault = f"{there} cannot be written to ({error.strerror})"
        return Finding("state", False, f"{fault}; {remedy}")
    says = "can be written to" if there == directory else "is made at the first start"
    if found is not None:
        says += f"; a daemon that runs as root is refused: {'; '.join(found)}"
    return Finding("state", True, f"{directory} {says}")
