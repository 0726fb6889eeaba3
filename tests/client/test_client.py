"""The client's tries and errors, against answers that a daemon or a proxy gives."""

from __future__ import annotations

import gzip
import itertools
import json
from collections.abc import Callable, Iterator

import httpx
import pytest

from smartlinkd.client import ApiFailure, ClientError, Smartlinkd, Unreachable

KEY = "slk_a-secret-key"
URL = "http://127.0.0.1:8787"
BUSY = httpx.Response(503, json={"ok": False, "error": "busy"}, headers={"Retry-After": "0"})
ACCOUNT = {
    "ok": True,
    "cookie": {"stored": False, "accountName": None, "syncedAt": None, "missing": []},
    "accounts": [],
}

Answers = list[httpx.Response | Exception]


@pytest.fixture
def client_of() -> Iterator[Callable[[Answers], Smartlinkd]]:
    """Return a client whose requests get these answers, one after the other."""
    made: list[Smartlinkd] = []

    def client(answers: Answers) -> Smartlinkd:
        def answer(request: httpx.Request) -> httpx.Response:
            assert request.headers["Authorization"] == f"Bearer {KEY}"
            found = answers.pop(0)
            if isinstance(found, Exception):
                raise found
            return found

        made.append(Smartlinkd(URL, KEY, transport=httpx.MockTransport(answer)))
        return made[-1]

    yield client
    for each in made:
        each.close()


Client = Callable[[Answers], Smartlinkd]


def test_refusal_with_retry_after_is_tried_again(client_of: Client) -> None:
    answers: Answers = [BUSY, BUSY, httpx.Response(200, json=ACCOUNT)]
    assert client_of(answers).account().accounts == []
    assert answers == []


def test_first_connection_error_fails_at_once(client_of: Client) -> None:
    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:8787 cannot be reached") as failed:
        client_of([httpx.ConnectError("refused")]).account()
    assert KEY not in str(failed.value)


def test_lost_connection_after_an_answer_is_tried_again(client_of: Client) -> None:
    answers: Answers = [
        httpx.Response(200, json=ACCOUNT),
        httpx.ReadError("reset"),
        httpx.Response(200, json=ACCOUNT),
    ]
    client = client_of(answers)
    client.account()
    client.account()
    assert answers == []


def test_key_is_not_made_twice_after_a_lost_answer(client_of: Client) -> None:
    client = client_of([httpx.Response(200, json=ACCOUNT), httpx.ReadError("reset")])
    client.account()
    with pytest.raises(Unreachable):
        client.create_key("a bot", ["convert"])


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (httpx.Response(403, json={"ok": False, "error": "no scope"}), "no scope"),
        (httpx.Response(401, json={"error": "Unauthorized", "message": "bad token"}), "bad token"),
        (httpx.Response(502, text="<html>Bad gateway"), "status 502, and not as smartlinkd does"),
        (httpx.Response(301, headers={"Location": "https://x.example/"}), "https://x.example/"),
        (httpx.Response(500, json={"ok": False, "error": "a\x1b[2Jb"}), r"a\x1b[2Jb"),
    ],
)
def test_refusal_says_what_the_server_said(
    client_of: Client, answer: httpx.Response, says: str
) -> None:
    with pytest.raises(ApiFailure) as failed:
        client_of([answer]).account()
    assert says in str(failed.value)
    assert failed.value.status == answer.status_code


def test_another_server_is_no_smartlinkd(client_of: Client) -> None:
    with pytest.raises(ClientError, match="is no smartlinkd"):
        client_of([httpx.Response(200, text="<html>It works!")]).account()


def test_endless_answer_is_cut_off(client_of: Client) -> None:
    endless = itertools.repeat(b"x" * 2**20)
    with pytest.raises(ClientError, match="sent more than 64 MiB"):
        client_of([httpx.Response(200, content=endless)]).account()


def test_compressed_answer_is_read(client_of: Client) -> None:
    content = gzip.compress(json.dumps(ACCOUNT).encode())
    answer = httpx.Response(200, content=content, headers={"Content-Encoding": "gzip"})
    assert client_of([answer]).account().accounts == []


def damaged() -> httpx.Response:
    """Return an answer that is no gzip, whatever its header says."""
    stream = iter([b"no gzip"])
    return httpx.Response(200, content=stream, headers={"Content-Encoding": "gzip"})


def test_damaged_compressed_answer_is_a_client_error(client_of: Client) -> None:
    with pytest.raises(Unreachable, match="cannot be reached"):
        client_of([damaged()]).account()


def test_damaged_compressed_events_are_asked_for_again(client_of: Client) -> None:
    refusal = httpx.Response(403, json={"ok": False, "error": "no scope"})
    with pytest.raises(ApiFailure, match="no scope"):
        next(client_of([damaged(), refusal]).crew("post").events("an-id"))


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("links.example.net", "is not one"),
        ("ftp://links.example.net", "is not one"),
        ("https://owner:secret@links.example.net", "leave them out"),
        ("http://links.example.net", "everybody on the way could read the key"),
    ],
)
def test_unusable_address_is_refused(url: str, fault: str) -> None:
    with pytest.raises(ClientError, match=fault) as refused:
        Smartlinkd(url, KEY)
    assert "secret@" not in str(refused.value)


def test_plain_http_is_taken_when_it_is_allowed() -> None:
    Smartlinkd("http://links.example.net", KEY, allow_http=True).close()


@pytest.mark.parametrize("key", ["", "two words", "ключ", "line\nend"])
def test_what_is_no_key_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(ClientError, match="the key is not one") as refused:
        Smartlinkd(URL, key)
    assert not key or key not in str(refused.value)
