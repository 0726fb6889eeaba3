"""The list of executions, stopping one, and answering for a human.

| promised | test |
|---|---|
| contract, `/executions`: newest first, with `next_cursor` | `test_the_newest_come_first` |
| contract, `state=`, `limit=` (≤ 100), `cursor=` | `test_what_is_asked_is_passed_on[…]` |
| a wrong one | `test_a_wrong_query_is_400[…]`, `test_a_cursor_from_elsewhere_is_400` |
| contract, `/stop` | `test_a_stop_is_answered_when_it_has_ended[…]`, `…_is_waited_for_…` |
| contract, 400 when it has ended | `test_what_has_ended_cannot_be_stopped` |
| contract, `/resume` in snake_case or camelCase | `test_a_resume_is_taken_in_both_spellings[…]` |
| contract, `{"status", "message", "kickoff_id"}` | `test_a_resume_is_answered[…]` |
| contract, webhook URLs in `/resume` | `test_a_resume_can_name_webhooks` |
| contract, 404 unknown, 400 not waiting | `test_nobody_is_asked_is_400[…]`, `test_an_unknown_…` |
| wrong fields | `test_this_resume_is_400[…]` |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.config.crews import LONGEST_GRACE
from smartlinkd.errors import Invalid
from smartlinkd.store.model import ExecutionState, Status

if TYPE_CHECKING:
    from tests.api.crews.conftest import House, StandIn

ID = "3f1e2d0c-6a5b-4c8d-9e7f-0a1b2c3d4e5f"


# The list


async def test_the_newest_come_first(house: House, executor: StandIn) -> None:
    known = [
        executor.add(status=status) for status in (Status.ERROR, Status.RUNNING, Status.PENDING)
    ]
    answer = await house.own.get("/executions?limit=2", house.token)
    assert answer.status_code == 200
    told = answer.json()
    assert [each["kickoff_id"] for each in told["executions"]] == [known[2].id, known[1].id]
    assert told["next_cursor"] == "older"
    assert set(told["executions"][0]) == {
        "kickoff_id", "state", "status", "error", "current_task", "progress", "execution_time",
        "created_at", "started_at", "finished_at",
    }  # fmt: skip


async def test_an_empty_list_has_no_next(house: House) -> None:
    answer = await house.own.get("/executions", house.token)
    assert answer.json() == {"executions": [], "next_cursor": None}


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
async def test_what_is_asked_is_passed_on(
    house: House, executor: StandIn, query: str, asked: Any
) -> None:
    assert (await house.own.get(f"/executions{query}", house.token)).status_code == 200
    assert executor.asked == [asked]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("limit=0", "limit: must be 1 or more"),
        ("limit=101", "limit: must be 100 or less"),
        ("limit=x", "limit: must be a whole number"),
        ("limit=", "limit: must be a whole number"),
        (f"limit={'9' * 5000}", "limit: must be a"),
        ("state=running", "state: must be 'PENDING', 'RUNNING', 'SUCCESS' or 'FAILED'"),
    ],
)
async def test_a_wrong_query_is_400(house: House, query: str, message: str) -> None:
    answer = await house.own.get(f"/executions?{query}", house.token)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith(message)


async def test_a_cursor_from_elsewhere_is_400(house: House, executor: StandIn) -> None:
    executor.refusal = Invalid("cursor: not one that this list gave")
    answer = await house.own.get("/executions?cursor=%00%ff", house.token)
    assert (answer.status_code, answer.json()["error"]) == (400, "Bad Request")


# Stop


@pytest.mark.parametrize("where", ["under", "root", "own"])
@pytest.mark.parametrize("status", [Status.PENDING, Status.RUNNING, Status.WAITING_FOR_HUMAN_INPUT])
async def test_a_stop_is_answered_when_it_has_ended(
    house: House, executor: StandIn, where: str, status: Status
) -> None:
    known = executor.add(status=status)
    answer = await house.at(where).post(f"/stop/{known.id}", house.token)
    assert answer.status_code == 200
    assert answer.json() == {"status": "stopped", "kickoffId": known.id}
    assert executor.known[known.id].status is Status.STOPPED


async def test_a_stop_is_waited_for_as_long_as_a_worker_may_take(
    house: House, executor: StandIn, mock_clock: MockClock
) -> None:
    executor.takes_to_stop = LONGEST_GRACE
    house.own.http.timeout = None
    known = executor.add()
    answers: list[int] = []

    async def stop() -> None:
        answers.append((await house.own.post(f"/stop/{known.id}", house.token)).status_code)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(stop)
        await executor.stopping.wait()
        await wait_all_tasks_blocked()
        mock_clock.jump(LONGEST_GRACE)
    assert answers == [200]


async def test_what_has_ended_cannot_be_stopped(house: House, executor: StandIn) -> None:
    known = executor.add(status=Status.COMPLETED)
    answer = await house.own.post(f"/stop/{known.id}", house.token)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith("kickoff_id: it has ended already")


async def test_a_body_of_a_stop_is_not_looked_at(house: House, executor: StandIn) -> None:
    known = executor.add()
    assert (await house.own.post(f"/stop/{known.id}", house.token, b"{")).status_code == 200


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
async def test_a_resume_is_taken_in_both_spellings(
    house: House, executor: StandIn, where: str, spelling: str
) -> None:
    known = executor.add(status=Status.WAITING_FOR_HUMAN_INPUT, current_task="1")
    body = answer_of(known.id)
    if spelling == "camelCase":
        body = {CAMEL[name]: value for name, value in body.items()}
    if spelling == "mixed":
        body = {**body, "taskId": body.pop("task_id"), "taskWebhookUrl": None, "more": 1}
    assert (await house.at(where).post("/resume", house.token, body)).status_code == 200
    ((feedback, webhooks),) = executor.feedbacks
    assert (feedback.task_id, feedback.text, feedback.approved) == ("1", "good", True)
    assert webhooks == ()


@pytest.mark.parametrize(("approved", "status"), [(True, "resumed"), (False, "retrying")])
async def test_a_resume_is_answered(
    house: House, executor: StandIn, approved: bool, status: str
) -> None:
    known = executor.add(status=Status.WAITING_FOR_HUMAN_INPUT, current_task="1")
    body = answer_of(known.id, is_approve=approved, human_feedback="")
    told = (await house.own.post("/resume", house.token, body)).json()
    assert (told["status"], told["kickoff_id"]) == (status, known.id)
    assert set(told) == {"status", "message", "kickoff_id"}
    assert executor.feedbacks[0][0].approved is approved


async def test_a_resume_can_name_webhooks(house: House, executor: StandIn) -> None:
    known = executor.add(status=Status.WAITING_FOR_HUMAN_INPUT, current_task="1")
    url = "https://a.example/"
    body = answer_of(known.id, crewWebhookUrl=url, step_webhook_url=url, taskWebhookUrl="")
    assert (await house.own.post("/resume", house.token, body)).status_code == 200
    assert [(each.kind, each.url) for each in executor.feedbacks[0][1]] == [
        ("step", url), ("crew", url),
    ]  # fmt: skip


async def test_a_resume_names_a_wrong_address(house: House, executor: StandIn) -> None:
    known = executor.add(status=Status.WAITING_FOR_HUMAN_INPUT, current_task="1")
    body = answer_of(known.id, crewWebhookUrl="http://10.0.0.1/")
    answer = await house.own.post("/resume", house.token, body)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith("crewWebhookUrl: ")
    assert executor.known[known.id] is known


@pytest.mark.parametrize(
    ("status", "task"),
    [
        (Status.PENDING, None),
        (Status.RUNNING, "1"),
        (Status.COMPLETED, None),
        (Status.WAITING_FOR_HUMAN_INPUT, "2"),
    ],
)
async def test_nobody_is_asked_is_400(
    house: House, executor: StandIn, status: Status, task: str | None
) -> None:
    known = executor.add(status=status, current_task=task)
    answer = await house.own.post("/resume", house.token, answer_of(known.id))
    assert (answer.status_code, answer.json()["error"]) == (400, "Bad Request")


@pytest.mark.parametrize("kickoff_id", [ID, "none", "", "\u0000", "x" * 5000])
async def test_an_unknown_execution_is_404(house: House, kickoff_id: str) -> None:
    answer = await house.own.post("/resume", house.token, answer_of(kickoff_id))
    assert (answer.status_code, answer.json()["error"]) == (404, "Not Found")
    assert answer.json()["message"].startswith("execution_id: ")  # as it is called in this body


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "execution_id: is missing; task_id: is missing; human_feedback: is missing; is_app"),
        (answer_of(ID, is_approve="yes"), "is_approve: must be true or false"),
        (answer_of(ID, is_approve=None), "is_approve: must be true or false"),
        (answer_of(ID, human_feedback=None), "human_feedback: must be a string"),
        (answer_of(ID, task_id=1), "task_id: must be a string"),
        (answer_of(ID, execution_id=1), "execution_id: must be a string"),
    ],
)
async def test_this_resume_is_400(house: House, body: Any, message: str) -> None:
    answer = await house.own.post("/resume", house.token, body)
    assert answer.status_code == 400
    assert message in answer.json()["message"]
