"""Every status that `/openapi.json` names for a crew's operations is one that they can give.

That nothing else is given is checked for every answer of every test here (`conftest.serving`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from smartlinkd.crews.tokens import CrewTokens
from smartlinkd.errors import Invalid, NotFound, Unavailable, Unprocessable
from smartlinkd.store.model import Status

if TYPE_CHECKING:
    from tests.api.conftest import Conformity
    from tests.api.crews.conftest import ServedCrews, StandIn

UNDER = "/crews/{crew}"
REFUSALS = {
    400: Invalid("no"),
    404: NotFound("none"),
    422: Unprocessable("no", details={"a": 1}),
    500: ZeroDivisionError(),
    503: Unavailable("later", retry_after=1),
}
RESUME = {"task_id": "1", "human_feedback": "", "is_approve": True}


def documented(conformity: Conformity) -> dict[str, set[int]]:
    """The statuses of each of a crew's operations."""
    return {
        f"{method} {path.removeprefix(UNDER) or '/'}": set(map(int, operation["responses"]))
        for method, path, operation in conformity.operations()
        if path.startswith(UNDER)
    }


@pytest.mark.parametrize("body_timeout_s", [0.1])
@pytest.mark.parametrize("status", [200, 400, 401, 403, 404, 408, 413, 422, 500, 503])
async def test_each_documented_status_is_given(  # noqa: PLR0917 - fixtures
    served: ServedCrews,
    executor: StandIn,
    conformity: Conformity,
    monkeypatch: pytest.MonkeyPatch,
    body_timeout_s: float,
    status: int,
) -> None:
    operations = [name for name, given in documented(conformity).items() if status in given]
    assert operations
    executor.refusal = REFUSALS.get(status)
    if status in (500, 503):  # in front of all of them, also of those that ask no executor

        async def refuse(*_: object) -> NoReturn:
            raise REFUSALS[status]

        monkeypatch.setattr(CrewTokens, "caller", refuse)
    for name in operations:
        known = executor.add(status=Status.WAITING_FOR_HUMAN_INPUT, current_task="1")
        if "events" in name:
            executor.change(known.id, status=Status.COMPLETED)
        method, path = name.format(kickoff_id=known.id).split()
        body: Any = None
        if method == "POST":
            body = RESUME | {"execution_id": known.id} if path == "/resume" else {}
        if status == 413:
            body = b" " * 100_000
        assert await given(served, method, path, status, body) == status, name


def half_sent(method: str, path: str, token: str) -> bytes:
    """A request whose body never ends."""
    return (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {token}\r\nConnection: close\r\nContent-Length: 9\r\n\r\n"
    ).encode()


async def given(served: ServedCrews, method: str, path: str, status: int, body: Any) -> int:
    """The status of the answer to a request that leads to `status`."""
    if status == 408:
        return int((await served.own.raw(half_sent(method, path, served.token))).split()[1])
    token = "" if status == 401 else served.token
    if status == 403:
        token = await served.make_key("convert")
    return (await served.own.ask(method, path, token, body)).status_code


async def test_documented_statuses_are_these(served: ServedCrews, conformity: Conformity) -> None:
    found = documented(conformity)
    everywhere = {200, 401, 403, 500, 503}
    assert found == {
        "GET /": everywhere,
        "GET /inputs": everywhere,
        "POST /kickoff": everywhere | {400, 408, 413, 422, 429},
        "GET /status/{kickoff_id}": everywhere | {400, 404, 429},
        "GET /executions": everywhere | {400},
        "POST /stop/{kickoff_id}": everywhere | {400, 404},
        "GET /events/{kickoff_id}": everywhere | {400, 404, 429},
        "POST /resume": everywhere | {400, 404, 408, 413, 429},
    }
