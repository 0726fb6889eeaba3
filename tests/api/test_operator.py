"""Readiness and status while an actor is down."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from trio.testing import MockClock

from smartlinkd.conversion.service import ConversionService
from tests.api.client import answer_in_time
from tests.api.conftest import crash

if TYPE_CHECKING:
    from tests.api.conftest import Daemon


async def test_status_and_readyz_show_a_part_that_is_down_and_why(
    slow_restarts: None, mock_clock: MockClock, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    await daemon.post("/api/sync-cookie", {"cookie": "SPC_U=4711; SPC_EC=.ec-of-4711"})
    token = await daemon.login()
    monkeypatch.setattr(ConversionService, "convert", crash("a bug in the service"))
    assert (await daemon.convert(token, "https://example.org/")).status_code == 503
    answer = await daemon.get("/readyz")
    assert (answer.status_code, answer.json()["error"]) == (503, "waiting")
    answer = await answer_in_time(mock_clock, partial(daemon.get, "/api/status", token=token))
    status = answer.json()
    assert status["conversion"] is None
    assert status["accounts"] is None
    assert status["cookie"]["accountName"] == "Affiliate"
    conversion = next(part for part in status["actors"] if part["name"] == "conversion")
    assert (conversion["state"], conversion["restarts"]) == ("waiting", 0)
    assert conversion["lastError"] == "ZeroDivisionError: a bug in the service"
    assert conversion["nextRetry"] > 100
