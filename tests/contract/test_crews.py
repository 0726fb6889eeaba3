"""Crews over HTTP: their addresses, kickoff, status and events, stop, resume, and restarts."""

from __future__ import annotations

import json
import re
import signal
import socket
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio

from tests.e2e.crews.conftest import DONE, Client, employing, meet, receiver

if TYPE_CHECKING:
    from tests.contract.conftest import Daemon
    from tests.e2e.crews.conftest import Employing, Meet, Receiver

__all__ = ["employing", "meet", "receiver"]

Json = dict[str, Any]

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
ASK = """\
say '{"type": "human_input", "task_id": "only", "prompt": "Good?", "output": "a draft"}'
IFS= read -r answer <&3
say '{"type": "task_completed", "task_id": "only", "output": "done"}'
say '{"type": "result", "output": "approved"}'
"""
SHAPE = {
    *("kickoff_id", "state", "status", "result", "result_json", "error", "current_task"),
    *("progress", "last_executed_task", "last_step", "tasks", "execution_time"),
    *("created_at", "started_at", "finished_at", "meta"),
}
OBJECT = """\
say '{"type": "task_completed", "task_id": "only", "output": "x"}'
say '{"type": "result", "output": "{\\"price\\": 7}"}'
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture(scope="module")
def gates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a file lets a crew's worker continue."""
    return tmp_path_factory.mktemp("gates")


@pytest.fixture(scope="module")
def bind() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def house(employing: Employing, gates: Path, bind: str) -> Iterator[Daemon]:
    """A daemon without a browser, with one crew for each case that a test needs."""
    crews: dict[str, Json] = {
        "first": {"default": True, "inputs": ["topic", {"name": "language", "default": "vi"}]},
        "bound": {"bind": bind, "users": ["ann", "bob"]},
        "held": {"gate": gates / "held", "max_running": 1, "queue": 1},
        "waiting": {"gate": gates / "waiting"},
        "human": {"script": ASK, "users": ["ann", "bob"]},
        "object": {"script": OBJECT},
        "failing": {"script": 'say \'{"type": "error", "message": "no luck"}\''},
        "silent": {"script": DONE.replace('"output": "done"', '"output": ""')},
        "late": {"gate": gates / "never", "deadline": 1},
    }
    with employing(crews) as daemon:
        yield daemon
        (gates / "held").touch()


@pytest.fixture
async def first(house: Daemon, meet: Meet) -> Client:
    return await meet(house, "first")


async def until_state(client: Client, kickoff_id: str, *states: str) -> Json:
    """Wait until the execution's `status` is one of these. Return the whole answer."""
    with trio.fail_after(30):
        while True:
            found = await client.status(kickoff_id)
            if found["status"] in states:
                return found
            await client.get(f"/status/{kickoff_id}?wait=1")


def error_of(answer: httpx.Response, status: int) -> Json:
    """Return the body of a failure that has the crews' shape."""
    assert answer.status_code == status, answer.text
    body: Json = answer.json()
    assert body.keys() - {"details"} == {"error", "message"}
    assert body["error"]
    assert body["message"]
    return body


async def followers(daemon: Daemon) -> float:
    """Return the number of requests that wait for a status or follow events."""
    metrics = await daemon.metrics()
    return sum(value for name, value in metrics.items() if "execution_followers" in name)


# Addresses


async def test_crew_is_at_its_path_and_the_default_one_at_root(
    house: Daemon, first: Client
) -> None:
    for path in ("/crews/first", ""):
        answer = await house.ask("GET", f"{path}/inputs", token=first.token)
        assert (answer.status_code, answer.json()) == (200, {"inputs": ["language", "topic"]})
        health = await house.ask("GET", f"{path}/", token=first.token)
        assert (health.status_code, health.text) == (200, "Healthy")
    assert (await house.ask("GET", "/crews/first/")).status_code == 401


async def test_crew_with_a_bind_has_an_address_of_its_own(
    house: Daemon, meet: Meet, bind: str
) -> None:
    client = await meet(house, "bound")
    headers = {"Authorization": f"Bearer {client.token}"}
    async with httpx.AsyncClient(
        base_url=f"http://{bind}", headers=headers, trust_env=False
    ) as http:
        assert (await http.get("/")).text == "Healthy"
        begun = (await http.post("/kickoff", json={"inputs": {}})).json()["kickoff_id"]
        assert (await http.get(f"/status/{begun}")).status_code == 200
        error_of(await http.get("/none"), 404)
    assert (await client.ended(begun))["state"] == "SUCCESS"


