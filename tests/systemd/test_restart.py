"""`systemctl restart` and `stop`, as clients see them."""

from __future__ import annotations

from collections import Counter

import httpx
import pytest
import trio

from tests.systemd.machine import Service, process_exists, run

RATE = 20
"""Requests a second."""
AROUND = 3.0
"""Seconds of requests before and after a restart."""
CREW = "again"
"""A crew whose interrupted executions run again, so that each is completed."""


class Load:
    """Sends requests at a fixed rate, each on a new connection. Every fourth is a kickoff."""

    def __init__(self, service: Service) -> None:
        self.answers: Counter[str] = Counter()
        self.kickoffs: list[str] = []
        self._url = service.url
        self._client = httpx.AsyncClient(
            timeout=30,
            trust_env=False,
            verify=False,
            limits=httpx.Limits(max_keepalive_connections=0),
        )
        self._token = service.crew_token(CREW)

    async def run(self, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        begin = trio.current_time()
        number = 0
        async with self._client, trio.open_nursery() as nursery:
            task_status.started()
            while True:
                nursery.start_soon(self._ask, number)
                number += 1
                await trio.sleep_until(begin + number / RATE)

    async def _ask(self, number: int) -> None:
        with trio.CancelScope(shield=True):  # every request gets its answer
            try:
                answer = await (self._kickoff() if number % 4 == 0 else self._get())
                self.answers[str(answer.status_code)] += 1
            except httpx.HTTPError as error:
                self.answers[f"{type(error).__name__}: {error}"] += 1

    async def _get(self) -> httpx.Response:
        return await self._client.get(f"{self._url}/api/health")

    async def _kickoff(self) -> httpx.Response:
        answer = await self._client.post(
            f"{self._url}/crews/{CREW}/kickoff",
            json={"inputs": {}},
            headers={"Authorization": f"Bearer {self._token}"},
        )
        if answer.status_code == 200:
            self.kickoffs.append(answer.json()["kickoff_id"])
        return answer


async def test_restart_under_load_refuses_no_request_and_loses_nothing(service: Service) -> None:
    cookie = service.stored_cookie()
    before = service.pid
    load = Load(service)
    async with trio.open_nursery() as nursery:
        await nursery.start(load.run)
        await trio.sleep(AROUND)
        began = trio.current_time()
        await trio.to_thread.run_sync(service.systemctl, "restart")
        took = trio.current_time() - began
        await trio.sleep(AROUND)
        nursery.cancel_scope.cancel()
    assert service.pid != before
    assert set(load.answers) == {"200"}
    assert load.answers.total() >= RATE * (2 * AROUND + took) * 0.8
    assert service.stored_cookie() == cookie
    states = Counter(service.execution(CREW, each, wait=30)["status"] for each in load.kickoffs)
    assert states == {"completed": len(load.kickoffs)}


def test_stop_discards_the_cookie(service: Service) -> None:
    old = service.processes()
    run("systemctl", "stop", "smartlinkd.socket", "smartlinkd.service")
    with pytest.raises(httpx.ConnectError):
        httpx.get(service.url, trust_env=False)
    assert not any(map(process_exists, old))
    run("systemctl", "start", "smartlinkd.socket", "smartlinkd.service")
    assert service.stored_cookie() is None
