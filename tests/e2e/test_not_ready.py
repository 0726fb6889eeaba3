"""No browser, no room, no time: 503 or 502, and everything else goes on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio

if TYPE_CHECKING:
    from tests.e2e.conftest import Daemon, Portal, Running

pytestmark = pytest.mark.chromium

INVALID = {"error": True, "failCode": 10}
UNKNOWN = {"error": True, "failCode": -1}

QUEUE = 6
"""Of the impatient daemon."""

HANGS = """\
#!/bin/sh
exec sleep 600
"""


@pytest.fixture(scope="module", params=["missing", "hanging"])
def without_browser(
    request: pytest.FixtureRequest, running: Running, open_folder: Path
) -> Iterator[Daemon]:
    """A daemon whose Chromium is not there, or never gets any further than its start."""
    executable = open_folder / request.param
    if request.param == "hanging":
        executable.write_text(HANGS)
        executable.chmod(0o755)
    with running(browser={"executable": str(executable)}) as daemon:
        yield daemon


async def test_without_a_browser_a_conversion_is_503(
    without_browser: Daemon, portal: Portal
) -> None:
    account = portal.account()
    answer = await without_browser.convert(portal.link(portal.item()), account=account)
    assert answer.status_code == 503
    assert answer.json()["error"].startswith("the browser is ")
    assert 1 <= int(answer.headers["retry-after"]) <= 10
    assert await portal.submits(account) == []


async def test_without_a_browser_it_is_not_ready_but_well(without_browser: Daemon) -> None:
    assert not await without_browser.ready()
    assert (await without_browser.ask("GET", "/livez")).status_code == 200
    answer = await without_browser.ask("GET", "/readyz")
    assert answer.status_code == 503
    assert answer.json()["error"] in ("starting", "waiting")
    assert "retry-after" in answer.headers


async def test_without_a_browser_all_else_goes_on(without_browser: Daemon, portal: Portal) -> None:
    account = portal.account()
    await without_browser.sync(account)
    stored = await without_browser.ask("GET", "/api/sync-cookie")
    assert stored.json()["cookie"] == account.cookie
    assert await without_browser.login()
    # What is no link needs no browser to be told so.
    links = ["https://shop.example/product/1/2", portal.short("gone")]
    answer = await without_browser.convert(*links, account=None)
    assert answer.json() == {"ok": True, "mapping": dict.fromkeys(links, INVALID)}


class Asked:
    """A request under way, and then its answer."""

    def __init__(self, nursery: trio.Nursery, daemon: Daemon, *links: str, **more: Any) -> None:
        self._answered = trio.Event()
        self._answer: httpx.Response | None = None

        async def convert() -> None:
            self._answer = await daemon.convert(*links, **more)
            self._answered.set()

        nursery.start_soon(convert)

    async def answer(self) -> httpx.Response:
        await self._answered.wait()
        assert self._answer is not None
        return self._answer


async def until_waiting(daemon: Daemon, **numbers: int) -> None:
    """Wait until the service counts so many requests, or submits, that wait."""

    async def counted() -> bool:
        conversion = (await daemon.status())["conversion"]
        return all(conversion[name] == number for name, number in numbers.items())

    await daemon.until(f"{numbers}", counted)


async def test_a_full_queue_is_503(impatient: Daemon, portal: Portal) -> None:
    account, link = portal.account(), portal.link(portal.item())
    await portal.arm("submit_slow", account)
    async with trio.open_nursery() as nursery:
        Asked(nursery, impatient, link, account=account)
        await portal.submitting(account)
        for place in range(QUEUE):  # with sub-ids of its own, so each is a submit of its own
            Asked(nursery, impatient, link, account=account, sub_ids=[f"sub{place}"])
        await until_waiting(impatient, submitsWaiting=QUEUE)
        answer = await impatient.convert(link, account=account, sub_ids=["last"])
        assert answer.status_code == 503
        assert "browser.queue" in answer.json()["error"]
        assert "retry-after" in answer.headers
        nursery.cancel_scope.cancel()
    # Nobody waits any more, so nothing is sent any more.
    await until_waiting(impatient, submitsWaiting=0, requestsWaiting=0)
    assert len(await portal.submits(account)) == 1


async def test_time_is_up(impatient: Daemon, portal: Portal) -> None:
    """All at the same time, since each of them takes as long as a request may take."""
    await impatient.login()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(silent_and_queued, impatient, portal)
        nursery.start_soon(part_way, impatient, portal)
        nursery.start_soon(slow_short_link, impatient, portal)


async def silent_and_queued(daemon: Daemon, portal: Portal) -> None:
    """Sent upstream without an answer is 502; not sent at all is 503."""
    account, link = portal.account(), portal.link(portal.item())
    await portal.arm("submit_slow", account)
    async with trio.open_nursery() as nursery:
        silent = Asked(nursery, daemon, link, account=account)
        await portal.submitting(account)
        queued = Asked(nursery, daemon, link, account=account, sub_ids=["other"])
        await until_waiting(daemon, submitsWaiting=1)
        # This one keeps the submit alive until the queued one has had its time.
        later = Asked(nursery, daemon, link, account=account)
        answers = [await asked.answer() for asked in (silent, queued, later)]
    assert [answer.status_code for answer in answers] == [502, 503, 502]
    assert "did not answer in time" in answers[0].json()["error"]
    assert "still queued" in answers[1].json()["error"]
    assert "retry-after" in answers[1].headers
    assert len(await portal.submits(account)) == 1


async def part_way(daemon: Daemon, portal: Portal) -> None:
    """What was converted by then is returned."""
    account, made, late = portal.account(), portal.item(), portal.item()
    await daemon.convert(portal.link(made), account=account)
    await portal.arm("submit_slow", account)
    answer = await daemon.convert(portal.link(made), portal.link(late), account=account)
    assert answer.status_code == 200, answer.text
    entry = portal.entry(made, account, product=False)
    assert answer.json()["mapping"] == {portal.link(made): entry, portal.link(late): UNKNOWN}


async def slow_short_link(daemon: Daemon, portal: Portal) -> None:
    """One that nobody answers for holds up no other."""
    account, item, slow = portal.account(), portal.item(), portal.short("slow")
    answer = await daemon.convert(portal.link(item), slow, account=account)
    assert answer.status_code == 200, answer.text
    entry = portal.entry(item, account, product=False)
    assert answer.json()["mapping"] == {portal.link(item): entry, slow: UNKNOWN}