# Kickoff


async def test_kickoff_takes_null_webhooks_unknown_keys_and_any_json(first: Client) -> None:
    body = {
        "inputs": {"topic": {"deep": [1, None, True]}, "language": None},
        "meta": {"order": 7},
        "taskWebhookUrl": None,
        "stepWebhookUrl": None,
        "crewWebhookUrl": None,
        "unknown": 1,
    }
    answer = await first.ask("POST", "/kickoff", body)
    assert answer.status_code == 200, answer.text
    assert answer.json().keys() == {"kickoff_id"}
    kickoff_id = answer.json()["kickoff_id"]
    assert uuid.UUID(kickoff_id).version == 4
    ended = await first.ended(kickoff_id)
    assert (ended["state"], ended["meta"]) == ("SUCCESS", {"order": 7})


async def test_kickoff_of_another_format_is_400(house: Daemon, first: Client) -> None:
    bodies: list[object] = [[], "text", {"inputs": []}, {"inputs": "x"}]
    for body in bodies:
        error_of(await first.ask("POST", "/kickoff", body), 400)
    async with httpx.AsyncClient(base_url=house.url, trust_env=False) as http:
        headers = {
            "Authorization": f"Bearer {first.token}",
            "Content-Type": "application/json",
            "Strange_Name": "an underscore",
        }
        broken = await http.post("/crews/first/kickoff", content=b"{", headers=headers)
        error_of(broken, 400)
        good = b'{"inputs": {"topic": 1}}'
        taken = await http.post("/crews/first/kickoff", content=good, headers=headers)
        assert taken.status_code == 200


async def test_missing_required_input_is_422_that_names_it(first: Client) -> None:
    for body in ({}, {"inputs": None}, {"inputs": {"language": "en"}}):
        refused = error_of(await first.ask("POST", "/kickoff", body), 422)
        assert refused["details"] == {"missing_inputs": ["topic"]}
    taken = await first.ask("POST", "/kickoff", {"inputs": {"topic": None}})
    assert taken.status_code == 200


async def test_idempotency_key_returns_the_same_execution(house: Daemon, meet: Meet) -> None:
    client, user = await meet(house, "bound"), await meet(house, "bound", user="ann")
    elsewhere = await meet(house, "object")
    ids: list[str] = []

    async def kick_off() -> None:
        ids.append(await client.kick_off({"a": 1, "b": [2]}, key="order-7"))

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(kick_off)
    assert len(set(ids)) == 1
    same = {"inputs": {"b": [2], "a": 1.0}}
    again = await client.ask("POST", "/kickoff", same, Idempotency_Key="order-7")
    assert again.json()["kickoff_id"] == ids[0]
    other = await client.ask("POST", "/kickoff", {"inputs": {}}, Idempotency_Key="order-7")
    error_of(other, 422)
    others = [await each.kick_off({"a": 1, "b": [2]}, key="order-7") for each in (user, elsewhere)]
    assert len({ids[0], *others}) == 3


async def test_refused_kickoff_spends_no_key(first: Client) -> None:
    refused = await first.ask("POST", "/kickoff", {"inputs": {}}, Idempotency_Key="spent")
    error_of(refused, 422)
    taken = await first.ask("POST", "/kickoff", {"inputs": {"topic": 1}}, Idempotency_Key="spent")
    assert taken.status_code == 200


async def test_full_queue_is_429_or_503_with_retry_after(house: Daemon, meet: Meet) -> None:
    client = await meet(house, "held")
    running = await client.kick_off()
    await until_state(client, running, "running")
    queued = await client.kick_off()
    pending = await client.status(queued)
    assert (pending["state"], pending["status"]) == ("PENDING", "pending")
    assert pending.keys() == SHAPE
    refused = await client.ask("POST", "/kickoff", {"inputs": {}})
    assert refused.status_code in (429, 503)
    assert int(refused.headers["Retry-After"]) > 0
    error_of(refused, refused.status_code)
    for each in (queued, running):
        await client.stop(each)


# Status and events


