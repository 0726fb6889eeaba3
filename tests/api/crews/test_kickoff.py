"""Starting an execution.

| promised | test |
|---|---|
| seed 4, the response carries kickoff_id | `test_a_kickoff_is_answered_with_its_id[…]` |
| contract, any JSON value as an input, unknown keys | `test_inputs_are_any_json[…]` |
| contract, `inputs` missing or null counts as `{}` | `test_no_inputs_are_empty_inputs[…]` |
| contract, 400: not JSON, not an object, `inputs` not an object | `test_a_wrong_body_is_400[…]` |
| seed 7, 422: required inputs missing | `test_missing_inputs_are_422` |
| contract, `meta` | `test_meta_is_anything[…]` |
| contract, null webhook URLs; an empty one | `test_no_webhooks[…]` |
| contract, each webhook, with its credentials | `test_webhooks_are_handed_on[…]` |
| addresses that may not be called | `test_a_wrong_address_is_named[…]` |
| contract, `Idempotency-Key` | `test_a_key_goes_with_the_whole_body`, `test_a_key_that…` |
| contract, header names with an underscore | `test_a_header_may_have_an_underscore` |
| contract, 503 with `Retry-After` when the queue is full | `test_a_full_queue_is_503` |
| contract, 413 and 408 | `test_a_body_over_the_limit_is_413`, `test_a_slow_body_is_408` |
| nothing secret in a refusal | `test_a_value_is_never_repeated` |
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from smartlinkd.errors import Invalid, Unavailable, Unprocessable
from smartlinkd.http_server import app as http_app
from smartlinkd.store.errors import KeyReused

if TYPE_CHECKING:
    from pydantic import JsonValue

    from smartlinkd.store.model import WebhookTarget
    from tests.api.crews.conftest import House, StandIn

LONG = "x" * 5000


@pytest.mark.parametrize("where", ["under", "root", "own"])
async def test_a_kickoff_is_answered_with_its_id(
    house: House, executor: StandIn, where: str
) -> None:
    answer = await house.at(where).post("/kickoff", house.token, {"inputs": {"topic": "AI"}})
    assert answer.status_code == 200
    assert list(answer.json()) == ["kickoff_id"]
    assert UUID(answer.json()["kickoff_id"]).version == 4
    ((caller, kickoff, key, _),) = executor.kickoffs
    assert (caller.crew, caller.user) == ("alpha", "")
    assert (kickoff.inputs, kickoff.meta, kickoff.webhooks, key) == (
        {"topic": "AI"},
        None,
        (),
        None,
    )


@pytest.mark.parametrize(
    "inputs",
    [
        {"topic": 1, "style": None, "audience": [1, 2.5, {"a": []}], "unknown": {"x": True}},
        {"": "", "{topic}": "a\u0000b", "ключ": "số 1 🎉"},
        {"n": 2**70, "deep": [[[[[]]]]]},
        {},
    ],
)
async def test_inputs_are_any_json(house: House, executor: StandIn, inputs: Any) -> None:
    body = {"inputs": inputs, "restoreFromStateId": None, "Inputs": 1, "crew": "x"}
    assert (await house.own.post("/kickoff", house.token, body)).status_code == 200
    assert executor.kickoffs[0][1].inputs == inputs


@pytest.mark.parametrize("body", [{}, {"inputs": None}, {"input": {"topic": 1}}])
async def test_no_inputs_are_empty_inputs(house: House, executor: StandIn, body: Any) -> None:
    assert (await house.own.post("/kickoff", house.token, body)).status_code == 200
    assert executor.kickoffs[0][1].inputs == {}


@pytest.mark.parametrize("meta", [None, {"requestId": "r-1"}, "text", 7, [1], False])
async def test_meta_is_anything(house: House, executor: StandIn, meta: Any) -> None:
    await house.own.post("/kickoff", house.token, {"meta": meta})
    assert executor.kickoffs[0][1].meta == meta


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is empty"),
        (b"{", "not valid JSON"),
        (b'{"inputs": {}} x', "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b"[" * 50_000, "not valid JSON"),
        (b"[]", "the body must be an object"),
        (b"null", "the body must be an object"),
        (b'"x"', "the body must be an object"),
        ({"inputs": []}, "inputs: must be an object"),
        ({"inputs": "topic"}, "inputs: must be an object"),
        ({"inputs": 0}, "inputs: must be an object"),
        ({"taskWebhookUrl": 1}, "taskWebhookUrl: must be a string"),
        ({"stepWebhookUrl": {}}, "stepWebhookUrl: must be a string"),
        ({"crewWebhookUrl": []}, "crewWebhookUrl: must be a string"),
        ({"webhooks": []}, "webhooks: must be an object"),
        ({"webhooks": {}}, "webhooks.url: is missing"),
        (
            {"webhooks": {"url": "https://a.example"}},
            "webhooks: needs `events`, the list of the types that are wanted",
        ),
        (
            {"webhooks": {"events": "all", "url": "https://a.example"}},
            "webhooks.events: must be an array",
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
            {"humanInputWebhook": {"url": "", "authentication": {"strategy": "bearer"}}},
            "humanInputWebhook.authentication: needs `token`",
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
        ({"inputs": 1, "crewWebhookUrl": 2}, "inputs: must be an object; crewWebhookUrl: must be"),
    ],
)
async def test_a_wrong_body_is_400(
    house: House, executor: StandIn, body: Any, message: str
) -> None:
    answer = await house.own.post("/kickoff", house.token, body)
    assert answer.status_code == 400
    assert answer.json()["error"] == "Bad Request"
    assert message in answer.json()["message"]
    assert "details" not in answer.json()
    assert executor.kickoffs == []


@pytest.mark.parametrize(
    "token", ["", "a b", "a\r\nX-Header: b", "токен", "x" * 5000, "\u0000", "a\tb"]
)
async def test_a_token_that_fits_no_header_is_400(house: House, token: str) -> None:
    authentication = {"strategy": "bearer", "token": token}
    for body in (
        {"webhooks": {"events": [], "url": "", "authentication": authentication}},
        {"humanInputWebhook": {"url": "", "authentication": authentication}},
    ):
        answer = await house.own.post("/kickoff", house.token, body)
        assert answer.status_code == 400
        assert "authentication.token: " in answer.json()["message"]


@pytest.mark.parametrize("name", ["a:b", "a\nb", "x" * 5000])
async def test_a_user_name_that_fits_no_header_is_400(house: House, name: str) -> None:
    authentication = {"strategy": "basic", "username": name, "password": "p"}
    body = {"humanInputWebhook": {"url": "", "authentication": authentication}}
    answer = await house.own.post("/kickoff", house.token, body)
    assert answer.status_code == 400
    assert "authentication.username: " in answer.json()["message"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_json_is_json_whatever_its_content_type(house: House, kind: str) -> None:
    body = b'{"inputs": {"topic": "x"}}'
    answer = await house.own.post("/kickoff", house.token, body, Content_Type=kind)
    assert answer.status_code == 200


async def test_a_value_is_never_repeated(house: House) -> None:
    for body in (b'{"inputs": "hunter2"}', b'{"inputs": {"a": "hunter2}', b'"hunter2"'):
        answer = await house.own.post("/kickoff", house.token, body)
        assert answer.status_code == 400
        assert "hunter2" not in answer.text


# What the executor refuses


async def test_missing_inputs_are_422(house: House, executor: StandIn) -> None:
    names: list[JsonValue] = ["audience", "topic"]
    executor.refusal = Unprocessable(
        "inputs: audience, topic are missing", details={"missing_inputs": names}
    )
    answer = await house.own.post("/kickoff", house.token, {})
    assert answer.status_code == 422
    assert answer.json() == {
        "error": "Validation Error",
        "message": "inputs: audience, topic are missing",
        "details": {"missing_inputs": names},
    }


async def test_a_full_queue_is_503(house: House, executor: StandIn) -> None:
    executor.refusal = Unavailable("the queue of this crew is full", retry_after=10)
    answer = await house.own.post("/kickoff", house.token, {})
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "10")
    assert answer.json() == {
        "error": "Service Unavailable",
        "message": "the queue of this crew is full",
    }


async def test_what_cannot_be_kept_is_400(house: House, executor: StandIn) -> None:
    executor.refusal = Invalid("inputs: cannot be kept as JSON")
    answer = await house.own.post("/kickoff", house.token, b'{"inputs": {"a": 1e999}}')
    assert answer.status_code == 400
    assert answer.json()["message"] == "inputs: cannot be kept as JSON"


# Idempotency


async def test_a_key_goes_with_the_whole_body(house: House, executor: StandIn) -> None:
    body = {"inputs": {"a": [1, None]}, "crewWebhookUrl": None, "unknown": {"b": 1.0}}
    await house.own.post("/kickoff", house.token, body, Idempotency_Key="k-1")
    ((_, _, key, sent),) = executor.kickoffs
    assert (key, sent) == ("k-1", body)


async def test_a_key_that_was_used_is_422(house: House, executor: StandIn) -> None:
    executor.refusal = KeyReused("Idempotency-Key: was used for another body")
    answer = await house.own.post("/kickoff", house.token, {}, Idempotency_Key="k-1")
    assert answer.status_code == 422
    assert answer.json()["message"] == "Idempotency-Key: was used for another body"


async def test_a_webhook_that_is_not_allowed_any_more_refuses_only_what_is_new(
    house: House, executor: StandIn
) -> None:
    known = executor.add()
    body: JsonValue = {"crewWebhookUrl": "http://10.0.0.1/"}
    executor.keys.append(("k-1", body, known.id))
    again = await house.own.post("/kickoff", house.token, body, Idempotency_Key="k-1")
    assert (again.status_code, again.json()) == (200, {"kickoff_id": known.id})
    for another in ({"Idempotency_Key": "k-2"}, {}):
        new = await house.own.post("/kickoff", house.token, body, **another)
        assert new.status_code == 400
        assert new.json()["message"].startswith("crewWebhookUrl: 10.0.0.1 is not")
    assert executor.kickoffs == []


@pytest.mark.parametrize(("key", "why"), [("", "too short"), ("k" * 256, "too long")])
async def test_a_key_that_is_none_is_400(house: House, key: str, why: str) -> None:
    answer = await house.own.post("/kickoff", house.token, {}, Idempotency_Key=key)
    assert answer.status_code == 400
    assert answer.json()["message"].startswith(f"Idempotency-Key: is {why}")


async def test_a_header_may_have_an_underscore(house: House) -> None:
    request = (
        "POST /kickoff HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nuser_agent: x\r\n"
        f"Authorization: Bearer {house.token}\r\nContent-Type: application/json\r\n"
        "Content-Length: 2\r\n\r\n{}"
    )
    assert (await house.own.raw(request.encode())).startswith(b"HTTP/1.1 200 ")


# Webhooks


@pytest.mark.parametrize("value", [None, ""])
@pytest.mark.parametrize("inside", [False, True])
async def test_no_webhooks(
    house: House, executor: StandIn, value: str | None, *, inside: bool
) -> None:
    body: dict[str, Any] = dict.fromkeys(
        ("taskWebhookUrl", "stepWebhookUrl", "crewWebhookUrl"), value
    )
    body |= {"webhooks": None, "humanInputWebhook": None}
    if inside:
        body |= {"webhooks": {"events": [], "url": value}, "humanInputWebhook": {"url": value}}
    assert (await house.own.post("/kickoff", house.token, body)).status_code == 200
    for events in ({"events": None}, {}):
        body["webhooks"] = {"url": value, **events}
        assert (await house.own.post("/kickoff", house.token, body)).status_code == 200
    assert [order.webhooks for _, order, *_ in executor.kickoffs] == [()] * 3


@pytest.mark.parametrize("name", ["taskWebhookUrl", "task_webhook_url"])
async def test_a_null_in_one_spelling_hides_nothing_in_the_other(
    house: House, executor: StandIn, name: str
) -> None:
    body = {"taskWebhookUrl": None, "task_webhook_url": None, name: "https://a.example/t"}
    assert (await house.own.post("/kickoff", house.token, body)).status_code == 200
    [target] = executor.kickoffs[0][1].webhooks
    assert target.url == "https://a.example/t"


def told(target: WebhookTarget) -> tuple[str, str, tuple[str, ...], str | None]:
    auth = None if target.auth is None else target.auth.get_secret_value()
    return target.kind, target.url, target.events, auth


@pytest.mark.parametrize(
    ("body", "target"),
    [
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
    ],
)
async def test_webhooks_are_handed_on(
    house: House, executor: StandIn, body: Any, target: Any
) -> None:
    assert (await house.own.post("/kickoff", house.token, body)).status_code == 200
    assert [told(each) for each in executor.kickoffs[0][1].webhooks] == [target]


async def test_all_webhooks_at_once(house: House, executor: StandIn) -> None:
    url = "https://a.example/"
    body = {
        "humanInputWebhook": {"url": url},
        "webhooks": {"url": url, "events": []},
        "crewWebhookUrl": url,
        "stepWebhookUrl": url,
        "taskWebhookUrl": url,
    }
    assert (await house.own.post("/kickoff", house.token, body)).status_code == 200
    kinds = [each.kind for each in executor.kickoffs[0][1].webhooks]
    assert kinds == ["task", "step", "crew", "stream", "human_input"]


@pytest.mark.parametrize("url", ["ftp://a.example/", "nonsense", "http://10.0.0.1/", "http:///x"])
async def test_a_wrong_address_is_named(house: House, executor: StandIn, url: str) -> None:
    body = {
        "taskWebhookUrl": url,
        "crewWebhookUrl": "https://good.example/",
        "webhooks": {"events": [], "url": url},
        "humanInputWebhook": {"url": url},
    }
    answer = await house.own.post("/kickoff", house.token, body)
    assert answer.status_code == 400
    named = [fault.split(": ")[0] for fault in answer.json()["message"].split("; ")]
    assert {"taskWebhookUrl", "webhooks.url", "humanInputWebhook.url"} <= set(named)
    assert "crewWebhookUrl" not in named
    assert executor.kickoffs == []


# Sizes


async def test_a_body_over_the_limit_is_413(house: House) -> None:
    for where in ("under", "root", "own"):
        answer = await house.at(where).post("/kickoff", house.token, b" " * (64 * 1024 + 1))
        assert answer.status_code == 413
        assert answer.json()["error"] == "Content Too Large"
        assert "server.max_body" in answer.json()["message"]


async def test_a_body_just_under_the_limit_is_read(house: House) -> None:
    body = json.dumps({"inputs": {}}).encode().ljust(64 * 1024)
    assert (await house.own.post("/kickoff", house.token, body)).status_code == 200


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server waits for a body no longer than a test does."""
    monkeypatch.setattr(http_app, "BODY_SECONDS", 0.1)


@pytest.mark.parametrize("where", ["under", "root", "own"])
async def test_a_slow_body_is_408(impatient: None, house: House, where: str) -> None:
    at = house.at(where)
    path = at.url.partition(str(at.port))[2]
    head = (
        f"POST {path}/kickoff HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {house.token}\r\nConnection: close\r\nContent-Length: 9\r\n\r\n{{"
    )
    answer = await at.raw(head.encode())
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2]) == {
        "error": "Request Timeout",
        "message": "the body did not arrive in time; send it faster",
    }


async def test_what_cannot_be_read_behind_another_request_is_refused_as_crews_refuse(
    house: House,
) -> None:
    at = house.at("under")
    path = at.url.partition(str(at.port))[2]
    first = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    unreadable = f"GET {path}/inputs HTTP/1.1\r\nHost: localhost\r\nbad header\r\n\r\n".encode()
    for before in (b"", first, first * 2):
        said = (await at.raw(before + unreadable)).rpartition(b"HTTP/1.1 400 ")[2]
        assert set(json.loads(said.partition(b"\r\n\r\n")[2])) == {"error", "message"}
