"""The whole tree with its own sockets, threads and a real worker: its start is cancelled at every
step, and so is its end, by a second signal. What is left then would be in the next one's way.

Chromium alone is played here. The same on a mock clock, at all steps and with all that may be under
way, is in `test_life.py`.
"""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import httpx
import pytest
import trio

from smartlinkd.admin.control_socket import SOCKET_NAME, call
from smartlinkd.app import tree
from smartlinkd.config import Settings, build
from smartlinkd.state_files import claim
from tests.every_step.driver import AtEveryStep
from tests.every_step.strike import Strike
from tests.fakes import machine as machine_module
from tests.fakes.machine import Machine
from tests.fakes.network import sandbox_network
from tests.faults.stage import HASH
from tests.hygiene.at_once import check_held, held

SOON = 20.0
GRACE = 6
"""Seconds that a worker has to stop. This one needs them all."""
WORKER = """
trap '' TERM
printf '{"type":"started"}\\n' >&3
while :; do sleep 1; done
"""
WAITING = 0.3
"""Seconds after which a daemon that was told to stop does nothing but wait for its worker."""
AT_ONCE = 4.0
"""Seconds from the second signal to the end, on a machine that has other things to do."""


class House:
    """Where a daemon lives: its state, its machine, its port."""

    def __init__(self, folder: Path, machine: Machine) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.machine = machine
        self.port = 0

    def settings(self) -> Settings:
        crew = {"name": "c", "runner": "command", "command": ["/bin/sh", "-c", WORKER]}
        return build(
            {
                "server": {"bind": f"127.0.0.1:{self.port}"},
                "state": {"directory": str(self.state)},
                "auth": {"password_hash": HASH},
                "crews": [{**crew, "grace": GRACE}],
            }
        )

    async def is_empty(self) -> None:
        """Nothing of a daemon is here: no browser, worker, folder or socket, nor its lock."""
        assert self.machine.running == []
        assert list(self.machine.profiles.iterdir()) == []
        runs = self.state / "runs"
        assert not runs.exists() or list(runs.iterdir()) == []
        assert not (self.state / SOCKET_NAME).exists()
        if self.port:
            with pytest.raises(OSError, match="connect"):
                await trio.open_tcp_stream("127.0.0.1", self.port)
        with claim(self.state):
            pass


@asynccontextmanager
async def house(folder: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    """One whose daemon has been there before, and has a port."""
    network, _ = sandbox_network()
    machine = Machine(folder, network)
    machine.install(patch)
    patch.setattr(machine_module, "LAUNCH_TAKES", 0.005)
    here = House(folder, machine)
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(tree.serve, here.settings())
        here.port = httpx.URL(urls[0]).port or 0
        nursery.cancel_scope.cancel()
    await here.is_empty()
    yield here


@pytest.fixture(autouse=True)
def late_signals() -> Iterator[None]:
    """A signal that comes when the daemon has ended is not to end the tests."""
    before = signal.signal(signal.SIGTERM, lambda *_: None)
    yield
    signal.signal(signal.SIGTERM, before)


def test_its_start_is_cancelled(
    at_every_step: AtEveryStep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(strike: Strike, here: House) -> None:
        before = held()
        async with trio.open_nursery() as nursery:
            strike.arm(nursery.cancel_scope.cancel)
            await nursery.start(tree.serve, here.settings())
            strike.disarm()
            nursery.cancel_scope.cancel()
        strike.disarm()
        await here.is_empty()
        check_held(before)

    steps = at_every_step.within(lambda: house(tmp_path, monkeypatch), scenario, stride=5)
    assert steps > 60


def test_a_second_signal_during_its_end(
    at_every_step: AtEveryStep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second: list[float] = []

    def terminate_again() -> None:
        second[:] = [trio.current_time()]
        terminate()

    async def scenario(strike: Strike, here: House) -> None:
        before, ended = held(), trio.Event()

        async def serve(task_status: trio.TaskStatus[Sequence[str]]) -> None:
            await tree.serve(here.settings(), task_status=task_status)
            ended.set()

        with trio.fail_after(SOON):
            async with trio.open_nursery() as nursery:
                await nursery.start(serve)
                nursery.start_soon(wait_for_what_runs, here, await kicked_off(here))
                await has_worker(here)
                with when_it_stops(lambda: strike.arm(terminate_again)):
                    terminate()
                    with trio.move_on_after(WAITING):
                        await ended.wait()
                strike.disarm()
                if not strike.happened:
                    terminate_again()
        assert trio.current_time() - second[0] <= AT_ONCE
        await here.is_empty()
        check_held(before)

    steps = at_every_step.within(lambda: house(tmp_path, monkeypatch), scenario, stride=7)
    assert steps > 40


@contextmanager
def when_it_stops(do: Callable[[], object]) -> Iterator[None]:
    """Do it when the first signal has been heard: two that come together are one, as ever."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.getMessage() == "stopping on SIGTERM":
                do()

    log, handler = logging.getLogger(tree.__name__), Handler()
    level = log.level
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    yield
    log.removeHandler(handler)
    log.setLevel(level)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


async def kicked_off(here: House) -> tuple[str, str]:
    """The token, and the id of an execution that runs until it is stopped."""
    token = str((await call(here.state, "crew token", {"name": "c"}))["token"])
    async with client(here, token) as asker:
        answer = await asker.post("/kickoff", json={"inputs": {}})
    assert answer.status_code == 200, answer.text
    return token, str(answer.json()["kickoff_id"])


async def wait_for_what_runs(here: House, execution: tuple[str, str]) -> None:
    """Somebody waits for its end; they may be cut off."""
    token, kickoff_id = execution
    with suppress(httpx.TransportError):
        async with client(here, token) as asker:
            await asker.get(f"/status/{kickoff_id}?wait=60")


async def has_worker(here: House) -> None:
    while not list((here.state / "runs").iterdir()):  # noqa: ASYNC110 - folders tell nobody
        await trio.sleep(0.001)


def client(here: House, token: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{here.port}/crews/c",
        headers={"Authorization": f"Bearer {token}"},
        trust_env=False,
        verify=False,
        timeout=SOON,
    )
