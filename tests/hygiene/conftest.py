"""Runs of pytest on tests that misbehave, as the whole test run is configured."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE = 50
"""Seconds for such a run; it takes a few."""


@dataclass
class Outcome:
    """What became of the tests, by name: what was said of those that did not pass."""

    passed: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)
    output: str = ""


RunTests = Callable[..., Outcome]


def _run_tests(folder: Path, name: str, *options: str) -> Outcome:
    report = folder / "report.xml"
    command = [sys.executable, "-m", "pytest", str(Path(__file__).with_name(name))]
    command += ["-p", "no:randomly", "-p", "no:cacheprovider", f"--junitxml={report}", *options]
    # Or it would close pytest's common folder, in which other tests are just now.
    command += [f"--basetemp={folder / 'tests'}"]
    environment = {**os.environ}
    environment.pop("PYTEST_XDIST_WORKER", None)
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    outcome = Outcome(output=done.stdout)
    for case in ET.parse(report).iter("testcase"):
        said = [each for each in case if each.tag in ("failure", "error")]
        if said:
            told = outcome.failed.setdefault(case.attrib["name"], "")
            texts = [f"{each.attrib.get('message')}\n{each.text}" for each in said]
            outcome.failed[case.attrib["name"]] = "\n".join([told, *texts])
        else:
            outcome.passed.add(case.attrib["name"])
    return outcome


@pytest.fixture(scope="session")
def run_tests(tmp_path_factory: pytest.TempPathFactory) -> RunTests:
    """`run_tests("leakers.py", "--option")`: of a file in this folder."""

    def run(name: str, *options: str) -> Outcome:
        return _run_tests(tmp_path_factory.mktemp("run"), name, *options)

    return run
