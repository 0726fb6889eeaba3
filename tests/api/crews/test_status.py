"""An execution's status."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock

from smartlinkd.store.model import Status, TaskRecord
from tests.api.client import answer_in_time

if TYPE_CHECKING:
    from tests.api.crews.conftest import FakeExecutor, ServedCrews

TASKS = (
    TaskRecord(
        "1", name="find", agent="scout", description="Find it", output="two", execution_time=1.5
    ),
    TaskRecord("2", agent="writer"),
)


async def status(served: ServedCrews, kickoff_id: str, query: str = "") -> Any:
    answer = await served.own.get(f"/status/{kickoff_id}{query}", served.token)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_status_has_tasks_progress_and_times(
    served: ServedCrews, executor: FakeExecutor
) -> None:
    step = {"tool": "convert_links", "tool_input": {"links": []}}
    known = executor.add(
        status=Status.COMPLETED,
        tasks=TASKS,
        total_tasks=3,
        current_task="3",
        last_step=step,
        meta={"a": 1},
    )
    told = await status(served, known.id)
    assert told["progress"] == {"completed_tasks": 2, "total_tasks": 3}
    assert told["current_task"] == "3"
    assert told["tasks"] == [
        {"task_id": "1", "name": "find", "agent": "scout", "output": "two", "execution_time": 1.5},
        {"task_id": "2", "name": None, "agent": "writer", "output": None, "execution_time": None},
    ]
    assert told["last_executed_task"] == {
        "name": None, "agent": "writer", "description": None, "output": None,
    }  # fmt: skip
    assert told["last_step"] == step
    assert told["meta"] == {"a": 1}
    assert told["created_at"] == "2026-03-01T12:00:00.000Z"
    assert told["started_at"] == "2026-03-01T12:00:01.000Z"
    assert told["finished_at"] == "2026-03-01T12:00:03.500Z"
    assert told["execution_time"] == 2.5


# Waiting


async def test_wait_ends_when_the_server_stops(
    served: ServedCrews, executor: FakeExecutor, nursery: trio.Nursery
) -> None:
    known = executor.add()

    async def stop() -> None:
        await executor.heard.wait()
        served.stop.set()

    nursery.start_soon(stop)
    with trio.fail_after(5):
        assert (await status(served, known.id, "?wait=50"))["state"] == "PENDING"


@pytest.mark.parametrize(
    ("query", "seconds"),
    [("60", 60.0), ("61", 60.0), ("1e9", 60.0), ("Infinity", 60.0), ("0.5", 0.5), ("1e1", 10.0)],
)
async def test_wait_is_limited_to_a_minute(
    served: ServedCrews, executor: FakeExecutor, query: str, seconds: float
) -> None:
    known = executor.add()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(status, served, known.id, f"?wait={query}")
        await executor.heard.wait()
        executor.change(known.id, status=Status.COMPLETED)
    assert executor.waits == [seconds]


@pytest.mark.parametrize(("query", "asked"), [("", "execution"), ("?wait=1", "wait")])
async def test_status_of_an_executor_that_does_not_answer_is_503(  # noqa: PLR0917 - fixtures
    served: ServedCrews,
    executor: FakeExecutor,
    query: str,
    asked: str,
    monkeypatch: pytest.MonkeyPatch,
    mock_clock: MockClock,
) -> None:
    async def hang(*_: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(executor, asked, hang)
    path = f"/status/{executor.add().id}{query}"
    answer = await answer_in_time(mock_clock, partial(served.own.get, path, served.token))
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) >= 1


async def test_wait_with_a_token_that_is_rotated_meanwhile_is_401(
    served: ServedCrews, executor: FakeExecutor
) -> None:
    known = executor.add()
    answers: list[int] = []

    async def wait() -> None:
        answer = await served.own.get(f"/status/{known.id}?wait=50", served.token)
        answers.append(answer.status_code)

    with trio.fail_after(5):
        async with trio.open_nursery() as waiting:
            waiting.start_soon(wait)
            await executor.heard.wait()
            await served.crew_tokens.rotate("alpha")
            executor.change(known.id, status=Status.COMPLETED)
    assert answers == [401]


# Wrong ids


async def test_malformed_id_is_404(served: ServedCrews) -> None:
    for kickoff_id in [
        "none",
        "1",
        "%00",
        "%ff",
        "%ed%a0%80",
        "..",
        "3F1E2D0C-6A5B-4C8D-9E7F-0A1B2C3D4E5F",
        "3f1e2d0c6a5b4c8d9e7f0a1b2c3d4e5f",
        "%7B3f1e2d0c-6a5b-4c8d-9e7f-0a1b2c3d4e5f%7D",
        "3f1e2d0c-6a5b-4c8d-9e7f-0a1b2c3d4e5f%0a",
        "'%20OR%201=1--",
        "x" * 5000,
    ]:
        for path in (f"/status/{kickoff_id}", f"/stop/{kickoff_id}", f"/events/{kickoff_id}"):
            method = "POST" if "stop" in path else "GET"
            answer = await served.own.ask_raw(method, path, f"Bearer {served.token}")
            assert answer.startswith(b"HTTP/1.1 404 "), path
            assert b'{"error":"Not Found","message":"kickoff_id: ' in answer, kickoff_id
