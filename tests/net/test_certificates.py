"""The authorities that are trusted over HTTPS: none before they have been read."""

from __future__ import annotations

import errno
import os
import ssl
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path

import certifi
import httpx
import pytest
import trio

from smartlinkd.net.certificates import TrustStore
from smartlinkd.net.client import HttpClient, NoAnswer, open_client
from smartlinkd.net.egress import open_sender
from smartlinkd.net.outcomes import Answered, Unanswered
from tests.fakes.certificate import certificate_for, serve_behind

HOST = "localhost"
NO_FILE = os.strerror(errno.ENOENT)


def why(error: BaseException) -> str:
    """Return why TLS refuses a certificate."""
    while not isinstance(error, ssl.SSLCertVerificationError):
        assert error.__context__ is not None
        error = error.__context__
    return error.verify_message


@pytest.fixture
async def server(tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where one answers whose authority the system trusts."""
    context, public = certificate_for(HOST, tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(public))
    return f"https://{HOST}:{await serve_behind(context, nursery)}/"


async def test_client_trusts_the_systems_authorities(server: str) -> None:
    async with open_client() as client:
        assert (await client.get(server)).status_code == 200
        assert (await client.get(server)).status_code == 200


@pytest.mark.parametrize(
    ("host", "is_trusted", "reason"),
    [
        (HOST, False, "self-signed certificate"),
        ("another.example", True, f"certificate is not valid for '{HOST}'"),
    ],
)
async def test_certificate_of_unknown_authority_or_other_name_is_refused(
    tmp_path: Path,
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
    *,
    host: str,
    is_trusted: bool,
    reason: str,
) -> None:
    context, public = certificate_for(host, tmp_path)
    if is_trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(public))
    url = f"https://{HOST}:{await serve_behind(context, nursery)}/"
    async with open_client() as client:
        with pytest.raises(httpx.ConnectError) as refusal:
            await client.get(url)
        assert reason in why(refusal.value)


def no_file() -> str:
    return "/nowhere/cacert.pem"


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The authorities cannot be read, until it is undone."""
    with monkeypatch.context() as patch:
        patch.setattr(certifi, "where", no_file)
        yield patch


async def test_call_without_readable_authorities_raises_no_answer(
    server: str, unreadable: pytest.MonkeyPatch
) -> None:
    async with HttpClient() as client:
        with pytest.raises(
            NoAnswer, match=rf"certificates cannot be read \({NO_FILE}\); the next call"
        ):
            await client.request("GET", server, deadline=5, max_body=9)
        unreadable.undo()
        assert (await client.request("GET", server, deadline=5, max_body=9)).status == 200


async def test_webhook_without_readable_authorities_is_not_called(
    server: str, unreadable: pytest.MonkeyPatch
) -> None:
    async with open_sender([ip_network("127.0.0.0/8")], max_connections=1) as sender:
        outcome = await sender.post(server, {}, b"{}")
        assert isinstance(outcome, Unanswered)
        assert f"certificates cannot be read ({NO_FILE}); the next call" in outcome.why
        assert not outcome.is_final
        unreadable.undo()
        assert await sender.post(server, {}, b"{}") == Answered(200)


async def test_store_that_is_not_loaded_trusts_nobody(server: str) -> None:
    trust = TrustStore()
    async with httpx.AsyncClient(verify=trust.context, trust_env=False) as client:
        with pytest.raises(httpx.ConnectError) as refusal:
            await client.get(server)
        assert why(refusal.value) == "self-signed certificate"
        await trust.load()
        assert (await client.get(server)).status_code == 200


async def test_authorities_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trust = TrustStore()
    await trust.load()
    monkeypatch.setattr(certifi, "where", no_file)
    await trust.load()


async def test_mozillas_authorities_are_trusted_without_the_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "empty"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    trust = TrustStore()
    assert trust.context.get_ca_certs() == []
    await trust.load()
    assert len(trust.context.get_ca_certs()) > 50
