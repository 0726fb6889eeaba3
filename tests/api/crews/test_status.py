"""How an execution stands.

| promised | test |
|---|---|
| seed 4, the status, and the results when complete | `test_a_success_has_a_result[…]` |
| contract, one shape in every state | `test_each_status_has_its_state[…]` |
| contract, `state` in capitals, four words | `test_each_status_has_its_state[…]` |
| contract, `result` is a string | `test_a_success_has_a_result[…]` |
| contract, on FAILED the error's text | `test_a_failure_is_its_own_result[…]` |
| contract, `result_json` | `test_a_success_has_a_result[…]` |
| contract, progress and tasks | `test_tasks_are_told` |
| contract, while human input is awaited | `test_the_task_that_waits_for_a_human_is_told` |
| contract, `?result=object` | `test_the_result_as_an_object[…]` |
| contract, `?wait=` | `test_a_wait_…` |
| architecture, how long it may take | `test_an_executor_that_does_not_answer_is_503[…]` |
| contract, wait: not a number → 400 | `test_a_wrong_query_is_400[…]` |
| contract, `/{kickoff_id}/status` | `test_each_status_has_its_state[…]` |
| an id that is none → 404 | `test_what_is_no_id_is_404[…]` |
| timestamps | `test_times_are_told` |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.api.crews import routes
from smartlinkd.errors import Unavailable
from smartlinkd.store.model import Status, TaskRecord

if TYPE_CHECKING:
    from tests.api.crews.conftest import House, StandIn

TASKS = (
    TaskRecord(
        "1", name="find", agent="scout", description="Find it", output="two", execution_time=1.5
    ),
    TaskRecord("2", agent="writer"),
)
STATES = {
    "pending": "PENDING",
    "running": "RUNNING",
    "waiting_for_human_input": "RUNNING",
    "completed": "SUCCESS",
    "error": "FAILED",
    "stopped": "FAILED",
    "timed_out": "FAILED",
    "interrupted": "FAILED",
}
FIELDS = {
    "kickoff_id", "state", "status", "result", "result_json", "error", "current_task", "progress",
    "last_executed_task", "last_step", "tasks", "execution_time", "created_at", "started_at",
    "finished_at", "meta",
}  # fmt: skip


async def status(house: House, kickoff_id: str, query: str = "") -> Any:
    answer = await house.own.get(f"/status/{kickoff_id}{query}", house.token)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(("word", "state"), STATES.items())
async def test_each_status_has_its_state(
    house: House, executor: StandIn, word: str, state: str
) -> None:
    known = executor.add(status=Status(word))
    for where in ("under", "root", "own"):
        at = house.at(where)
        told = [
            (await at.get(path, house.token)).json()
            for path in (f"/status/{known.id}", f"/{known.id}/status")
        ]
        told = [{**each, "execution_time": 0} for each in told]
        assert told[0] == told[1]
        assert set(told[0]) == FIELDS
        assert (told[0]["kickoff_id"], told[0]["status"], told[0]["state"]) == (
            known.id, word, state,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("result", "parsed"), [("done", None), ('{"a": 1}', {"a": 1}), ("", None), (None, None)]
)
async def test_a_success_has_a_result(
    house: House, executor: StandIn, result: str | None, parsed: Any
) -> None:
    known = executor.add(status=Status.COMPLETED, result=result, result_json=parsed)
    told = await status(house, known.id)
    assert (told["result"], told["result_json"], told["error"]) == (result or "", parsed, None)


@pytest.mark.parametrize(
    "word", [Status.ERROR, Status.STOPPED, Status.TIMED_OUT, Status.INTERRUPTED]
)
@pytest.mark.parametrize("error", ["it broke", None])
async def test_a_failure_is_its_own_result(
    house: House, executor: StandIn, word: Status, error: str | None
) -> None:
    known = executor.add(status=word, error=error, result="half of it")
    told = await status(house, known.id)
    assert (told["result"], told["error"]) == (error or word, error)


@pytest.mark.parametrize("word", [Status.PENDING, Status.RUNNING])
async def test_there_is_no_result_before_the_end(
    house: House, executor: StandIn, word: Status
) -> None:
    known = executor.add(status=word)
    for query in ("", "?result=object"):
        assert (await status(house, known.id, query))["result"] is None


async def test_inputs_are_shown_on_request_alone(house: House, executor: StandIn) -> None:
    known = executor.add(status=Status.RUNNING, inputs={"topic": "son môi"})
    assert (await status(house, known.id, "?inputs=1"))["inputs"] == {"topic": "son môi"}
    assert "inputs" not in await status(house, known.id)


async def test_tasks_are_told(house: House, executor: StandIn) -> None:
    step = {"tool": "convert_links", "tool_input": {"links": []}}
    known = executor.add(
        status=Status.RUNNING,
        tasks=TASKS,
        total_tasks=3,
        current_task="3",
        last_step=step,
        meta={"a": 1},
    )
    told = await status(house, known.id)
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


@pytest.mark.parametrize(("stored", "shown"), [(None, 2), (0, 2), (1, 2), (2, 2), (5, 5)], ids=str)
async def test_total_tasks_is_a_number_and_never_less_than_the_completed_ones(
    house: House, executor: StandIn, stored: int | None, shown: int
) -> None:
    known = executor.add(status=Status.COMPLETED, tasks=TASKS, total_tasks=stored)
    told = await status(house, known.id)
    assert told["progress"] == {"completed_tasks": 2, "total_tasks": shown}
    listed = (await house.main.get("/crews/alpha/executions", house.token)).json()["executions"]
    assert [each["progress"] for each in listed] == [told["progress"]]


async def test_before_the_first_task_there_is_none(house: House, executor: StandIn) -> None:
    told = await status(house, executor.add().id)
    assert told["progress"] == {"completed_tasks": 0, "total_tasks": 0}
    assert (told["tasks"], told["last_executed_task"], told["last_step"]) == ([], None, None)


async def test_the_task_that_waits_for_a_human_is_told(house: House, executor: StandIn) -> None:
    known = executor.add(status=Status.WAITING_FOR_HUMAN_INPUT, current_task="2")
    assert (await status(house, known.id))["current_task"] == "2"


async def test_times_are_told(house: House, executor: StandIn) -> None:
    told = await status(house, executor.add(status=Status.COMPLETED).id)
    assert told["created_at"] == "2026-03-01T12:00:00.000Z"
    assert told["started_at"] == "2026-03-01T12:00:01.000Z"
    assert told["finished_at"] == "2026-03-01T12:00:03.500Z"
    assert told["execution_time"] == 2.5


async def test_times_that_are_not_yet_are_null(house: House, executor: StandIn) -> None:
    told = await status(house, executor.add().id)
    assert (told["started_at"], told["finished_at"], told["execution_time"]) == (None, None, None)
    running = await status(house, executor.add(status=Status.RUNNING).id)
    assert running["finished_at"] is None
    assert running["execution_time"] >= 0


@pytest.mark.parametrize(
    ("word", "output"), [(Status.COMPLETED, "done"), (Status.ERROR, "it broke")]
)
async def test_the_result_as_an_object(
    house: House, executor: StandIn, word: Status, output: str
) -> None:
    known = executor.add(status=word, result="done", error="it broke", tasks=TASKS)
    told = await status(house, known.id, "?result=object")
    assert told["result"] == {"output": output, "tasks": told["tasks"]}
    assert len(told["tasks"]) == 2
    assert (await status(house, known.id, "?result=text"))["result"] == output


# Waiting


async def test_a_wait_is_over_when_the_state_changes(
    house: House, executor: StandIn, nursery: trio.Nursery
) -> None:
    known = executor.add()

    async def begin() -> None:
        await executor.heard.wait()
        executor.change(known.id, status=Status.RUNNING)

    nursery.start_soon(begin)
    with trio.fail_after(5):
        assert (await status(house, known.id, "?wait=50"))["state"] == "RUNNING"
    assert executor.asked == [{"wait": 50.0}]


async def test_wait_for_ended_execution_is_over_at_once(house: House, executor: StandIn) -> None:
    known = executor.add(status=Status.COMPLETED)
    with trio.fail_after(5):
        assert (await status(house, known.id, "?wait=50"))["state"] == "SUCCESS"
    assert executor.asked == [{"wait": 50.0}]


async def test_a_wait_is_over_with_its_time(house: House, executor: StandIn) -> None:
    known = executor.add()
    with trio.fail_after(5):
        assert (await status(house, known.id, "?wait=0.05"))["state"] == "PENDING"


async def test_a_wait_may_be_longer_than_anything_else(
    house: House, executor: StandIn, mock_clock: MockClock
) -> None:
    house.own.http.timeout = None
    known = executor.add()
    told: list[str] = []

    async def wait() -> None:
        told.append((await status(house, known.id, "?wait=60"))["state"])

    async with trio.open_nursery() as waiting:
        waiting.start_soon(wait)
        await executor.heard.wait()
        await wait_all_tasks_blocked()
        mock_clock.jump(60)
    assert told == ["PENDING"]


async def test_a_wait_is_over_when_the_server_stops(
    house: House, executor: StandIn, nursery: trio.Nursery
) -> None:
    known = executor.add()

    async def stop() -> None:
        await executor.heard.wait()
        house.stop.set()

    nursery.start_soon(stop)
    with trio.fail_after(5):
        assert (await status(house, known.id, "?wait=50"))["state"] == "PENDING"


@pytest.mark.parametrize(
    ("query", "seconds"),
    [("60", 60.0), ("61", 60.0), ("1e9", 60.0), ("Infinity", 60.0), ("0.5", 0.5), ("1e1", 10.0)],
)
async def test_a_wait_has_a_limit(
    house: House, executor: StandIn, query: str, seconds: float
) -> None:
    known = executor.add()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(status, house, known.id, f"?wait={query}")
        await executor.heard.wait()
        executor.change(known.id, status=Status.COMPLETED)
    assert executor.asked == [{"wait": seconds}]


async def test_no_wait_is_no_wait(house: House, executor: StandIn) -> None:
    known = executor.add()
    for query in ("", "?wait=0", "?Wait=5", "?wait=0&wait=x"):
        await status(house, known.id, query)
    assert executor.asked == []


async def test_a_client_that_leaves_a_wait_leaves_nothing(house: House, executor: StandIn) -> None:
    known = executor.add()
    head = (
        f"GET /status/{known.id}?wait=50 HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {house.token}\r\n\r\n"
    )
    async with await trio.open_tcp_stream("127.0.0.1", house.own.port) as stream:
        await stream.send_all(head.encode())
        await executor.heard.wait()
        assert executor.waiting == 1
    with trio.fail_after(5):
        await executor.left.wait()


@pytest.mark.parametrize(("query", "asked"), [("", "execution"), ("?wait=0.05", "wait")])
async def test_an_executor_that_does_not_answer_is_503(
    house: House, executor: StandIn, query: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: object) -> None:
        await trio.sleep_forever()

    monkeypatch.setattr(executor, asked, hang)
    monkeypatch.setattr(routes, "PATIENCE", 0.05)
    answer = await house.own.get(f"/status/{executor.add().id}{query}", house.token)
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) >= 1


async def test_who_waits_with_a_rotated_token_is_told_nothing(
    house: House, executor: StandIn
) -> None:
    known = executor.add()
    answers: list[int] = []

    async def wait() -> None:
        answer = await house.own.get(f"/status/{known.id}?wait=50", house.token)
        answers.append(answer.status_code)

    with trio.fail_after(5):
        async with trio.open_nursery() as waiting:
            waiting.start_soon(wait)
            await executor.heard.wait()
            await house.crew_tokens.rotate("alpha")
            executor.change(known.id, status=Status.COMPLETED)
    assert answers == [401]


# Wrong


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("wait=x", "wait: must be a number"),
        ("wait=", "wait: must be a number"),
        ("wait=-1", "wait: must be 0.0 or more"),
        ("wait=nan", "wait: must be 0.0 or more"),
        ("wait=5s", "wait: must be a number"),
        ("result=json", "result: must be 'text' or 'object'"),
        ("wait=x&result=", "wait: must be a number; result: must be 'text' or 'object'"),
    ],
)
async def test_a_wrong_query_is_400(
    house: House, executor: StandIn, query: str, message: str
) -> None:
    answer = await house.own.get(f"/status/{executor.add().id}?{query}", house.token)
    assert answer.status_code == 400
    assert answer.json() == {"error": "Bad Request", "message": message}


@pytest.mark.parametrize(
    "kickoff_id",
    [
        "none", "1", "%00", "%ff", "%ed%a0%80", "..", "3F1E2D0C-6A5B-4C8D-9E7F-0A1B2C3D4E5F",
        "3f1e2d0c6a5b4c8d9e7f0a1b2c3d4e5f", "%7B3f1e2d0c-6a5b-4c8d-9e7f-0a1b2c3d4e5f%7D",
        "3f1e2d0c-6a5b-4c8d-9e7f-0a1b2c3d4e5f%0a", "'%20OR%201=1--", "x" * 5000,
    ],
)  # fmt: skip
async def test_what_is_no_id_is_404(house: House, kickoff_id: str) -> None:
    for path in (f"/status/{kickoff_id}", f"/stop/{kickoff_id}", f"/events/{kickoff_id}"):
        method = "POST" if "stop" in path else "GET"
        request = (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            f"Authorization: Bearer {house.token}\r\nContent-Length: 0\r\n\r\n"
        )
        answer = await house.own.raw(request.encode())
        assert answer.startswith(b"HTTP/1.1 404 "), path
        assert b'{"error":"Not Found","message":"kickoff_id: ' in answer


async def test_a_journal_that_restarts_is_503(house: House, executor: StandIn) -> None:
    known = executor.add()
    executor.refusal = Unavailable("the journal part of the daemon restarted", retry_after=1)
    answer = await house.own.get(f"/status/{known.id}", house.token)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
