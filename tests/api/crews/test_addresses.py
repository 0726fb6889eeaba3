"""Where crews answer, and how whatever is no operation there is refused.

| promised | test |
|---|---|
| contract, three addresses | `test_an_execution_is_the_same_everywhere` |
| contract, GET `/` → `Healthy`, text | `test_the_base_address_is_healthy[…]` |
| contract, GET `/inputs`, sorted | `test_inputs_are_sorted[…]`, `…_each_crew_has_its_own` |
| contract, the base address `/`, with `/inputs` behind it | `test_a_base_that_is_a_slash_…[…]` |
| contract, 404 for an unknown path, in the crews' shape | `test_an_unknown_path_is_404[…]` |
| contract, 405 with `Allow`, OPTIONS too | `test_another_method_is_405[…]` |
| HEAD (RFC 9110, 9.3.2) | `test_head_is_get_without_a_body[…]` |
| the affiliate service's paths keep their shape | `test_other_paths_keep_their_shape[…]` |
| failures of the connection, on a crew's own bind | `test_a_broken_request_is_told_…[…]` |
| the same, on the main address | `test_what_the_parser_refuses_…[…]` |
| every connection is taken | `test_no_room_fits_both_contracts[…]` |
| 500, in the crews' shape, with one record of it | `test_a_bug_is_500[…]` |
| no default crew | `test_without_a_default_nothing_is_served_at_the_root` |
| seed 3 and 4, and the additions, are documented once | `test_every_operation_is_documented_once` |
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, cast

import httpx
import pytest
import trio

from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.executor import Executor
from smartlinkd.http_server import HttpLimits

if TYPE_CHECKING:
    from tests.api.crews.conftest import House, OpenHouse, StandIn

ID = "3f1e2d0c-6a5b-4c8d-9e7f-0a1b2c3d4e5f"

ALLOWED = {
    "/": "GET, HEAD",
    "/inputs": "GET, HEAD",
    "/kickoff": "POST",
    f"/status/{ID}": "GET, HEAD",
    f"/{ID}/status": "GET, HEAD",
    "/executions": "GET, HEAD",
    f"/stop/{ID}": "POST",
    f"/events/{ID}": "GET, HEAD",
    "/resume": "POST",
}
WHERE = ["under", "root", "own"]


def body_of(raw: bytes) -> tuple[int, Any]:
    """Status and JSON of an answer."""
    head, _, body = raw.partition(b"\r\n\r\n")
    assert b"content-type: application/json" in head.lower()
    return int(head.split()[1]), json.loads(body)


# What answers


@pytest.mark.parametrize("where", WHERE)
async def test_the_base_address_is_healthy(house: House, where: str) -> None:
    at = house.at(where)
    for path in ["/"] if where != "under" else ["/", ""]:
        answer = await at.get(path, house.token)
        assert (answer.status_code, answer.text) == (200, "Healthy")
        assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"


@pytest.mark.parametrize("where", WHERE)
async def test_inputs_are_sorted(house: House, where: str) -> None:
    answer = await house.at(where).get("/inputs", house.token)
    assert (answer.status_code, answer.json()) == (200, {"inputs": ["audience", "style", "topic"]})


async def test_each_crew_has_its_own(house: House) -> None:
    answer = await house.main.get("/crews/beta/inputs", house.tokens["beta"])
    assert answer.json() == {"inputs": []}


@pytest.mark.parametrize("where", ["root", "own"])
async def test_a_base_that_is_a_slash_is_put_before_paths(house: House, where: str) -> None:
    """`GET /api/crews` tells of `/`, so a client asks for `//inputs`."""
    for token, status in ((house.token, 200), ("", 401)):
        request = (
            "GET //inputs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            f"Authorization: Bearer {token}\r\n\r\n"
        )
        told, body = body_of(await house.at(where).raw(request.encode()))
        assert told == status
        assert set(body) == ({"inputs"} if token else {"error", "message"})


async def test_an_execution_is_the_same_everywhere(house: House) -> None:
    kickoff_id = (await house.own.post("/kickoff", house.token, {})).json()["kickoff_id"]
    for where in WHERE:
        answer = await house.at(where).get(f"/status/{kickoff_id}", house.token)
        assert answer.json()["kickoff_id"] == kickoff_id


# What does not


@pytest.mark.parametrize("where", ["under", "own"])
@pytest.mark.parametrize(
    "path",
    ["/nothing", "/inputs/", "/Inputs", "/status", "/status/", f"/status/{ID}/",
     f"/{ID}", "/stop", "/events/a/b", "/docs", "/openapi.json", "/api/health", "/%ff", "/inputs;x",
     "/a/../inputs"],
)  # fmt: skip
async def test_an_unknown_path_is_404(house: House, where: str, path: str) -> None:
    at = house.at(where)
    base = at.url.partition(str(at.port))[2]
    for method in ("GET", "POST", "OPTIONS", "BREW"):
        request = (
            f"{method} {base}{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            f"Authorization: Bearer {house.token}\r\nContent-Length: 0\r\n\r\n"
        )
        status, body = body_of(await at.raw(request.encode()))
        assert status == 404
        assert body["error"] == "Not Found"
        assert set(body) == {"error", "message"}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize(("path", "allowed"), ALLOWED.items(), ids=ALLOWED)
async def test_another_method_is_405(house: House, where: str, path: str, allowed: str) -> None:
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"):
        if method in allowed:
            continue
        for token in ("", house.token):
            answer = await house.at(where).ask(method, path, token)
            assert answer.status_code == 405, method
            assert answer.headers["Allow"] == allowed
            assert answer.json()["error"] == "Method Not Allowed"


async def test_the_base_address_without_a_slash_has_its_methods_too(house: House) -> None:
    answer = await house.at("under").post("", house.token)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("path", ["/", "/inputs", "/executions", "/status/{id}", "/{id}/status"])
async def test_head_is_get_without_a_body(
    house: House, executor: StandIn, where: str, path: str
) -> None:
    path = path.format(id=executor.add().id)
    head, get = [await house.at(where).ask(method, path, house.token) for method in ("HEAD", "GET")]
    assert head.status_code == get.status_code == 200
    assert head.content == b""
    assert head.headers["Content-Type"] == get.headers["Content-Type"]
    if (where, path) != ("root", "/"):  # the owner's page for whoever shows no token
        assert (await house.at(where).ask("HEAD", path)).status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/crews", 404),
        ("GET", f"/status/{ID}/x", 404),
        ("GET", "/kickoff/", 404),
        ("POST", "/api/health", 405),
        ("POST", "/api/status", 405),
        ("GET", "/api/convert", 405),
        ("GET", "/api/nothing", 404),
        ("POST", "/docs", 405),
    ],
)
async def test_other_paths_keep_their_shape(
    house: House, method: str, path: str, status: int
) -> None:
    answer = await house.main.ask(method, path)
    assert answer.status_code == status
    assert set(answer.json()) == {"ok", "error"}


async def test_a_crew_may_be_called_status(house: House) -> None:
    answer = await house.main.get("/crews/status", house.token)
    assert (answer.status_code, answer.json()["error"]) == (401, "Unauthorized")


async def test_without_a_default_nothing_is_served_at_the_root(
    open_house: OpenHouse, executor: StandIn, crews: Catalog
) -> None:
    catalog = Catalog(crews=crews.crews, broken=crews.broken, default=None)
    async with open_house(cast(Executor, executor), catalog=catalog) as house:
        for path in ("/", "/inputs", f"/status/{ID}"):
            request = (
                f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer x\r\n"
                "Connection: close\r\n\r\n"
            )
            status, body = body_of(await house.main.raw(request.encode()))
            assert (status, set(body)) == (404, {"ok", "error"})
        assert (await house.at("under").get("/inputs", house.token)).status_code == 200


# Failures of the connection


@pytest.mark.parametrize(
    ("request_", "status", "title"),
    [
        (b"nonsense\r\n\r\n", 400, "Bad Request"),
        (b"GET ?x HTTP/1.1\r\nHost: a\r\n\r\n", 400, "Bad Request"),
        (
            b"GET /inputs HTTP/1.1\r\nHost: a\r\nA: " + b"x" * 20_000 + b"\r\n\r\n",
            431,
            "Request Header Fields Too Large",
        ),
        (
            b"POST /kickoff HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
            501,
            "Not Implemented",
        ),
    ],
    ids=["no HTTP", "no path", "a large head", "an unknown coding"],
)
async def test_a_broken_request_is_told_in_the_shape_of_the_address(
    house: House, request_: bytes, status: int, title: str
) -> None:
    found, body = body_of(await house.own.raw(request_))
    assert (found, body["error"]) == (status, title)
    assert set(body) == {"error", "message"}
    found, body = body_of(await house.main.raw(request_))
    assert found == status
    at_root = status in (431, 501)  # those are at a path of the default crew
    assert set(body) == ({"error", "message"} if at_root else {"ok", "error"})


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("/crews/alpha/inputs?a=b", {"error", "message"}),
        ("/crews/nobody/%6eothing", {"error", "message"}),
        ("/executions", {"error", "message"}),
        ("/api/status", {"ok", "error"}),
        ("/nothing", {"ok", "error"}),
    ],
)
@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        (f"Host: a\r\nA: {'x' * 20_000}\r\n\r\n", 431),
        (f"Host: a\r\nA: {'x' * 90_000}", 431),
        ("Host: a\r\nContent-Length: abc\r\n\r\n", 400),
        ("A: b\r\n\r\n", 400),
        ("Host: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    ],
    ids=["a large head", "a head without end", "no length", "no host", "two lengths"],
)
async def test_what_the_parser_refuses_is_told_in_the_shape_of_its_path(
    house: House, path: str, shape: set[str], rest: str, expected: int
) -> None:
    request = f"POST {path} HTTP/1.1\r\n{rest}".encode()
    status, body = body_of(await house.main.raw(request))
    assert (status, set(body)) == (expected, shape)


async def test_what_was_asked_before_on_its_connection_does_not_shape_it(house: House) -> None:
    with trio.fail_after(5):
        async with await trio.open_tcp_stream("127.0.0.1", house.main.port) as stream:
            await stream.send_all(b"GET /crews/alpha/inputs HTTP/1.1\r\nHost: a\r\n\r\n")
            said = b""
            while not said.endswith(b"}"):
                said += await stream.receive_some()
            assert body_of(said)[0] == 401
            await stream.send_all(b"GET /api/status HTTP/1.1\r\n\r\n")
            said = b""
            while part := await stream.receive_some():
                said += part
            status, body = body_of(said)
            assert (status, set(body)) == (400, {"ok", "error"})


async def test_what_came_with_it_is_told_in_the_shape_of_its_own_path(house: House) -> None:
    """The two were read as one piece."""
    first = b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n"
    answers = await house.main.raw(first + b"GET /crews/alpha/inputs HTTP/1.1\r\n\r\n")
    assert answers.startswith(b"HTTP/1.1 404 ")
    status, body = body_of(answers[answers.index(b"HTTP/1.1 400 ") :])
    assert (status, set(body)) == (400, {"error", "message"})


async def test_a_broken_body_is_told_in_the_shape_of_its_path(house: House) -> None:
    head = (
        f"POST /crews/alpha/kickoff HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {house.token}\r\n"
        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nno size\r\n"
    )
    status, body = body_of(await house.main.raw(head.encode()))
    assert (status, set(body)) == (400, {"error", "message"})


@pytest.mark.parametrize("limits", [HttpLimits(connections=1)])
@pytest.mark.parametrize("where", ["own", "under"])
async def test_no_room_fits_both_contracts(
    limits: HttpLimits, house: House, executor: StandIn, where: str
) -> None:
    address = house.at(where)
    path = f"{httpx.URL(address.url).path.rstrip('/')}/status/{executor.add().id}?wait=50"
    head = f"GET {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {house.token}\r\n\r\n"
    async with await trio.open_tcp_stream("127.0.0.1", address.port) as busy:
        await busy.send_all(head.encode())
        await executor.heard.wait()
        answer = await address.raw(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    text = "all connections are taken; try again in a moment"
    error = text if where == "under" else "Service Unavailable"
    assert body_of(answer) == (503, {"ok": False, "error": error, "message": text})
    assert b"\r\nretry-after: 1\r\n" in answer.lower()


@pytest.mark.parametrize("where", WHERE)
async def test_a_bug_is_500(
    house: House, executor: StandIn, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    executor.refusal = ZeroDivisionError("secret")
    answer = await house.at(where).get("/executions", house.token)
    assert answer.status_code == 500
    assert answer.json() == {
        "error": "Internal Server Error",
        "message": "internal error; the daemon's log has it",
    }
    (record,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert record.getMessage().endswith("/executions failed")


# The document


async def test_every_operation_is_documented_once(house: House) -> None:
    document = (await house.main.get("/openapi.json")).json()
    of_crews = {
        f"{method.upper()} {path.removeprefix('/crews/{crew}') or '/'}": operation
        for path, methods in document["paths"].items()
        if path.startswith("/crews/")
        for method, operation in methods.items()
    }
    assert set(of_crews) == {
        "GET /", "GET /inputs", "POST /kickoff", "GET /status/{kickoff_id}", "GET /executions",
        "POST /stop/{kickoff_id}", "GET /events/{kickoff_id}", "POST /resume",
    }  # fmt: skip
    assert not {"/", "/inputs", "/kickoff"} & set(document["paths"])
    for name, operation in of_crews.items():
        assert operation["security"] == [{"bearer": []}], name
        assert operation["parameters"][0]["name"] == "crew", name
        failure = operation["responses"]["401"]["content"]["application/json"]["schema"]
        assert failure == {"$ref": "#/components/schemas/CrewFailure"}
    everything = [
        operation["operationId"]
        for methods in document["paths"].values()
        for operation in methods.values()
    ]
    assert len(everything) == len(set(everything))
