"""The crews' API over the real executor, journal and workers: the ways of a client from end to end.

| promised | test |
|---|---|
| seed 1.2, discovery, execution, monitoring, results | `test_a_client_does_as_the_seed_says[…]` |
| seed 7, 422 with the names | `test_missing_inputs_are_named` |
| a worker that fails | `test_a_failure_is_told` |
| contract, queued is PENDING, full is 503 | `test_the_queue_is_seen_and_has_an_end` |
| contract, `/stop`; what follows ends with it | `test_a_stop_ends_all_that_follows` |
| contract, `/resume` | `test_a_human_is_asked_and_answers` |
| contract, `Idempotency-Key` | `test_a_key_stands_for_one_kickoff`, `test_a_key_is_scoped…` |
| contract, a refused kickoff spends no key | `test_a_refused_kickoff_spends_no_key` |
| contract, `/executions` and its cursor | `test_the_list_is_read_page_by_page` |
| contract, a user's own, same 404 | `test_a_user_meets_a_wall` |
| clients that leave | `test_clients_that_leave_leave_nothing` |
| values that cannot be kept | `test_this_cannot_be_kept[…]` |
| a broken crew | `test_a_broken_crew_takes_no_kickoff` |
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
import trio

from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.executor import Executor
from smartlinkd.crews.model import BrokenCrew, Input
from tests.api.crews.staff import alpha, run_executor

if TYPE_CHECKING:
    from tests.api.crews.conftest import House, OpenHouse

SOON = 15.0  # seconds; whatever takes longer hangs

WORKER = """\
topic = hear()["inputs"]["topic"]
say("started", total_tasks=1)
if topic == "fail":
    say("failed", error="the topic is no good")
    sys.exit()
say("task_started", task_id="t-1", name="write", agent="writer", description="Write it")
if topic == "hang":
    hear()
text = "a post"
if topic == "ask":
    say("human_input", task_id="t-1", prompt="Good?", output=text)
    text += " " + hear()["feedback"]
