"""What the demo says when it does not work; what it does is in `tests/e2e/test_demo.py`."""

from __future__ import annotations

import pytest

from daemon import logs
from daemon.commands import demo


def test_a_step_that_failed_is_told_in_its_own_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fail(*_: object, **__: object) -> None:
        group = ExceptionGroup("in the tour", [demo.StepFailed("POST /api/convert: no")])
        raise ExceptionGroup("in the demo", [group])

    monkeypatch.setattr(demo, "_demo", fail)
    monkeypatch.setattr(logs, "set_up", lambda _: None)
    assert demo.main(once=True, port=0) == 1
    assert capsys.readouterr().err == "demo: POST /api/convert: no\n"
