"""Request ids: every answer and every log line of a request has its id."""

from __future__ import annotations

import io
import json
import logging
import re
from http import HTTPStatus

import pytest
import trio
from quart import Response

from smartlinkd import logs
from smartlinkd.http_server import GuardedQuart
from smartlinkd.http_server.http1 import request_id
from tests.http_server.conftest import Serving, read_answer

logger = logging.getLogger("smartlinkd.test")

OURS = re.compile("[0-9a-f]{16}")
GOOD = b"GET /small HTTP/1.1\r\nHost: a\r\n"


@pytest.mark.parametrize(
    "given",
    [
        b"a",
        b"0f3a7c1e-0000-4000-8000-0123456789ab",
        b"Root=1-67891233-abcdef012345678912345678",
        b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        b"a.b_c~d:e+f/g=@",
        b"x" * 64,
    ],
)
def test_request_id_of_the_client_is_taken_over(given: bytes) -> None:
    assert request_id([(b"host", b"a"), (b"x-request-id", given)]) == given.decode()


@pytest.mark.parametrize(
    "given",
    [
        [],
        [b""],
        [b"x" * 65],
        [b"two words"],
        [b"a\x1b[2Jb"],
        [b"a\tb"],
        ["giá".encode()],
        [b'"quoted"'],
        [b"{}"],
        [b"a", b"b"],
        [b"a", b"a"],
    ],
)
def test_request_id_that_is_unsafe_or_repeated_is_replaced(given: list[bytes]) -> None:
    made = {request_id([(b"x-request-id", each) for each in given]) for _ in range(3)}
    assert len(made) == 3
    assert all(OURS.fullmatch(each) for each in made)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (GOOD + b"Connection: close\r\n\r\n", 200),
        (b"HEAD /small HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 200),
        (b"GET /none HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 404),
        (b"POST /small HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", 405),
        (b"GET /broken HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 500),
        (b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9999999\r\n\r\n", 413),
        (b"nonsense\r\n\r\n", 400),
        (b"GET /small HTTP/1.1\r\n\r\n", 400),
        (b"GET small HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (GOOD + b"X-Long: " + b"x" * 17_000 + b"\r\n\r\n", 431),
        (b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
    ],
)
async def test_every_answer_has_a_reason_phrase_and_one_request_id(
    serving: Serving, request_: bytes, status: int
) -> None:
    async with serving() as client:
        raw = await client.send_and_read(request_)
    head = raw.partition(b"\r\n\r\n")[0]
    line, _, _ = head.decode().partition("\r\n")
    assert line == f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
    assert len(re.findall(rb"(?i)\r\nx-request-id: [0-9a-f]{16}(?=\r\n|$)", head)) == 1


@pytest.mark.parametrize(
    "rest",
    [
        b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n",
        b"GET small HTTP/1.1\r\nHost: a\r\n",
        b"GET /small HTTP/1.1\r\nHost: a\r\nX-Long: " + b"x" * 17_000 + b"\r\n",
    ],
)
async def test_request_refused_before_the_application_keeps_its_id(
    serving: Serving, rest: bytes
) -> None:
    async with serving() as client:
        answer = await client.ask(rest + b"X-Request-Id: mine\r\n\r\nzz\r\n")
    assert answer.status >= 400
    assert answer.headers["x-request-id"] == "mine"


async def test_log_lines_of_a_request_have_its_id_and_no_other(
    app: GuardedQuart, serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter())
    handler.addFilter(logs.context.ContextFilter())
    monkeypatch.setattr(logger, "handlers", [handler])
    monkeypatch.setattr(logger, "level", logging.INFO)

    @app.get("/say/<what>")
    async def say(what: str) -> Response:
        logger.info("%s in its task", what)
        await trio.to_thread.run_sync(logger.info, f"{what} in a thread")
        return Response("said")

    async with serving() as client:
        async with trio.open_nursery() as nursery:
            for what in (b"one", b"two", b"three"):
                head = b"GET /say/%s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" % what
                nursery.start_soon(client.ask, head + b"X-Request-Id: %s\r\n\r\n" % what)
        # One after the other on the same connection: nothing of the first is left.
        async with await client.connect() as kept:
            for what in (b"four", b"five"):
                await kept.send_all(
                    b"GET /say/%s HTTP/1.1\r\nHost: a\r\nX-Request-Id: %s\r\n\r\n" % (what, what)
                )
                await read_answer(kept)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert len(lines) == 10
    for line in lines:
        assert line["request_id"] == line["message"].split(" ")[0]
