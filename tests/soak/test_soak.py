"""The soak itself, in half a minute: it does all it is to do, leaves nothing, and sees a leak."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

from tests.soak import report
from tests.soak.jobs import Kind
from tests.soak.judgement import Finding, Limits, Verdict, findings
from tests.soak.leaking import LEAK
from tests.soak.running import Soak, soak
from tests.soak.samples import Sample

pytestmark = [
    pytest.mark.chromium,
    pytest.mark.deadline(240, reason="half a minute's work, with pauses, on any machine"),
]

SEED = 11
MINUTES = 0.5
"""On a machine that has nothing else to do; a busy one takes longer for as many rounds."""
COLD = Limits(daemon=LEAK / 1000 / 4, cold=0)
"""In half a minute it is not warm, and takes more than it may later."""


def short(tmp_path: Path, module: str) -> tuple[Soak, list[Sample]]:
    """As `./run soak` does it: in a run of trio's own."""
    result, told = Soak(MINUTES, SEED), list[Sample]()
    trio.run(partial(soak, result, tmp_path / "daemon.log", tell=told.append, module=module))
    return result, told


def of_daemon(result: Soak) -> Finding:
    """What is found of its memory."""
    found, *_ = findings(result.samples, COLD)
    assert found.what == "the daemon's memory"
    return found


def test_a_short_soak(tmp_path: Path) -> None:
    result, told = short(tmp_path, "tests.soak.observed")
    assert result.book.wrong == []
    assert {sample.name for sample in result.samples} == {"warm-up", "crashes", "mixed"}
    assert told == result.samples
    last = result.samples[-1]
    assert all(last.jobs[kind] > 0 for kind in Kind), last.jobs
    assert last.generation > 0
    assert 0 < result.book.also["killed: chromium"] <= last.values["browser restarts"]
    for column in ("daemon private", "chromium private", "tree private"):
        assert all(sample.values[column] > 1000 for sample in result.samples), column
    assert of_daemon(result).verdict is not Verdict.BROKEN
    assert "short to tell" in report.text(result)


def test_a_leak_is_caught(tmp_path: Path) -> None:
    result, _ = short(tmp_path, "tests.soak.leaking")
    assert result.book.wrong == []
    assert of_daemon(result).verdict is Verdict.BROKEN, of_daemon(result)
