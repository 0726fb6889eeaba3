"""Request ids in the log records of all actors.

Each answer of every test here is checked for a request id (`conftest.Conformity`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from smartlinkd import logs
from smartlinkd.admin.control_socket import call
from smartlinkd.logs.context import ContextFilter

if TYPE_CHECKING:
    from tests.api.conftest import Daemon, Start

Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[Lines]:
    """Return a function that returns the daemon's log records as JSON objects."""
    caplog.set_level("INFO", "smartlinkd")
    context, formatter = ContextFilter(), logs.JsonFormatter()
    caplog.handler.addFilter(context)
    yield lambda: [json.loads(formatter.format(each)) for each in caplog.records]
    caplog.handler.removeFilter(context)


async def test_log_lines_of_other_parts_have_the_request_id(start: Start, lines: Lines) -> None:
    nobody = "http://127.0.0.1:1"
    daemon = await start(marketplace={"short_urls": [nobody]})
    body = {"links": [f"{nobody}/nowhere"]}
    token = await daemon.login()
    answer = await daemon.post("/api/convert", body, token=token, X_Request_Id="mine")
    assert (answer.status_code, answer.headers["X-Request-Id"]) == (200, "mine")
    (line,) = [line for line in lines() if "/nowhere" in line["message"]]
    assert (line["request_id"], line["actor"]) == ("mine", "conversion")


async def test_control_command_has_a_request_id(daemon: Daemon, lines: Lines) -> None:
    for _ in range(2):
        await call(daemon.state, "account clear")
    asked = [line for line in lines() if line["message"] == "control command: account clear"]
    assert len({line["request_id"] for line in asked}) == 2
    assert {line["actor"] for line in asked} == {"control"}
