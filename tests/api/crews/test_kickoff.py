"""Kickoff of an execution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from smartlinkd.store.model import IdempotencyKey

if TYPE_CHECKING:
    from pydantic import JsonValue

    from smartlinkd.store.model import WebhookTarget
    from tests.api.crews.conftest import FakeExecutor, ServedCrews

URL = "https://a.example/"
BEARER = {"strategy": "bearer"}
BASIC = {"strategy": "basic", "username": "u", "password": "p"}


def stream(**more: object) -> dict[str, Any]:
    """Return a body with a webhook for events."""
    return {"webhooks": {"events": ["log"], "url": URL, **more}}


def human(authentication: object) -> dict[str, Any]:
    """Return a body with a webhook for human input."""
    return {"humanInputWebhook": {"url": URL, "authentication": authentication}}


async def test_kickoff_with_a_wrong_body_is_400_that_names_the_fault(
    served: ServedCrews, executor: FakeExecutor
) -> None:
    token = "webhooks.authentication.token: "
    authentication = "humanInputWebhook.authentication"
    for body, message in [
        (b"", "the body is empty"),
        (b'{"inputs": {}} x', "not valid JSON"),
        ({"taskWebhookUrl": 1}, "taskWebhookUrl: must be a string"),
        ({"inputs": 1, "crewWebhookUrl": 2}, "inputs: must be an object; crewWebhookUrl: must be"),
        ({"webhooks": []}, "webhooks: must be an object"),
        ({"webhooks": {}}, "webhooks.url: is missing"),
        ({"webhooks": {"url": URL}}, "webhooks: needs `events`, the list of the types that are"),
        (
            stream(events=[1], realtime="yes"),
            "webhooks.events.0: must be a string; webhooks.realtime: must be true or false",
        ),
        (stream(events=["log"] * 101), "webhooks.events: has too many items (at most 100)"),
        (stream(authentication=BEARER | {"token": "a b"}), token),
        ({"humanInputWebhook": {}}, "humanInputWebhook.url: is missing"),
        (human({"strategy": "digest"}), f"{authentication}.strategy: must be 'bearer' or 'basic'"),
        (
            human({"strategy": "basic", "username": "u"}),
            f"{authentication}: needs `username` and `password`",
        ),
        (human(BEARER | {"token": "a\r\nX: b"}), f"{authentication}.token: "),
        (human(BASIC | {"username": "a:b"}), f"{authentication}.username: "),
    ]:
        answer = await served.own.post("/kickoff", served.token, body)
        assert answer.status_code == 400, body
        assert answer.json()["error"] == "Bad Request", body
        assert message in answer.json()["message"], body
        assert "details" not in answer.json(), body
        assert executor.kickoffs == [], body


async def test_idempotency_key_stands_for_the_whole_body(
    served: ServedCrews, executor: FakeExecutor
) -> None:
    body: JsonValue = {"inputs": {"a": [1, None]}, "crewWebhookUrl": None, "unknown": {"b": 1.0}}
    await served.own.post("/kickoff", served.token, body, Idempotency_Key="k-1")
    ((_, _, key),) = executor.kickoffs
    assert key == IdempotencyKey("k-1", body)


# Webhooks


async def test_forbidden_webhook_address_refuses_new_kickoffs_and_no_repeated_one(
    served: ServedCrews, executor: FakeExecutor
) -> None:
    known = executor.add()
    body: JsonValue = {
        "crewWebhookUrl": "http://10.0.0.1/",
        "stepWebhookUrl": "https://good.example/",
        "humanInputWebhook": {"url": "ftp://a.example/"},
    }
    executor.keys.append((IdempotencyKey("k-1", body), known.id))
    again = await served.own.post("/kickoff", served.token, body, Idempotency_Key="k-1")
    assert (again.status_code, again.json()) == (200, {"kickoff_id": known.id})
    for another in ({"Idempotency_Key": "k-2"}, {}):
        new = await served.own.post("/kickoff", served.token, body, **another)
        assert new.status_code == 400
        named = [fault.partition(": ")[0] for fault in new.json()["message"].split("; ")]
        assert {"crewWebhookUrl", "humanInputWebhook.url"} <= set(named)
        assert "stepWebhookUrl" not in named
    assert executor.kickoffs == []


async def test_null_and_empty_webhooks_are_none(
    served: ServedCrews, executor: FakeExecutor
) -> None:
    shapes: list[dict[str, Any]] = [{"events": []}, {"events": None}, {}]
    for nothing in (None, ""):
        urls = dict.fromkeys(("taskWebhookUrl", "stepWebhookUrl", "crewWebhookUrl"), nothing)
        bodies: list[dict[str, Any]] = [{"webhooks": None, "humanInputWebhook": None}]
        bodies += [
            {"webhooks": {"url": nothing, **events}, "humanInputWebhook": {"url": nothing}}
            for events in shapes
        ]
        for body in bodies:
            answer = await served.own.post("/kickoff", served.token, {**urls, **body})
            assert answer.status_code == 200, body
            assert executor.kickoffs[-1][1].webhooks == (), body


def told(target: WebhookTarget) -> tuple[str, str, tuple[str, ...], str | None]:
    auth = None if target.auth is None else target.auth.get_secret_value()
    return target.kind, target.url, target.events, auth


async def test_webhook_is_passed_to_the_executor(
    served: ServedCrews, executor: FakeExecutor
) -> None:
    token = BEARER | {"token": "t-0.k~n=="}
    password = BASIC | {"username": "ü", "password": "p:w"}
    for body, target in [
        ({"taskWebhookUrl": URL}, ("task", URL, (), None)),
        ({"step_webhook_url": URL}, ("step", URL, (), None)),
        ({"crewWebhookUrl": "http://a.example/?c=1"}, ("crew", "http://a.example/?c=1", (), None)),
        ({"crewWebhookUrl": "http://127.0.0.1:9/"}, ("crew", "http://127.0.0.1:9/", (), None)),
        (stream(events=["log", "x"], realtime=True), ("stream", URL, ("log", "x"), None)),
        (
            stream(realtime=None, authentication=token),
            ("stream", URL, ("log",), "Bearer t-0.k~n=="),
        ),
        (stream(authentication=password), ("stream", URL, ("log",), "Basic w7w6cDp3")),
        (human(None), ("human_input", URL, (), None)),
        (human(token | {"username": None}), ("human_input", URL, (), "Bearer t-0.k~n==")),
        (human(password), ("human_input", URL, (), "Basic w7w6cDp3")),
        ({"human_input_webhook": {"url": URL}}, ("human_input", URL, (), None)),
    ]:
        assert (await served.own.post("/kickoff", served.token, body)).status_code == 200, body
        assert [told(each) for each in executor.kickoffs[-1][1].webhooks] == [target], body