async def test_status_has_one_shape_from_running_to_its_end(
    house: Daemon, meet: Meet, gates: Path
) -> None:
    client = await meet(house, "waiting")
    kickoff_id = await client.kick_off()
    running = await until_state(client, kickoff_id, "running")
    assert running.keys() == SHAPE
    assert (running["state"], running["result"], running["finished_at"]) == ("RUNNING", None, None)
    assert re.fullmatch(TIME, running["created_at"])
    (gates / "waiting").touch()
    ended = await client.ended(kickoff_id)
    assert ended.keys() == SHAPE
    assert (ended["state"], ended["status"], ended["result"]) == ("SUCCESS", "completed", "done")
    assert ended["progress"] == {"completed_tasks": 1, "total_tasks": 1}
    (task,) = ended["tasks"]
    assert task.keys() == {"task_id", "name", "agent", "output", "execution_time"}
    assert ended["last_executed_task"].keys() == {"name", "agent", "description", "output"}
    other = await client.get(f"/{kickoff_id}/status")
    assert other == ended
    wanted = await client.get(f"/status/{kickoff_id}?result=object")
    assert wanted["result"]["output"] == "done"
    assert len(wanted["result"]["tasks"]) == 1


async def test_result_that_is_json_is_parsed_beside_its_text(house: Daemon, meet: Meet) -> None:
    client = await meet(house, "object")
    ended = await client.ended(await client.kick_off())
    assert (ended["result"], ended["result_json"]) == ('{"price": 7}', {"price": 7})


async def test_result_of_success_is_never_null(house: Daemon, meet: Meet) -> None:
    client = await meet(house, "silent")
    ended = await client.ended(await client.kick_off())
    assert (ended["state"], ended["result"]) == ("SUCCESS", "")


async def test_failed_execution_has_its_error_as_result(house: Daemon, meet: Meet) -> None:
    client = await meet(house, "failing")
    ended = await client.ended(await client.kick_off())
    assert (ended["state"], ended["status"]) == ("FAILED", "error")
    assert "no luck" in ended["error"]
    assert ended["result"] == ended["error"]
    assert ended.keys() == SHAPE


async def test_execution_beyond_its_deadline_has_timed_out(house: Daemon, meet: Meet) -> None:
    client = await meet(house, "late")
    ended = await client.ended(await client.kick_off())
    assert (ended["state"], ended["status"]) == ("FAILED", "timed_out")


async def test_wait_answers_at_a_change_at_the_end_or_in_time(house: Daemon, meet: Meet) -> None:
    client = await meet(house, "human")
    kickoff_id = await client.kick_off()
    await until_state(client, kickoff_id, "waiting_for_human_input")
    unchanged = await client.get(f"/status/{kickoff_id}?wait=0.2")
    assert unchanged["state"] == "RUNNING"
    answers: list[Json] = []

    async def wait() -> None:
        answers.append(await client.get(f"/status/{kickoff_id}?wait=1000"))

    async def is_waited() -> bool:
        return await followers(house) > 0

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await house.until("somebody waits", is_waited)
            assert answers == []
            await client.stop(kickoff_id)
    assert answers[0]["state"] == "FAILED"
    with trio.fail_after(10):
        await client.get(f"/status/{kickoff_id}?wait=60")
    error_of(await client.ask("GET", f"/status/{kickoff_id}?wait=soon"), 400)


async def test_events_come_from_the_start_or_after_the_last_one_seen(
    house: Daemon, first: Client
) -> None:
    kickoff_id = await first.kick_off({"topic": 1})
    await first.ended(kickoff_id)
    answer = await first.ask("GET", f"/events/{kickoff_id}")
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    ids = re.findall(r"^id: ?(.*)$", answer.text, re.MULTILINE)
    data = [json.loads(line) for line in re.findall(r"^data: ?(.*)$", answer.text, re.MULTILINE)]
    assert len(ids) == len(data) > 2
    assert all(each.keys() >= {"type", "timestamp", "data"} for each in data)
    for last, left in ((ids[1], ids[2:]), (ids[-1], []), ("9999", [])):
        rest = await first.ask("GET", f"/events/{kickoff_id}", Last_Event_ID=last)
        assert re.findall(r"^id: ?(.*)$", rest.text, re.MULTILINE) == left


