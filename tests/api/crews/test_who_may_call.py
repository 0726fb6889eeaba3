"""The callers of a crew. tests/contract and tests/crews test which executions each may see."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from smartlinkd.store.model import Status

if TYPE_CHECKING:
    from tests.api.crews.conftest import FakeExecutor, ServedCrews


async def test_unknown_crew_looks_like_a_wrong_token(served: ServedCrews) -> None:
    wrong = [
        (await served.main.get(f"/crews/{crew}/inputs", "slc_wrong"))
        for crew in ("alpha", "nobody")
    ]
    assert wrong[0].text == wrong[1].text
    of_each = {"date": "", "x-request-id": ""}
    assert {**wrong[0].headers, **of_each} == {**wrong[1].headers, **of_each}


@pytest.mark.parametrize("path", ["/kickoff", "/resume"])
async def test_token_that_is_rotated_while_the_body_comes_is_401(
    served: ServedCrews, executor: FakeExecutor, path: str
) -> None:
    known = executor.add(status=Status.WAITING_FOR_HUMAN_INPUT, current_task="1")
    body: dict[str, Any] = {
        "inputs": {},
        "execution_id": known.id,
        "task_id": "1",
        "human_feedback": "good",
        "is_approve": True,
    }
    rotate = partial(served.crew_tokens.rotate, "alpha")
    answer = await served.at("under").post_late(path, served.token, body, rotate)
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert executor.known == {known.id: known}


async def test_token_that_cannot_be_checked_is_503(served: ServedCrews) -> None:
    served.crew_tokens.mailbox.close("a test says so")
    answer = await served.own.get("/inputs", served.token)
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) >= 1
