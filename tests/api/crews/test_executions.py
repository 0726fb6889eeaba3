"""The list of executions, stopping one, and answering for a human."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.config.crews import LONGEST_GRACE
from smartlinkd.store.model import ExecutionState, Status

if TYPE_CHECKING:
    from tests.api.crews.conftest import ServedCrews, StandIn

ID = "3f1e2d0c-6a5b-4c8d-9e7f-0a1b2c3d4e5f"


# The list


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ("", {"state": None, "limit": 20, "cursor": None}),
        ("?limit=1", {"state": None, "limit": 1, "cursor": None}),
        ("?limit=100&state=FAILED", {"state": ExecutionState.FAILED, "limit": 100, "cursor": None}),
        (
            "?cursor=a%3D&state=PENDING",
            {"state": ExecutionState.PENDING, "limit": 20, "cursor": "a="},
        ),
    ],
)
async def test_list_query_is_passed_to_the_executor(
    served: ServedCrews, executor: StandIn, query: str, asked: Any
) -> None:
    assert (await served.own.get(f"/executions{query}", served.token)).status_code == 200
    assert executor.asked == [asked]


async def test_executions_with_a_wrong_query_is_400(served: ServedCrews) -> None:
    for query, message in [
        ("limit=0", "limit: must be 1 or more"),
        ("limit=101", "limit: must be 100 or less"),
        ("limit=x", "limit: must be a whole number"),
        ("limit=", "limit: must be a whole number"),
        (f"limit={'9' * 5000}", "limit: must be a"),
        ("state=running", "state: must be 'PENDING', 'RUNNING', 'SUCCESS' or 'FAILED'"),
    ]:
        answer = await served.own.get(f"/executions?{query}", served.token)
        assert answer.status_code == 400, query
        assert answer.json()["message"].startswith(message), query


# Stop


async def test_stop_waits_for_the_longest_grace(
    served: ServedCrews, executor: StandIn, mock_clock: MockClock
) -> None:
    executor.takes_to_stop = LONGEST_GRACE
    served.own.http.timeout = None
    known = executor.add()
    answers: list[int] = []

    async def stop() -> None:
        answers.append((await served.own.post(f"/stop/{known.id}", served.token)).status_code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop)
        await executor.stopping.wait()
        await wait_all_tasks_blocked()
        mock_clock.jump(LONGEST_GRACE)
    assert answers == [200]


# Resume


def answer_of(kickoff_id: str, **different: Any) -> dict[str, Any]:
    """A human's answer in snake_case."""
    whole = {
        "execution_id": kickoff_id,
        "task_id": "1",
        "human_feedback": "good",
        "is_approve": True,
    }
    return whole | different


CAMEL = {
    "execution_id": "executionId",
    "task_id": "taskId",
    "human_feedback": "humanFeedback",
    "is_approve": "isApprove",
}


@pytest.mark.parametrize("where", ["under", "root", "own"])
@pytest.mark.parametrize("spelling", ["snake_case", "camelCase", "mixed"])
async def test_resume_is_read_in_both_spellings(
    served: ServedCrews, executor: StandIn, where: str, spelling: str
) -> None:
    known = executor.add(status=Status.WAITING_FOR_HUMAN_INPUT, current_task="1")
    body = answer_of(known.id)
    if spelling == "camelCase":
        body = {CAMEL[name]: value for name, value in body.items()}
    if spelling == "mixed":
        body = {**body, "taskId": body.pop("task_id"), "taskWebhookUrl": None, "more": 1}
    assert (await served.at(where).post("/resume", served.token, body)).status_code == 200
    ((feedback, webhooks),) = executor.feedbacks
    assert (feedback.task_id, feedback.text, feedback.approved) == ("1", "good", True)
    assert webhooks == ()


async def test_resume_may_replace_webhooks(served: ServedCrews, executor: StandIn) -> None:
    known = executor.add(status=Status.WAITING_FOR_HUMAN_INPUT, current_task="1")
    url = "https://a.example/"
    body = answer_of(known.id, crewWebhookUrl=url, step_webhook_url=url, taskWebhookUrl="")
    assert (await served.own.post("/resume", served.token, body)).status_code == 200
    assert [(each.kind, each.url) for each in executor.feedbacks[0][1]] == [
        ("step", url), ("crew", url),
    ]  # fmt: skip


async def test_resume_with_a_wrong_field_is_400_that_names_it(served: ServedCrews) -> None:
    for body, message in [
        ({}, "execution_id: is missing; task_id: is missing; human_feedback: is missing; is_app"),
        (answer_of(ID, is_approve="yes"), "is_approve: must be true or false"),
        (answer_of(ID, is_approve=None), "is_approve: must be true or false"),
        (answer_of(ID, human_feedback=None), "human_feedback: must be a string"),
        (answer_of(ID, task_id=1), "task_id: must be a string"),
        (answer_of(ID, execution_id=1), "execution_id: must be a string"),
    ]:
        answer = await served.own.post("/resume", served.token, body)
        assert answer.status_code == 400, body
        assert message in answer.json()["message"], body