async def test_events_of_a_running_execution_come_live_and_end_with_it(
    house: Daemon, meet: Meet
) -> None:
    client = await meet(house, "human")
    kickoff_id = await client.kick_off()
    await until_state(client, kickoff_id, "waiting_for_human_input")
    headers = {"Authorization": f"Bearer {client.token}"}
    url = f"{house.url}/crews/human/events/{kickoff_id}"
    types = []
    async with (
        httpx.AsyncClient(headers=headers, trust_env=False, timeout=30) as http,
        http.stream("GET", url) as stream,
    ):
        async for line in stream.aiter_lines():
            if line.startswith("data: "):
                types.append(json.loads(line.removeprefix("data: "))["type"])
                if types[-1] == "human_input_requested":
                    await client.stop(kickoff_id)
    assert types.index("human_input_requested") < len(types) - 1


async def test_executions_are_listed_newest_first_in_pages(house: Daemon, meet: Meet) -> None:
    client = await meet(house, "object")
    ids = [await client.kick_off() for _ in range(3)]
    for each in ids:
        await client.ended(each)
    page = await client.get("/executions?limit=2")
    assert [each["kickoff_id"] for each in page["executions"]] == [ids[2], ids[1]]
    after = await client.get(f"/executions?state=SUCCESS&limit=1&cursor={page['next_cursor']}")
    assert after["executions"][0]["kickoff_id"] == ids[0]
    listed = (await client.get("/executions?state=FAILED"))["executions"]
    assert not {each["kickoff_id"] for each in listed} & set(ids)
    for wrong in ("limit=101", "limit=0", "state=DONE", "cursor=nonsense"):
        error_of(await client.ask("GET", f"/executions?{wrong}"), 400)


# Stop and resume


async def test_stop_ends_an_execution_once(house: Daemon, meet: Meet) -> None:
    client = await meet(house, "human")
    kickoff_id = await client.kick_off()
    await until_state(client, kickoff_id, "waiting_for_human_input")
    answer = await client.ask("POST", f"/stop/{kickoff_id}")
    assert answer.json() == {"status": "stopped", "kickoffId": kickoff_id}
    ended = await client.ended(kickoff_id)
    assert (ended["state"], ended["status"]) == ("FAILED", "stopped")
    error_of(await client.ask("POST", f"/stop/{kickoff_id}"), 400)
    error_of(await client.ask("POST", f"/stop/{uuid.uuid4()}"), 404)


@pytest.mark.parametrize("case", ["snake", "camel"])
async def test_resume_answers_the_question_that_waits(
    house: Daemon, meet: Meet, receiver: Receiver, case: str
) -> None:
    client = await meet(house, "human")
    kickoff_id = await client.kick_off(
        crewWebhookUrl=f"{receiver.url}/end",
        taskWebhookUrl=f"{receiver.url}/task",
        humanInputWebhook={"url": f"{receiver.url}/human"},
    )
    asked = await until_state(client, kickoff_id, "waiting_for_human_input")
    assert asked["state"] == "RUNNING"
    assert asked.keys() == SHAPE
    task = asked["current_task"]
    body: Json = {
        "execution_id": kickoff_id,
        "task_id": task,
        "human_feedback": "fine",
        "is_approve": True,
    }
    if case == "camel":
        names = {"execution_id": "executionId", "task_id": "taskId"}
        names |= {"human_feedback": "humanFeedback", "is_approve": "isApprove"}
        body = {names[name]: value for name, value in body.items()}
    answer = await client.ask("POST", "/resume", body)
    assert answer.status_code == 200, answer.text
    assert answer.json().keys() >= {"status", "message", "kickoff_id"}
    assert (await client.ended(kickoff_id))["result"] == "approved"
    error_of(await client.ask("POST", "/resume", body), 400)
    unknown = body | {next(iter(body)): str(uuid.uuid4())}
    error_of(await client.ask("POST", "/resume", unknown), 404)
    with trio.fail_after(20):  # the webhooks of the kickoff stay in force
        while not all(map(receiver.at, ("/human", "/task", "/end"))):  # noqa: ASYNC110 - no event
            await trio.sleep(0.02)
    assert {call.body["kickoff_id"] for call in receiver.at("/end")} == {kickoff_id}


# Errors


async def test_errors_have_the_crews_shape_on_all_its_paths(house: Daemon, first: Client) -> None:
    for path in ("/crews/first", ""):
        missing = await house.ask("GET", f"{path}/inputs")
        error_of(missing, 401)
        assert missing.headers["WWW-Authenticate"].startswith("Bearer")
        error_of(await house.ask("GET", f"{path}/inputs", token="wrong"), 401)
        unknown = f"{path}/status/{uuid.uuid4()}"
        error_of(await house.ask("GET", unknown, token=first.token), 404)
        wrong_method = await house.ask("DELETE", f"{path}/kickoff", token=first.token)
        error_of(wrong_method, 405)
        assert "POST" in wrong_method.headers["Allow"]
        large = {"inputs": {"topic": "x" * (1 << 20)}}
        error_of(await house.ask("POST", f"{path}/kickoff", large, token=first.token), 413)
    error_of(await house.ask("GET", "/crews/nobody/inputs", token=first.token), 401)


