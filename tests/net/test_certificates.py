"""Who is trusted over https, and that nobody is before the authorities have been read."""

from __future__ import annotations

import errno
import os
import ssl
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path

import httpx
import pytest
import trio

from smartlinkd.net.certificates import TrustStore
from smartlinkd.net.client import HttpClient, NoAnswer, open_client
from smartlinkd.net.egress import open_sender
from smartlinkd.net.outcomes import Answered, Unanswered
from tests.fakes.certificate import certificate_for, serve_behind

HOST = "localhost"
TOO_MANY = os.strerror(errno.EMFILE)


def why(error: BaseException) -> str:
    """What TLS has against a certificate."""
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


async def test_a_client_trusts_whom_the_system_trusts(server: str) -> None:
    async with open_client() as client:
        assert (await client.get(server)).status_code == 200
        assert (await client.get(server)).status_code == 200


async def test_and_nobody_else(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    async with open_client() as client:
        with pytest.raises(httpx.ConnectError) as refusal:
            await client.get(server)
        assert why(refusal.value) == "self-signed certificate"


async def test_nor_a_certificate_of_another_name(
    tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, public = certificate_for("another.example", tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(public))
    url = f"https://{HOST}:{await serve_behind(context, nursery)}/"
    async with open_client() as client:
        with pytest.raises(httpx.ConnectError) as refusal:
            await client.get(url)
        assert f"certificate is not valid for '{HOST}'" in why(refusal.value)


def open_too_many(_: TrustStore) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.fixture
def no_descriptor(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The authorities cannot be read, until it is undone."""
    with monkeypatch.context() as patch:
        patch.setattr(TrustStore, "_read", open_too_many)
        yield patch


async def test_while_the_authorities_cannot_be_read_there_is_no_answer(
    server: str, no_descriptor: pytest.MonkeyPatch
) -> None:
    async with HttpClient() as client:
        with pytest.raises(
            NoAnswer, match=rf"certificates cannot be read \({TOO_MANY}\); the next call"
        ):
            await client.request("GET", server, deadline=5, max_body=9)
        no_descriptor.undo()
        assert (await client.request("GET", server, deadline=5, max_body=9)).status == 200


async def test_nor_is_a_webhook_called(server: str, no_descriptor: pytest.MonkeyPatch) -> None:
    async with open_sender([ip_network("127.0.0.0/8")], max_connections=1) as sender:
        outcome = await sender.post(server, {}, b"{}")
        assert isinstance(outcome, Unanswered)
        assert f"certificates cannot be read ({TOO_MANY}); the next call" in outcome.why
        assert not outcome.is_final
        no_descriptor.undo()
        assert await sender.post(server, {}, b"{}") == Answered(200)


async def test_before_it_is_loaded_nobody_is_trusted(server: str) -> None:
    trust = TrustStore()
    async with httpx.AsyncClient(verify=trust.context, trust_env=False) as client:
        with pytest.raises(httpx.ConnectError) as refusal:
            await client.get(server)
        assert why(refusal.value) == "self-signed certificate"
        await trust.load()
        assert (await client.get(server)).status_code == 200


async def test_they_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trust = TrustStore()
    await trust.load()
    monkeypatch.setattr(TrustStore, "_read", open_too_many)
    await trust.load()


async def test_mozillas_authorities_count_where_the_system_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "empty"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    trust = TrustStore()
    assert trust.context.get_ca_certs() == []
    await trust.load()
    assert len(trust.context.get_ca_certs()) > 50
