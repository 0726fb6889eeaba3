"""The shell commands of the documents for newcomers, run in order by one user."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
import trio

from tests.e2e.conftest import ROOT, Daemon, Portal

DOCUMENTS = ("docs/getting-started.md", "docs/clients.md")
# The mark `sh no-test` is for a block that needs root or takes hours.
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("document", DOCUMENTS)
async def test_commands_of_the_document_work(
    crew_daemon: Daemon, portal: Portal, tmp_path: Path, document: str
) -> None:
    await crew_daemon.sync(portal.account())
    blocks = BLOCK.findall((ROOT / document).read_text(encoding="utf-8"))
    assert blocks
    # The user types the password at the prompt; the test pipes it in.
    script = "\n".join(blocks).replace(
        "smartlinkd login", f"printf '%s\\n' '{crew_daemon.password}' | smartlinkd login"
    )
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "smartlinkd").write_text(f'#!/bin/sh\nexec {sys.executable} -m smartlinkd "$@"\n')
    (programs / "smartlinkd").chmod(0o755)
    done = await trio.run_process(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env={
            "PATH": f"{programs}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "daemon"),
            "HOME": str(tmp_path),
            "URL": crew_daemon.url,
            "LINK": portal.link(portal.item()),
        },
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout.decode()}\n{done.stderr.decode()}"
    assert portal.origins.short in done.stdout.decode()
