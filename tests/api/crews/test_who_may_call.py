"""The callers of a crew, and the executions that a user token may see."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from smartlinkd.store.model import Status

if TYPE_CHECKING:
    from tests.api.crews.conftest import ServedCrews, StandIn

ID = "3f1e2d0c-6a5b-4c8d-9e7f-0a1b2c3d4e5f"
RESUME = {"task_id": "1", "human_feedback": "good", "is_approve": True}

CALLS: dict[str, tuple[str, str, Any]] = {
    "healthy": ("GET", "/", None),
    "inputs": ("GET", "/inputs", None),
    "kickoff": ("POST", "/kickoff", {"inputs": {}}),
    "status": ("GET", "/status/{id}", None),
    "status, otherwise": ("GET", "/{id}/status", None),
    "executions": ("GET", "/executions", None),
    "stop": ("POST", "/stop/{id}", None),
    "events": ("GET", "/events/{id}", None),
    "resume": ("POST", "/resume", RESUME | {"execution_id": "{id}"}),
}
OF_ONE = [name for name, call in CALLS.items() if "{id}" in str(call)]


def call(name: str, kickoff_id: str = ID) -> tuple[str, str, Any]:
    """One of `CALLS` for an execution."""
    method, path, body = CALLS[name]
    if body is not None and "execution_id" in body:
        body = body | {"execution_id": kickoff_id}
    return method, path.replace("{id}", kickoff_id), body


async def test_unknown_crew_looks_like_a_wrong_token(served: ServedCrews) -> None:
    wrong = [
        (await served.main.get(f"/crews/{crew}/inputs", "slc_wrong"))
        for crew in ("alpha", "nobody")
    ]
    assert wrong[0].text == wrong[1].text
    of_each = {"date": "", "x-request-id": ""}
    assert {**wrong[0].headers, **of_each} == {**wrong[1].headers, **of_each}


# Users


async def test_user_and_organization_may_do_everything_with_the_users_execution(
    served: ServedCrews, executor: StandIn
) -> None:
    for who in ["ann", "alpha"]:
        for name in OF_ONE:
            status = Status.WAITING_FOR_HUMAN_INPUT if name == "resume" else Status.PENDING
            known = executor.add(owner="ann", status=status, current_task="1")
            if name == "events":
                executor.change(known.id, status=Status.COMPLETED)
            method, path, body = call(name, known.id)
            answer = await served.own.ask(method, path, served.tokens[who], body)
            assert answer.status_code == 200, (name, who)


async def test_execution_of_another_owner_is_404_to_a_user(
    served: ServedCrews, executor: StandIn
) -> None:
    for owner in ["ann", ""]:
        for name in OF_ONE:
            known = executor.add(
                owner=owner, status=Status.WAITING_FOR_HUMAN_INPUT, current_task="1"
            )
            answers = []
            for kickoff_id in (known.id, str(uuid4()), "none"):
                method, path, body = call(name, kickoff_id)
                answers.append(await served.own.ask(method, path, served.tokens["bob"], body))
            assert {answer.status_code for answer in answers} == {404}, (name, owner)
            assert len({answer.text for answer in answers}) == 1, (name, owner)
            assert executor.known[known.id] is known, (name, owner)


@pytest.mark.parametrize("name", ["kickoff", "resume"])
async def test_token_that_is_rotated_while_the_body_comes_is_401(
    served: ServedCrews, executor: StandIn, name: str
) -> None:
    known = executor.add(status=Status.WAITING_FOR_HUMAN_INPUT, current_task="1")
    _, path, body = call(name, known.id)
    rotate = partial(served.crew_tokens.rotate, "alpha")
    answer = await served.at("under").post_late(path, served.token, body, rotate)
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert executor.known == {known.id: known}


async def test_token_that_cannot_be_checked_is_503(served: ServedCrews) -> None:
    served.crew_tokens.mailbox.close("a test says so")
    answer = await served.own.get("/inputs", served.token)
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) >= 1
