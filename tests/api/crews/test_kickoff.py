"""Starting an execution."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.http_server.app import BODY_SECONDS

if TYPE_CHECKING:
    from pydantic import JsonValue

    from smartlinkd.store.model import WebhookTarget
    from tests.api.crews.conftest import ServedCrews, StandIn

BEARER = {"strategy": "bearer"}
BASIC = {"strategy": "basic", "username": "u", "password": "p"}


async def test_inputs_may_be_any_json(served: ServedCrews, executor: StandIn) -> None:
    for inputs in [
        {"topic": 1, "style": None, "audience": [1, 2.5, {"a": []}], "unknown": {"x": True}},
        {"": "", "{topic}": "a\u0000b", "ключ": "số 1 🎉"},
        {"n": 2**70, "deep": [[[[[]]]]]},
        {},
    ]:
        body = {"inputs": inputs, "restoreFromStateId": None, "Inputs": 1, "crew": "x"}
        assert (await served.own.post("/kickoff", served.token, body)).status_code == 200, inputs
        assert executor.kickoffs[-1][1].inputs == inputs, inputs


async def test_meta_may_be_any_json(served: ServedCrews, executor: StandIn) -> None:
    for meta in [None, {"requestId": "r-1"}, "text", 7, [1], False]:
        await served.own.post("/kickoff", served.token, {"meta": meta})
        assert executor.kickoffs[-1][1].meta == meta, meta


async def test_kickoff_with_a_wrong_body_is_400_that_names_the_fault(
    served: ServedCrews, executor: StandIn
) -> None:
    for body, message in [
        (b"", "the body is empty"),
        (b"{", "not valid JSON"),
        (b'{"inputs": {}} x', "not valid JSON"),
        (b"[" * 50_000, "not valid JSON"),
        (b"[]", "the body must be an object"),
        ({"inputs": []}, "inputs: must be an object"),
        ({"taskWebhookUrl": 1}, "taskWebhookUrl: must be a string"),
        ({"webhooks": []}, "webhooks: must be an object"),
        ({"webhooks": {}}, "webhooks.url: is missing"),
        (
            {"webhooks": {"url": "https://a.example"}},
            "webhooks: needs `events`, the list of the types that are wanted",
        ),
        (
            {"webhooks": {"events": [1], "url": "https://a.example", "realtime": "yes"}},
            "webhooks.events.0: must be a string; webhooks.realtime: must be true or false",
        ),
        (
            {"webhooks": {"events": ["log"] * 101, "url": "https://a.example"}},
            "webhooks.events: has too many items (at most 100)",
        ),
        (
            {"webhooks": {"events": [], "url": "", "authentication": {"strategy": "basic"}}},
            "webhooks.authentication.strategy: must be 'bearer'; "
            "webhooks.authentication.token: is missing",
        ),
        ({"humanInputWebhook": {}}, "humanInputWebhook.url: is missing"),
        (
            {"humanInputWebhook": {"url": "", "authentication": {"strategy": "digest"}}},
            "humanInputWebhook.authentication.strategy: must be 'bearer' or 'basic'",
        ),
        (
            {
                "humanInputWebhook": {
                    "url": "",
                    "authentication": {"strategy": "basic", "username": "u"},
                }
            },
            "humanInputWebhook.authentication: needs `username` and `password`",
        ),
        (
            {"humanInputWebhook": {"url": "", "authentication": BEARER | {"token": "a\r\nX: b"}}},
            "humanInputWebhook.authentication.token: ",
        ),
        (
            {"webhooks": {"events": [], "url": "", "authentication": BEARER | {"token": "a b"}}},
            "webhooks.authentication.token: ",
        ),
        (
            {"humanInputWebhook": {"url": "", "authentication": BASIC | {"username": "a:b"}}},
            "humanInputWebhook.authentication.username: ",
        ),
        ({"inputs": 1, "crewWebhookUrl": 2}, "inputs: must be an object; crewWebhookUrl: must be"),
    ]:
        answer = await served.own.post("/kickoff", served.token, body)
        assert answer.status_code == 400, body
        assert answer.json()["error"] == "Bad Request", body
        assert message in answer.json()["message"], body
        assert "details" not in answer.json(), body
        assert executor.kickoffs == [], body


# Idempotency


async def test_idempotency_key_stands_for_the_whole_body(
    served: ServedCrews, executor: StandIn
) -> None:
    body = {"inputs": {"a": [1, None]}, "crewWebhookUrl": None, "unknown": {"b": 1.0}}
    await served.own.post("/kickoff", served.token, body, Idempotency_Key="k-1")
    ((_, _, key, sent),) = executor.kickoffs
    assert (key, sent) == ("k-1", body)


async def test_forbidden_webhook_address_refuses_new_kickoffs_and_no_repeated_one(
    served: ServedCrews, executor: StandIn
) -> None:
    known = executor.add()
    body: JsonValue = {"crewWebhookUrl": "http://10.0.0.1/"}
    executor.keys.append(("k-1", body, known.id))
    again = await served.own.post("/kickoff", served.token, body, Idempotency_Key="k-1")
    assert (again.status_code, again.json()) == (200, {"kickoff_id": known.id})
    for another in ({"Idempotency_Key": "k-2"}, {}):
        new = await served.own.post("/kickoff", served.token, body, **another)
        assert new.status_code == 400
        assert new.json()["message"].startswith("crewWebhookUrl: 10.0.0.1 is not")
    assert executor.kickoffs == []


async def test_idempotency_key_of_a_wrong_length_is_400(served: ServedCrews) -> None:
    for key, why in [("", "too short"), ("k" * 256, "too long")]:
        answer = await served.own.post("/kickoff", served.token, {}, Idempotency_Key=key)
        assert answer.status_code == 400, key
        assert answer.json()["message"].startswith(f"Idempotency-Key: is {why}"), key


# Webhooks


@pytest.mark.parametrize("value", [None, ""])
@pytest.mark.parametrize("inside", [False, True])
async def test_null_and_empty_webhooks_are_none(
    served: ServedCrews, executor: StandIn, value: str | None, *, inside: bool
) -> None:
    body: dict[str, Any] = dict.fromkeys(
        ("taskWebhookUrl", "stepWebhookUrl", "crewWebhookUrl"), value
    )
    body |= {"webhooks": None, "humanInputWebhook": None}
    if inside:
        body |= {"webhooks": {"events": [], "url": value}, "humanInputWebhook": {"url": value}}
    assert (await served.own.post("/kickoff", served.token, body)).status_code == 200
    for events in ({"events": None}, {}):
        body["webhooks"] = {"url": value, **events}
        assert (await served.own.post("/kickoff", served.token, body)).status_code == 200
    assert [order.webhooks for _, order, *_ in executor.kickoffs] == [()] * 3


def told(target: WebhookTarget) -> tuple[str, str, tuple[str, ...], str | None]:
    auth = None if target.auth is None else target.auth.get_secret_value()
    return target.kind, target.url, target.events, auth


async def test_webhook_is_passed_to_the_executor(served: ServedCrews, executor: StandIn) -> None:
    for body, target in [
        ({"taskWebhookUrl": "https://a.example/t"}, ("task", "https://a.example/t", (), None)),
        ({"step_webhook_url": "https://a.example/s"}, ("step", "https://a.example/s", (), None)),
        ({"crewWebhookUrl": "http://a.example/?c=1"}, ("crew", "http://a.example/?c=1", (), None)),
        ({"crewWebhookUrl": "http://127.0.0.1:9/"}, ("crew", "http://127.0.0.1:9/", (), None)),
        (
            {"webhooks": {"events": ["log", "x"], "url": "https://a.example/e", "realtime": True}},
            ("stream", "https://a.example/e", ("log", "x"), None),
        ),
        (
            {
                "webhooks": {
                    "events": ["log"],
                    "url": "https://a.example/e",
                    "realtime": None,
                    "authentication": {"strategy": "bearer", "token": "t-0.k~n=="},
                }
            },
            ("stream", "https://a.example/e", ("log",), "Bearer t-0.k~n=="),
        ),
        (
            {"humanInputWebhook": {"url": "https://a.example/h", "authentication": None}},
            ("human_input", "https://a.example/h", (), None),
        ),
        (
            {
                "human_input_webhook": {
                    "url": "https://a.example/h",
                    "authentication": {"strategy": "bearer", "token": "t", "username": None},
                }
            },
            ("human_input", "https://a.example/h", (), "Bearer t"),
        ),
        (
            {
                "humanInputWebhook": {
                    "url": "https://a.example/h",
                    "authentication": {"strategy": "basic", "username": "ü", "password": "p:w"},
                }
            },
            ("human_input", "https://a.example/h", (), "Basic w7w6cDp3"),
        ),
    ]:
        assert (await served.own.post("/kickoff", served.token, body)).status_code == 200, body
        assert [told(each) for each in executor.kickoffs[-1][1].webhooks] == [target], body


async def test_kickoff_with_a_forbidden_address_is_400_that_names_it(
    served: ServedCrews, executor: StandIn
) -> None:
    for url in ["ftp://a.example/", "nonsense", "http://10.0.0.1/", "http:///x"]:
        body = {
            "taskWebhookUrl": url,
            "crewWebhookUrl": "https://good.example/",
            "webhooks": {"events": [], "url": url},
            "humanInputWebhook": {"url": url},
        }
        answer = await served.own.post("/kickoff", served.token, body)
        assert answer.status_code == 400, url
        named = [fault.split(": ")[0] for fault in answer.json()["message"].split("; ")]
        assert {"taskWebhookUrl", "webhooks.url", "humanInputWebhook.url"} <= set(named), url
        assert "crewWebhookUrl" not in named, url
        assert executor.kickoffs == [], url


# Sizes


@pytest.mark.parametrize("where", ["under", "own"])
async def test_slow_body_is_408(served: ServedCrews, where: str, mock_clock: MockClock) -> None:
    at = served.at(where)
    path = at.url.partition(str(at.port))[2]
    head = (
        f"POST {path}/kickoff HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {served.token}\r\nConnection: close\r\nContent-Length: 9\r\n\r\n{{"
    )
    async with await trio.open_tcp_stream("127.0.0.1", at.port) as stream:
        await stream.send_all(head.encode())
        await wait_all_tasks_blocked(0.1)
        mock_clock.jump(BODY_SECONDS)
        answer = b"".join([part async for part in stream])
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {
        "error": "Request Timeout",
        "message": "the body did not arrive in time; send it faster",
    }
