"""A lone surrogate in any string of any body is read as U+FFFD.

A submitted link keeps the surrogate: the answer's key has the same escape.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.config_file import WITHOUT_BROWSER
from tests.e2e.crews.conftest import client_of

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon, Portal, Running

pytestmark = pytest.mark.chromium

HALF = "\ud83d"
LOST = "\ufffd"
INVALID = {"error": True, "failCode": 10}
CREW = {
    "name": "alpha",
    "runner": "command",
    "command": [
        "/bin/sh",
        "-c",
        "IFS= read -r line <&3\n"
        'printf \'%s\\n\' \'{"type": "started"}\' \'{"type": "result", "output": "done"}\' >&3',
    ],
}


@pytest.fixture(scope="module")
def crews(running: Running) -> Iterator[Daemon]:
    """A daemon with a crew and without a browser."""
    with running(**WITHOUT_BROWSER, crews=[CREW]) as daemon:
        yield daemon


async def token_of_the_crew(daemon: Daemon) -> str:
    return (await client_of(daemon, "alpha")).token


async def send(daemon: Daemon, path: str, token: str, content: bytes) -> httpx.Response:
    """Send a POST request with these bytes."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.post(daemon.url + path, content=content, headers=headers)


# Links


async def test_link_with_half_a_character_beside_it_is_converted_under_the_same_key(
    linking: Daemon, portal: Portal
) -> None:
    account, item = portal.account(), portal.item()
    product = portal.link(item)
    links = [f"{product} {HALF}", f"{HALF} {product}", f"Giá tốt {HALF}! {product}", product]
    answer = await linking.convert(*links, account=account)
    entry = portal.entry(item, account, product=False)
    assert (answer.status_code, answer.json()["mapping"]) == (200, dict.fromkeys(links, entry))
    assert rf'"{product} \ud83d":' in answer.text


async def test_link_with_half_a_character_in_it_is_invalid_under_the_same_key(
    linking: Daemon, portal: Portal
) -> None:
    account, good = portal.account(), portal.link(portal.item())
    product = portal.link(portal.item())
    links = [product.replace("/product/", f"/product/{HALF}"), f"x{HALF}", "\U0001f600", good]
    answer = await linking.convert(*links, account=account)
    mapping = answer.json()["mapping"]
    assert (answer.status_code, list(mapping)) == (200, links)
    assert [mapping[link] for link in links[:3]] == [INVALID] * 3
    assert mapping[good]["failCode"] == 0


async def test_link_with_an_escape_in_capitals_is_found_by_its_key(linking: Daemon) -> None:
    session = await linking.login()
    body = rb'{"links": ["\uD83D", "\uDE00\ud83d", "\\ud83d"], "cookie": "SPC_EC=.a; SPC_U=1"}'
    answer = await send(linking, "/api/convert", session, body)
    links = [HALF, f"\ude00{HALF}", "\\ud83d"]
    assert (answer.status_code, answer.json()["mapping"]) == (200, dict.fromkeys(links, INVALID))


async def test_text_with_half_a_character_is_converted(linking: Daemon, portal: Portal) -> None:
    account, item = portal.account(), portal.item()
    session = await linking.login()
    linking.secrets |= account.secrets
    body = {"text": f"{HALF} {portal.link(item)} {HALF}", "cookie": account.cookie}
    answer = await linking.ask("POST", "/api/convert-text", body, token=session)
    short = portal.entry(item, account)["shortLink"]
    assert (answer.status_code, answer.json()["text"]) == (200, f"{LOST} {short} {LOST}")


# Everything else


async def test_account_name_with_half_a_character_is_stored_with_its_replacement(
    linking: Daemon, portal: Portal
) -> None:
    account = portal.account()
    linking.secrets |= account.secrets
    body = {"cookie": account.cookie, "accountName": f"Shop {HALF}"}
    answer = await linking.ask("POST", "/api/sync-cookie", body)
    assert (answer.status_code, answer.json()["accountName"]) == (200, f"Shop {LOST}")
    stored = (await linking.ask("GET", "/api/sync-cookie")).json()
    assert (stored["accountName"], stored["cookie"]) == (f"Shop {LOST}", account.cookie)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/auth/login", {"password": f"wrong {HALF}"}, 401),
        ("/api/auth/verify-mfa", {"tempToken": HALF, "code": "123456"}, 403),
        ("/api/auth/verify-mfa", {"tempToken": "x", "code": f"12345{HALF}"}, 400),
        ("/api/auth/2fa/enable", {"secret": HALF, "code": "123456"}, 400),
        ("/api/convert", {"links": ["x"], "subIds": [HALF]}, 400),
        ("/api/crews/token", {"crew": HALF}, 404),
    ],
)
async def test_wrong_value_with_half_a_character_is_refused_as_any_other(
    linking: Daemon, path: str, body: dict[str, Any], status: int
) -> None:
    answer = await linking.ask("POST", path, body, token=await linking.login())
    assert (answer.status_code, answer.json()["ok"]) == (status, False)