# Tokens


async def test_user_token_sees_its_own_executions_alone(house: Daemon, meet: Meet) -> None:
    organization = await meet(house, "human")
    ann, bob = await meet(house, "human", user="ann"), await meet(house, "human", user="bob")
    own = await ann.kick_off()
    await until_state(ann, own, "waiting_for_human_input")
    assert (await ann.get("/inputs"))["inputs"] == []
    assert own in await ann.ids()
    assert own in await organization.ids()
    assert own not in await bob.ids()
    resume = {"execution_id": own, "task_id": "only", "human_feedback": "", "is_approve": True}
    for refused in (
        await bob.ask("GET", f"/status/{own}"),
        await bob.ask("GET", f"/events/{own}"),
        await bob.ask("POST", f"/stop/{own}"),
        await bob.ask("POST", "/resume", resume),
    ):
        error_of(refused, 404)
    answer = await ann.ask("POST", "/resume", resume)
    assert answer.status_code == 200, answer.text
    assert (await ann.ended(own))["result"] == "approved"
    assert len(await ann.events(own)) > 2
    other = await ann.kick_off()
    await ann.stop(other)
    assert (await organization.status(other))["status"] == "stopped"


async def test_token_is_rotated_alone(house: Daemon, meet: Meet) -> None:
    ann, bob = await meet(house, "bound", user="ann"), await meet(house, "bound", user="bob")
    assert (await meet(house, "bound", user="ann")).token == ann.token
    body = {"crew": "bound", "user": "ann"}
    rotated = await house.ask("POST", "/api/crews/token/rotate", body, token=await house.login())
    new = rotated.json()["token"]
    house.secrets.add(new)
    assert new != ann.token
    error_of(await ann.ask("GET", "/inputs"), 401)
    assert (await house.ask("GET", "/crews/bound/inputs", token=new)).status_code == 200
    assert (await bob.get("/inputs"))["inputs"] == []


async def test_token_opens_its_own_crew_alone(house: Daemon, first: Client) -> None:
    error_of(await house.ask("GET", "/crews/human/inputs", token=first.token), 401)


# After a kill


async def test_after_a_kill_running_is_interrupted_or_rerun_and_queued_runs(
    employing: Employing, meet: Meet, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    crews: dict[str, Json] = {
        "once": {"gate": gate, "max_running": 1},
        "again": {"gate": gate, "on_restart": "rerun"},
    }
    with employing(crews) as daemon:
        once, again = await meet(daemon, "once"), await meet(daemon, "again")
        running, queued = await once.kick_off(), await once.kick_off()
        rerun = await again.kick_off()
        await until_state(once, running, "running")
        before = (await until_state(again, rerun, "running"))["started_at"]
        last = await once.kick_off()
        await daemon.kill()  # at once: an answered kickoff is on the disk
        gate.touch()
        daemon.start()
        ended = await once.ended(running)
        assert (ended["state"], ended["status"]) == ("FAILED", "interrupted")
        for each in (queued, last):
            assert (await once.ended(each))["state"] == "SUCCESS"
        ended = await again.ended(rerun)
        assert ended["state"] == "SUCCESS"
        assert ended["started_at"] > before
        assert await once.ids() == [running, queued, last]


async def test_retention_forgets_the_oldest_that_have_ended(
    employing: Employing, meet: Meet
) -> None:
    with employing({"crew": {}}) as daemon:
        client = await meet(daemon, "crew")
        ids = []
        for _ in range(3):  # one after the other: the first one that ends is deleted first
            ids.append(await client.kick_off())
            await client.ended(ids[-1])
        assert await client.ids() == ids
        text = daemon.config.read_text()
        daemon.config.write_text(f"{text}\n[journal]\nretention_count = 2\n")
        daemon.program.process.send_signal(signal.SIGHUP)

        async def pruned() -> bool:
            return await client.ids() == ids[1:]

        await daemon.until("the oldest is forgotten", pruned)
