"""The daemon's end: after SIGTERM it finishes its work; after SIGKILL nothing is left."""

from __future__ import annotations

import json
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
import trio

from tests.e2e.conftest import LEFT, until_met

if TYPE_CHECKING:
    from tests.e2e.conftest import Account, Daemon, Portal, Running

pytestmark = pytest.mark.chromium


def refuses(daemon: Daemon) -> bool:
    """True if nobody listens at the daemon's address."""
    url = httpx.URL(daemon.url)
    try:
        with socket.create_connection((url.host, url.port or 0), timeout=1):
            return False
    except ConnectionRefusedError:
        return True


async def test_sigterm_lets_a_conversion_end(
    running: Running, portal: Portal, slow_submits: None
) -> None:
    account, item = portal.account(), portal.item()
    answers: list[httpx.Response] = []
    order: list[str] = []
    with running(products={"source": "none"}) as daemon:
        await daemon.until_ready()
        # An idle connection must not delay the daemon's end.
        idle = socket.create_connection((httpx.URL(daemon.url).host, httpx.URL(daemon.url).port))

        async def convert() -> None:
            answers.append(await daemon.convert(portal.link(item), account=account))
            order.append("answered")

        async def wait_for_refusal() -> None:
            while not refuses(daemon):  # noqa: ASYNC110 - a refusal sends no event
                await trio.sleep(0.01)
            order.append("refused")
            daemon.program.process.send_signal(signal.SIGHUP)  # too late to do anything

        await daemon.login()
        with idle:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(convert)
                await portal.submitting(account)
                daemon.program.process.terminate()
                nursery.start_soon(wait_for_refusal)
            assert await daemon.program.ended() == 0
    # At the end of the block the fixture checks what the daemon has left.
    assert order == ["refused", "answered"]
    entry = portal.entry(item, account, product=False)
    assert answers[0].json() == {"ok": True, "mapping": {portal.link(item): entry}}
    assert answers[0].headers["connection"] == "close"


async def test_killed_daemon_leaves_nothing_and_restarts(
    running: Running, portal: Portal, nursery: trio.Nursery
) -> None:
    account, item = portal.account(), portal.item()
    with running() as daemon:
        await daemon.until_ready()
        await daemon.login()
        await portal.arm("submit_slow", account)
        nursery.start_soon(convert_until_killed, daemon, portal.link(item), account)
        await portal.submitting(account)
        assert daemon.processes()
        await daemon.kill()
        await until_met(lambda: not daemon.profiles(), within=LEFT)
        daemon.start()
        await daemon.until_ready()
        answer = await daemon.convert(portal.link(item), account=account)  # with the same token
        assert answer.json()["mapping"] == {portal.link(item): portal.entry(item, account)}


async def convert_until_killed(daemon: Daemon, link: str, account: Account) -> None:
    with pytest.raises(httpx.TransportError):
        await daemon.convert(link, account=account)


@pytest.mark.parametrize("end", ["killed", "stopped"])
async def test_a_pause_outlasts_the_daemon_and_is_told_once(
    running: Running, portal: Portal, tmp_path: Path, end: str
) -> None:
    account, told, may_tell = portal.account(), tmp_path / "told", tmp_path / "may-tell"
    tell = ["/bin/sh", "-c", f"[ -e '{may_tell}' ] && cat >> '{told}'"]

    async def is_told() -> bool:
        return told.exists() and told.read_text().endswith("\n")

    with running(notify={"command": tell}) as daemon:
        daemon.wait_for_browser()
        await daemon.sync(account)
        await portal.arm("human_check", account)
        assert (await convert_new(daemon, portal)).status_code == 502
        if end == "killed":
            await daemon.until("it is on the disk", lambda: is_stored(daemon, account))
            await daemon.kill()
        else:
            daemon.program.stop()
        may_tell.touch()
        daemon.start()
        daemon.wait_for_browser()
        await daemon.sync(account)
        before = await portal.counted("submit")
        answer = await convert_new(daemon, portal)
        assert (answer.status_code, "human check" in answer.json()["error"]) == (502, True)
        assert await portal.counted("submit") == before
        await daemon.until("the owner is told", is_told)
        daemon.program.stop()
        daemon.start()
        daemon.wait_for_browser()
        account.renew()
        await daemon.sync(account)
        assert (await convert_new(daemon, portal)).status_code == 200
    # At the end of the block all due notices were sent.
    events = [json.loads(line)["event"] for line in told.read_text().splitlines()]
    assert events == ["account_paused", "account_back"]


async def convert_new(daemon: Daemon, portal: Portal) -> httpx.Response:
    return await daemon.convert(portal.link(portal.item()), account=None)


async def is_stored(daemon: Daemon, account: Account) -> bool:
    file = daemon.state / "pauses.json"
    return file.exists() and account.number in file.read_text()