say("task_completed", task_id="t-1", output=text)
say("result", output=text, output_json={"topic": topic})
"""


@pytest.fixture
def crews(tmp_path: Path) -> Catalog:
    style = Input("style", required=False, default="plain")
    first = alpha(tmp_path, WORKER, other=style, max_running=1)
    return Catalog(
        crews={"alpha": first, "beta": replace(first, name="beta")},
        broken=(BrokenCrew("gamma", (), users=()),),
        default="alpha",
    )


@pytest.fixture
async def real(nursery: trio.Nursery, crews: Catalog, tmp_path: Path) -> Executor:
    return await run_executor(nursery, crews, tmp_path)


@pytest.fixture
async def whole(open_house: OpenHouse, real: Executor) -> AsyncIterator[House]:
    async with open_house(real) as made:
        yield made


async def kickoff(house: House, topic: str, who: str = "alpha", **headers: str) -> str:
    answer = await house.own.post(
        "/kickoff", house.tokens[who], {"inputs": {"topic": topic}}, **headers
    )
    assert answer.status_code == 200, answer.text
    return str(answer.json()["kickoff_id"])


async def until(house: House, kickoff_id: str, *words: str) -> Any:
    """The status, as soon as it is one of these."""
    with trio.fail_after(SOON):
        while True:
            told = (await house.own.get(f"/status/{kickoff_id}?wait=0.2", house.token)).json()
            if told["status"] in words:
                return told


def types(stream: str) -> list[str]:
    """The types of the events in a stream."""
    return [part.split('"')[1] for part in stream.split('{"type":')[1:]]


@pytest.mark.parametrize("where", ["under", "root", "own"])
async def test_a_client_does_as_the_seed_says(whole: House, where: str) -> None:
    at, token = whole.at(where), whole.token
    assert (await at.get("/inputs", token)).json() == {"inputs": ["style", "topic"]}
    body = {"inputs": {"topic": "AI"}, "meta": {"a": 1}, "crewWebhookUrl": None}
    kickoff_id = (await at.post("/kickoff", token, body)).json()["kickoff_id"]
    events = await at.get(f"/events/{kickoff_id}", token)  # until it has ended
    told = (await at.get(f"/status/{kickoff_id}", token)).json()
    assert (told["state"], told["status"], told["error"]) == ("SUCCESS", "completed", None)
    assert (told["result"], told["result_json"]) == ("a post", {"topic": "AI"})
    assert told["progress"] == {"completed_tasks": 1, "total_tasks": 1}
    assert told["last_executed_task"] == {
        "name": "write", "agent": "writer", "description": "Write it", "output": "a post",
    }  # fmt: skip
    assert told["execution_time"] > 0
    assert told["meta"] == {"a": 1}
    assert types(events.text) == [
        "crew_kickoff_started", "task_started", "task_completed", "crew_kickoff_completed",
    ]  # fmt: skip
    rest = await at.get(f"/events/{kickoff_id}", token, Last_Event_ID="3")
    assert types(rest.text) == ["crew_kickoff_completed"]


async def test_missing_inputs_are_named(whole: House) -> None:
    answer = await whole.own.post("/kickoff", whole.token, {"inputs": {"style": None}})
    assert answer.status_code == 422
    assert answer.json()["details"] == {"missing_inputs": ["topic"]}
    assert (await whole.own.get("/executions", whole.token)).json()["executions"] == []


async def test_an_input_given_as_null_is_there(whole: House) -> None:
    answer = await whole.own.post("/kickoff", whole.token, {"inputs": {"topic": None}})
    assert answer.status_code == 200


async def test_a_failure_is_told(whole: House) -> None:
    kickoff_id = await kickoff(whole, "fail")
    told = await until(whole, kickoff_id, "error")
    assert told["state"] == "FAILED"
    assert told["result"] == told["error"] == "the topic is no good"
    events = await whole.own.get(f"/events/{kickoff_id}", whole.token)
    assert types(events.text)[-1] == "crew_kickoff_failed"


async def test_the_queue_is_seen_and_has_an_end(whole: House) -> None:
    known = [await kickoff(whole, "hang")]
    await until(whole, known[0], "running")
    known += [await kickoff(whole, "AI") for _ in range(2)]
    full = await whole.own.post("/kickoff", whole.token, {"inputs": {"topic": "AI"}})
    assert full.status_code == 503
    assert int(full.headers["Retry-After"]) >= 1
    listed = (await whole.own.get("/executions", whole.token)).json()["executions"]
    assert [each["kickoff_id"] for each in listed] == known[::-1]
    assert [each["state"] for each in listed] == ["PENDING", "PENDING", "RUNNING"]
    pending = await whole.own.get("/executions?state=PENDING", whole.token)
    assert len(pending.json()["executions"]) == 2
    assert (await whole.own.post(f"/stop/{known[1]}", whole.token)).status_code == 200
    assert (await until(whole, known[1], "stopped"))["started_at"] is None


async def test_a_stop_ends_all_that_follows(
    whole: House, real: Executor, nursery: trio.Nursery
) -> None:
    kickoff_id = await kickoff(whole, "hang")
    await until(whole, kickoff_id, "running")
    answers: list[Any] = []

    async def ask(path: str) -> None:
        answers.append(await whole.own.get(path, whole.token))

    with trio.fail_after(SOON):
        async with trio.open_nursery() as clients:
            clients.start_soon(ask, f"/events/{kickoff_id}")
            clients.start_soon(ask, f"/status/{kickoff_id}?wait=60")
            while real.followers < 2:
                await trio.lowlevel.checkpoint()
            stopped = await whole.own.post(f"/stop/{kickoff_id}", whole.token)
            assert stopped.json() == {"status": "stopped", "kickoffId": kickoff_id}
            told = (await whole.own.get(f"/status/{kickoff_id}", whole.token)).json()
    assert (told["state"], told["status"]) == ("FAILED", "stopped")
    assert told["error"]
    assert [each.status_code for each in answers] == [200, 200]
    events, status = sorted((each.text for each in answers), key=lambda text: text[0] == "{")
    assert '"type":"crew_kickoff_failed"' in events.replace(" ", "")
    assert json.loads(status)["status"] == "stopped"
    assert real.followers == 0
    again = await whole.own.post(f"/stop/{kickoff_id}", whole.token)
    assert (again.status_code, again.json()["error"]) == (400, "Bad Request")


async def test_a_human_is_asked_and_answers(whole: House) -> None:
    kickoff_id = await kickoff(whole, "ask")
    told = await until(whole, kickoff_id, "waiting_for_human_input")
    assert (told["state"], told["current_task"], told["result"]) == ("RUNNING", "t-1", None)
    body = {"executionId": kickoff_id, "humanFeedback": "indeed", "isApprove": False}
    wrong = await whole.own.post("/resume", whole.token, body | {"taskId": "t-2"})
    assert wrong.status_code == 400
    nulls = dict.fromkeys(("execution_id", "task_id", "human_feedback", "is_approve"))
    answer = await whole.own.post("/resume", whole.token, nulls | body | {"taskId": "t-1"})
    assert (answer.status_code, answer.json()["status"]) == (200, "retrying")
    assert (await until(whole, kickoff_id, "completed"))["result"] == "a post indeed"
    late = await whole.own.post("/resume", whole.token, body | {"taskId": "t-1"})
    assert late.status_code == 400


# Idempotency


async def test_a_key_stands_for_one_kickoff(whole: House) -> None:
    found: list[str] = []

    async def ask() -> None:
        found.append(await kickoff(whole, "AI", Idempotency_Key="k"))

    async with trio.open_nursery() as clients:
        for _ in range(6):
            clients.start_soon(ask)
    assert len(set(found)) == 1
    await until(whole, found[0], "completed")
    assert await kickoff(whole, "AI", Idempotency_Key="k") == found[0]
    same = b'{ "inputs" : {"topic":"A\\u0049"} }'
    answer = await whole.own.post("/kickoff", whole.token, same, Idempotency_Key="k")
    assert answer.json() == {"kickoff_id": found[0]}
    other = {"inputs": {"topic": "AI"}, "unknown": 1}
    answer = await whole.own.post("/kickoff", whole.token, other, Idempotency_Key="k")
    assert (answer.status_code, answer.json()["error"]) == (422, "Validation Error")


async def test_a_key_is_scoped_to_crew_and_token(whole: House) -> None:
    found = {
        await kickoff(whole, "AI", who, Idempotency_Key="k") for who in ("alpha", "ann", "bob")
    }
    answer = await whole.main.post(
        "/crews/beta/kickoff",
        whole.tokens["beta"],
        {"inputs": {"topic": "AI"}},
        Idempotency_Key="k",
    )
    assert len(found | {answer.json()["kickoff_id"]}) == 4


async def test_a_refused_kickoff_spends_no_key(whole: House) -> None:
    wrong_address = {"inputs": {"topic": 1}, "crewWebhookUrl": "x"}
    bodies: list[object] = [{"inputs": {}}, {"inputs": []}, wrong_address]
    for body in bodies:
        answer = await whole.own.post("/kickoff", whole.token, body, Idempotency_Key="k")
        assert answer.status_code in (400, 422)
    assert await kickoff(whole, "AI", Idempotency_Key="k")


# Lists and users


async def test_the_list_is_read_page_by_page(whole: House) -> None:
    known = []
    for _ in range(3):
        known.append(await kickoff(whole, "fail", "ann"))
        await until(whole, known[-1], "error")
    found, cursor = [], ""
    while True:
        page = await whole.own.get(f"/executions?limit=2{cursor}", whole.tokens["ann"])
        found.append([each["kickoff_id"] for each in page.json()["executions"]])
        if page.json()["next_cursor"] is None:
            break
        cursor = f"&cursor={page.json()['next_cursor']}"
    assert found == [known[:0:-1], known[:1]]
    answer = await whole.own.get(f"/executions?{cursor[1:]}", whole.tokens["bob"])
    assert (answer.status_code, answer.json()["executions"]) == (200, [])


@pytest.mark.parametrize("cursor", ["x", "%00", "%ff", "A" * 5000, ""])
async def test_a_cursor_of_ones_own_making_is_400(whole: House, cursor: str) -> None:
    answer = await whole.own.get(f"/executions?cursor={cursor}", whole.token)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith("cursor: ")


async def test_a_user_meets_a_wall(whole: House) -> None:
    hers = await kickoff(whole, "hang", "ann")
    await until(whole, hers, "running")
    for kickoff_id in (hers, str(uuid4())):
        resume = {"execution_id": kickoff_id, "task_id": "t-1", "human_feedback": "",
                  "is_approve": True}  # fmt: skip
        answers = [
            await whole.own.get(f"/status/{kickoff_id}?wait=60", whole.tokens["bob"]),
            await whole.own.get(f"/{kickoff_id}/status", whole.tokens["bob"]),
            await whole.own.get(f"/events/{kickoff_id}", whole.tokens["bob"]),
            await whole.own.post(f"/stop/{kickoff_id}", whole.tokens["bob"]),
            await whole.own.post("/resume", whole.tokens["bob"], resume),
            await whole.main.get(f"/crews/beta/status/{kickoff_id}", whole.tokens["beta"]),
        ]
        assert {answer.status_code for answer in answers} == {404}
        # Each names the id by the name that it has in its request, and nothing else.
        told = {answer.text.replace("execution_id", "kickoff_id") for answer in answers}
        assert len(told) == 1
        assert "execution_id: there is no such" in answers[-2].text
    assert (await until(whole, hers, "running"))["state"] == "RUNNING"
    assert (await whole.own.post(f"/stop/{hers}", whole.tokens["ann"])).status_code == 200


# The rest


async def test_clients_that_leave_leave_nothing(whole: House, real: Executor) -> None:
    kickoff_id = await kickoff(whole, "hang")
    await until(whole, kickoff_id, "running")
    before = trio.lowlevel.current_statistics().tasks_living
    for path in (f"/events/{kickoff_id}", f"/status/{kickoff_id}?wait=60"):
        head = f"GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {whole.token}\r\n\r\n"
        streams = [await trio.open_tcp_stream("127.0.0.1", whole.own.port) for _ in range(5)]
        with trio.fail_after(SOON):
            for stream in streams:
                await stream.send_all(head.encode())
            while real.followers < len(streams):
                await trio.lowlevel.checkpoint()
            for stream in streams:
                await stream.aclose()
            while real.followers or trio.lowlevel.current_statistics().tasks_living > before:
                await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    "inputs",
    [b"NaN", b"Infinity", b"1e999", b'{"a": -Infinity}', b"[" * 300 + b"]" * 300],
    ids=["NaN", "infinity", "too large", "nested", "deep"],
)
async def test_this_cannot_be_kept(whole: House, inputs: bytes) -> None:
    for headers in ({}, {"Idempotency_Key": "k"}):
        body = b'{"inputs": {"topic": ' + inputs + b"}}"
        answer = await whole.own.post("/kickoff", whole.token, body, **headers)
        assert (answer.status_code, answer.json()["error"]) == (400, "Bad Request")
    assert (await whole.own.get("/executions", whole.token)).json()["executions"] == []


async def test_a_broken_crew_takes_no_kickoff(whole: House) -> None:
    answer = await whole.main.post("/crews/gamma/kickoff", whole.tokens["gamma"], {"inputs": {}})
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) >= 1
    assert "gamma" in answer.json()["message"]
