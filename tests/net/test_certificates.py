"""The authorities that are trusted over HTTPS: none before they have been read."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path

import certifi
import pytest
import trio

from smartlinkd.net.certificates import TrustStore
from smartlinkd.net.client import HttpClient, NoAnswer
from smartlinkd.net.egress import Answered, Unanswered, open_sender
from tests.fakes.certificate import certificate_for, serve_https

HOST = "localhost"
NO_FILE = os.strerror(errno.ENOENT)


@pytest.fixture
async def server(tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where one answers whose authority the system trusts."""
    context, public = certificate_for(HOST, tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(public))
    return f"https://{HOST}:{await serve_https(context, nursery)}/"


async def test_certificate_of_another_name_is_refused(
    tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, public = certificate_for("another.example", tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(public))
    url = f"https://{HOST}:{await serve_https(context, nursery)}/"
    async with HttpClient() as client:
        with pytest.raises(NoAnswer, match="ConnectError"):
            await client.request("GET", url, deadline=5, max_body=9)


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The authorities cannot be read, until it is undone."""
    with monkeypatch.context() as patch:
        patch.setattr(certifi, "where", lambda: "/nowhere/cacert.pem")
        yield patch


async def test_call_without_readable_authorities_raises_no_answer(
    server: str, unreadable: pytest.MonkeyPatch
) -> None:
    async with HttpClient() as client:
        with pytest.raises(NoAnswer, match=rf"certificates cannot be read \({NO_FILE}\)"):
            await client.request("GET", server, deadline=5, max_body=9)
        unreadable.undo()
        assert (await client.request("GET", server, deadline=5, max_body=9)).status == 200


async def test_webhook_without_readable_authorities_is_not_called(
    server: str, unreadable: pytest.MonkeyPatch
) -> None:
    async with open_sender([ip_network("127.0.0.0/8")], max_connections=1) as sender:
        outcome = await sender.post(server, {}, b"{}")
        assert outcome == Unanswered(
            f"the authorities' certificates cannot be read ({NO_FILE}); the next call tries again, "
            "and if this goes on, install smartlinkd anew"
        )
        unreadable.undo()
        for _ in range(2):
            assert await sender.post(server, {}, b"{}") == Answered(200)


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