async def test_kickoff_reads_half_a_character_as_its_replacement(crews: Daemon) -> None:
    token = await token_of_the_crew(crews)
    body = {"inputs": {f"a{HALF}": [HALF, "\U0001f600"]}, "meta": {HALF: HALF}, HALF: 1}
    answer = await crews.ask("POST", "/crews/alpha/kickoff", body, token=token)
    assert answer.status_code == 200, answer.text
    path = f"/crews/alpha/status/{answer.json()['kickoff_id']}?wait=30"
    told = (await crews.ask("GET", path, token=token)).json()
    assert (told["state"], told["meta"]) == ("SUCCESS", {LOST: LOST})


async def test_idempotency_key_compares_the_body_as_it_is_read(crews: Daemon) -> None:
    token = await token_of_the_crew(crews)
    headers = {"Idempotency-Key": "half"}
    answers = [
        await crews.ask("POST", "/crews/alpha/kickoff", body, token=token, headers=headers)
        for body in ({"inputs": {"a": HALF}}, {"inputs": {"a": LOST}}, {"inputs": {"a": "x"}})
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 422]
    assert answers[0].json() == answers[1].json()


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("/api/convert", b'{"links": ["\xed\xa0\xbd"]}'),
        ("/api/convert", b'{"links": ["\\ud83d\xed\xa0\xbd"]}'),
        ("/api/convert", b'{"links": ["\\ud83d\xff"]}'),
        ("/api/convert", b'{"links": ["\\ud83d"], "x": ' + b"[" * 100_000),
        ("/crews/alpha/kickoff", b'{"inputs": {"a": "\\ud83d\xed\xa0\xbd"}}'),
        ("/crews/alpha/kickoff", b'{"inputs": {"\\ud83d": ' + b"[" * 100_000),
    ],
    ids=["CESU-8", "CESU-8 too", "no UTF-8", "deep", "CESU-8 to a crew", "deep to a crew"],
)
async def test_body_that_is_no_utf_8_or_too_deep_is_400(
    crews: Daemon, path: str, content: bytes
) -> None:
    is_crews = path.startswith("/crews/")
    token = await (token_of_the_crew(crews) if is_crews else crews.login())
    answer = await send(crews, path, token, content)
    assert answer.status_code == 400
    text = answer.json()["message" if is_crews else "error"]
    assert text.startswith("the body is not valid JSON: ")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/status/%ED%A0%BD", 404),
        ("/%ED%A0%BD/status", 404),
        ("/%ED%A0%BD", 404),
        ("/executions?cursor=%ED%A0%BD", 400),
        ("/executions?state=%ED%A0%BD", 400),
        ("/executions?%ED%A0%BD=1", 200),
    ],
)
async def test_half_a_character_in_an_address_is_no_fault_of_the_daemon(
    crews: Daemon, path: str, status: int
) -> None:
    token = await token_of_the_crew(crews)
    answer = await crews.ask("GET", f"/crews/alpha{path}", token=token)
    assert answer.status_code == status
    assert status == 200 or set(answer.json()) == {"error", "message"}


async def test_half_a_character_in_a_header_is_no_fault_of_the_daemon(crews: Daemon) -> None:
    token = await token_of_the_crew(crews)
    request = httpx.Request(
        "POST",
        f"{crews.url}/crews/alpha/kickoff",
        content=json.dumps({"inputs": {}}).encode(),
        headers=[
            (b"Authorization", f"Bearer {token}".encode()),
            (b"Idempotency-Key", b"\xed\xa0\xbd"),
        ],
    )
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.send(request)).status_code == 200
        request.headers["Authorization"] = b"Bearer \xed\xa0\xbd".decode("latin-1")
        assert (await client.send(request)).status_code == 401
