"""No browser, a full queue or no time: 503 with Retry-After if nothing was sent, else 502."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
import trio

from tests.contract.market import APP_ID, SECRET, by_open_api

if TYPE_CHECKING:
    from tests.contract.conftest import Daemon, Portal, Running

pytestmark = pytest.mark.chromium

QUEUE = 2
JOB_TIMEOUT = 2
"""Seconds that a request may take."""
FAULT = "open_api_slow"


@pytest.fixture(scope="module", params=["starting", "restarting"])
def without_browser(
    request: pytest.FixtureRequest, running: Running, shared_open_folder: Path
) -> Iterator[Daemon]:
    """A daemon whose Chromium hangs at its start, or is missing."""
    executable = shared_open_folder / f"chromium-{request.param}"
    if request.param == "starting":
        executable.write_text("#!/bin/sh\nexec sleep 600\n")
        executable.chmod(0o755)
    with running(browser={"executable": str(executable)}) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def patient(running: Running, portal: Portal) -> Iterator[Daemon]:
    """A daemon with a short queue and the default deadline."""
    with running(**by_open_api(portal.origins.portal), browser={"queue": QUEUE}) as daemon:
        daemon.secrets.add(SECRET)
        yield daemon


@pytest.fixture(scope="module")
def hurried(running: Running, portal: Portal) -> Iterator[Daemon]:
    """A daemon with a short deadline for requests."""
    browser = {"job_timeout": JOB_TIMEOUT}
    with running(**by_open_api(portal.origins.portal), browser=browser) as daemon:
        daemon.secrets.add(SECRET)
        yield daemon


class Asked:
    """A running conversion and its answer. Other sub-ids make another submit."""

    def __init__(self, nursery: trio.Nursery, daemon: Daemon, link: str, sub_id: str) -> None:
        self._answered = trio.Event()
        self._answer: httpx.Response | None = None

        async def convert() -> None:
            self._answer = await daemon.convert(link, account=None, sub_ids=[sub_id])
            self._answered.set()

        nursery.start_soon(convert)

    async def answer(self) -> httpx.Response:
        await self._answered.wait()
        assert self._answer is not None
        return self._answer


async def until_waiting(daemon: Daemon, **numbers: int) -> None:
    """Wait until the daemon shows these numbers of waiting requests or submits."""

    async def counted() -> bool:
        shown = (await daemon.status())["conversion"]
        return all(shown[name] == number for name, number in numbers.items())

    await daemon.until(f"{numbers}", counted)


async def until_silent(daemon: Daemon, portal: Portal, before: int) -> None:
    """Wait until the Open API has a call that it does not answer."""

    async def is_silent() -> bool:
        return await portal.counted(f"fault {FAULT}") > before

    await daemon.until("a call without an answer", is_silent)


def retry_after(answer: httpx.Response) -> int:
    return int(answer.headers["Retry-After"])


async def test_conversion_without_a_browser_is_503_with_retry_after(
    without_browser: Daemon, portal: Portal
) -> None:
    account = portal.account()
    answer = await without_browser.convert(portal.link(portal.item()), account=account)
    assert (answer.status_code, answer.json()["ok"]) == (503, False)
    assert answer.json()["error"].startswith("the browser is ")
    assert retry_after(answer) >= 1
    assert await portal.submits(account) == []


async def test_conversion_with_a_full_queue_is_503_with_retry_after(
    patient: Daemon, portal: Portal
) -> None:
    link, before = portal.link(portal.item()), await portal.counted(f"fault {FAULT}")
    await patient.login()
    await portal.arm(FAULT, portal.owner(APP_ID))
    async with trio.open_nursery() as nursery:
        Asked(nursery, patient, link, "first")
        await until_silent(patient, portal, before)
        for place in range(QUEUE):
            Asked(nursery, patient, link, f"waits{place}")
        await until_waiting(patient, submitsWaiting=QUEUE)
        answer = await patient.convert(link, account=None, sub_ids=["last"])
        nursery.cancel_scope.cancel()
    assert answer.status_code == 503
    assert "browser.queue" in answer.json()["error"]
    assert retry_after(answer) >= 1
    await until_waiting(patient, submitsWaiting=0, requestsWaiting=0)
    assert (await patient.convert(link, account=None)).status_code == 200


async def test_deadline_is_503_in_the_queue_and_502_once_upstream_was_asked(
    hurried: Daemon, portal: Portal
) -> None:
    link, before = portal.link(portal.item()), await portal.counted(f"fault {FAULT}")
    await hurried.login()
    await portal.arm(FAULT, portal.owner(APP_ID))
    async with trio.open_nursery() as nursery:
        sent = Asked(nursery, hurried, link, "sent")
        await until_silent(hurried, portal, before)
        queued = Asked(nursery, hurried, link, "queued")
        await until_waiting(hurried, submitsWaiting=1)
        # This request keeps the submit running until the deadline of the queued one.
        later = Asked(nursery, hurried, link, "sent")
        answers = [await asked.answer() for asked in (sent, queued, later)]
    assert [answer.status_code for answer in answers] == [502, 503, 502]
    assert "did not answer in time" in answers[0].json()["error"]
    assert "still queued" in answers[1].json()["error"]
    assert retry_after(answers[1]) >= 1
