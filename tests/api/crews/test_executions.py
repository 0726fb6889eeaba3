"""Stop, human feedback, and wrong parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.config.crews import LONGEST_GRACE
from smartlinkd.store.model import Status

if TYPE_CHECKING:
    from tests.api.crews.conftest import FakeExecutor, ServedCrews

ID = "3f1e2d0c-6a5b-4c8d-9e7f-0a1b2c3d4e5f"


async def test_stop_waits_for_the_longest_grace(
    served: ServedCrews, executor: FakeExecutor, mock_clock: MockClock
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


def answer_of(kickoff_id: str, **different: Any) -> dict[str, Any]:
    """Return a body with human feedback."""
    whole = {
        "execution_id": kickoff_id,
        "task_id": "1",
        "human_feedback": "good",
        "is_approve": True,
    }
    return whole | different


async def test_resume_may_replace_webhooks(served: ServedCrews, executor: FakeExecutor) -> None:
    known = executor.add(status=Status.WAITING_FOR_HUMAN_INPUT, current_task="1")
    url = "https://a.example/"
    body = answer_of(known.id, crewWebhookUrl=url, step_webhook_url=url, taskWebhookUrl="")
    assert (await served.own.post("/resume", served.token, body)).status_code == 200
    assert [(each.kind, each.url) for each in executor.feedbacks[0].webhooks] == [
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


async def test_wrong_parameter_is_400_that_names_it(
    served: ServedCrews, executor: FakeExecutor
) -> None:
    status, events = (f"/{operation}/{executor.add().id}" for operation in ("status", "events"))
    of_status = "wait: must be a number; result: must be 'text' or 'object'"
    for path, headers, message in [
        ("/executions?limit=0", {}, "limit: must be 1 or more"),
        ("/executions?limit=101", {}, "limit: must be 100 or less"),
        ("/executions?limit=", {}, "limit: must be a whole number"),
        (f"/executions?limit={'9' * 5000}", {}, "limit: must be a"),
        ("/executions?state=running", {}, "state: must be 'PENDING', 'RUNNING', 'SUCCESS' or 'FA"),
        (f"{status}?wait=", {}, "wait: must be a number"),
        (f"{status}?wait=-1", {}, "wait: must be 0.0 or more"),
        (f"{status}?wait=nan", {}, "wait: must be 0.0 or more"),
        (f"{status}?wait=5s", {}, "wait: must be a number"),
        (f"{status}?wait=x&result=", {}, of_status),
        *(
            (events, {"Last_Event_ID": last}, "Last-Event-ID: must be ")
            for last in ("x", "-1", "1.5", "", str(2**53), "9" * 5000)
        ),
    ]:
        answer = await served.own.get(path, served.token, **headers)
        assert answer.status_code == 400, path
        assert answer.json()["error"] == "Bad Request", path
        assert answer.json()["message"].startswith(message), path
    for key, message in [("", "is too short"), ("k" * 256, "is too long")]:
        answer = await served.own.post("/kickoff", served.token, {}, Idempotency_Key=key)
        assert answer.status_code == 400, key
        assert answer.json()["message"].startswith(f"Idempotency-Key: {message}"), key
