"""Schemathesis against both APIs: it knows only the OpenAPI document.

It sends requests that fit the document and requests that do not, follows ids from answers to
requests, and checks each answer against the document. It runs as a program. `schemathesis.toml`
says which checks are left out, and why. A longer run:

    export SCHEMATHESIS_EXAMPLES=500 SCHEMATHESIS_SEED=1
    .venv/bin/python -m pytest tests/security/test_schemathesis.py
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

if TYPE_CHECKING:
    from tests.security.conftest import Daemon, Start

logger = logging.getLogger(__name__)

CONFIGURATION = Path(__file__).with_name("schemathesis.toml")
EXAMPLES = os.environ.get("SCHEMATHESIS_EXAMPLES", "25")
"""Generated cases of each operation. About as many cases again are the same in each run."""
SEED = os.environ.get("SCHEMATHESIS_SEED", "20261120")
AT_LEAST = 700  # cases


@pytest.fixture(scope="module")
def daemon(start: Start) -> Iterator[Daemon]:
    with start() as daemon:
        yield daemon


@pytest.mark.deadline(600, reason="a thousand requests, or as many as were asked for")
async def test_daemon_answers_as_its_document_says(daemon: Daemon, tmp_path: Path) -> None:
    tokens = {
        "SESSION_TOKEN": await daemon.login(),
        "CREW_TOKEN": await daemon.crew_token("beta"),
    }
    command = [
        *(sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()"),
        *("--config-file", str(CONFIGURATION), "run", f"{daemon.url}/openapi.json"),
        *("--max-examples", EXAMPLES, "--seed", SEED, "--workers", "1", "--no-color"),
        *("--request-timeout", "20"),
    ]
    done = await trio.run_process(
        command,
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), **tokens},
        capture_stdout=True,
        stderr=subprocess.STDOUT,
        check=False,
    )
    said = done.stdout.decode()
    assert done.returncode == 0, said
    operations = [len(methods) for methods in (await daemon.document())["paths"].values()]
    assert re.search(rf"Tested: {sum(operations)}\n", said), said
    found = re.search(r"(\d+) generated, (\d+) passed", said)
    assert found, said
    logger.info("%s cases at %d operations", found[1], sum(operations))
    assert found[1] == found[2]
    assert int(found[1]) > AT_LEAST
