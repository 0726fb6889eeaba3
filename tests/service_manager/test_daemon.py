"""The daemon as a process under a service manager: started, hung, killed and started again."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio
import trio.testing

from smartlinkd.admin.control_socket import call
from smartlinkd.auth.passwords import hash_password
from tests.config_file import write_config

if TYPE_CHECKING:
    from tests.service_manager.conftest import Manager

ROOT = Path(__file__).parents[2]
PATIENCE = 30.0
HASH = hash_password("correct horse")
COOKIE = "SPC_U=4711; SPC_EC=hunter2"

# What systemd does between fork and exec: descriptors from 3 on, and whose they are.
LAUNCH = """
import fcntl, os, sys
given, *command = sys.argv[1:]
names, numbers = zip(*(each.split("=") for each in given.split())) if given else ((), ())
moved = [fcntl.fcntl(int(number), fcntl.F_DUPFD_CLOEXEC, 100) for number in numbers]
for number in numbers:
    os.close(int(number))
for number, each in enumerate(moved, 3):
    os.dup2(each, number, inheritable=True)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(moved))}
os.environ["LISTEN_FDNAMES"] = ":".join(names)
os.execv(command[0], command)
"""

# The daemon's command, with something done before, and what is left in its environment after.
SERVE = """
import os, sys
{before}
from smartlinkd.cli import main
code = main(["serve", "--config", sys.argv[1]])
print(*(name for name in os.environ if name.split("_")[0] in ("LISTEN", "NOTIFY", "WATCHDOG")))
sys.exit(code)
"""

# The vault's first answer, which is to the look for a sign of life.
BLOCK = """
from smartlinkd.supervision.actor import Call
answer = Call.answer
async def current(self, state):
    if self.actor != "vault":
        return await answer(self, state)
    while True:
        pass
Call.answer = current
"""


class Process:
    """A daemon and its standard error."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.said = ""

    async def until(self, pattern: str) -> str:
        """Read standard error up to a line that matches."""
        assert self.process.stderr is not None
        with trio.fail_after(PATIENCE):
            while not (found := re.search(f".*(?:{pattern}).*", self.said)):
                part = await self.process.stderr.receive_some()
                assert part, f"it ended: {self.said}"
                self.said += part.decode()
        return found[0]

    async def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return await self.ended()

    async def ended(self) -> int:
        with trio.fail_after(PATIENCE):
            assert self.process.stderr is not None
            async for part in self.process.stderr:
                self.said += part.decode()
            return await self.process.wait()


class Host:
    """A machine: a listening socket that stays open, and one daemon at a time."""

    def __init__(self, folder: Path, manager: Manager, nursery: trio.Nursery) -> None:
        self.manager = manager
        self.state = folder / "state"
        self.door = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self.door.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.config = folder / "config.toml"
        self._nursery = nursery
        self._configure()

    def _configure(self) -> None:
        tables: dict[str, Mapping[str, object]] = {
            "server": {"bind": f"127.0.0.1:{self.port}"},
            "state": {"directory": str(self.state)},
            "auth": {"password_hash": HASH},
            "links": {"source": "open_api"},
            "products": {"source": "none"},
            "open_api": {"app_id": "1", "secret": "s" * 32, "url": "http://127.0.0.1:1/graphql"},
        }
        write_config(self.config, tables)

    async def start(
        self, *, before: str = "", watchdog: float = 20.0, door: bool = True, ready: bool = True
    ) -> Process:
        """Start the daemon as its unit does, with the socket and the stored descriptors."""
        self.manager.listen()
        self.manager.heard.clear()
        given = ({"http": self.door.fileno()} if door else {}) | self.manager.store
        names = " ".join(f"{name}={number}" for name, number in given.items())
        script = SERVE.format(before=before)
        command = [sys.executable, "-c", LAUNCH, names, sys.executable, "-c", script]
        environ = os.environ | {
            "NOTIFY_SOCKET": self.manager.address,
            "WATCHDOG_USEC": str(int(watchdog * 1e6)),
            "PYTHONPATH": str(ROOT),
        }

        async def kill(process: trio.Process) -> None:
            process.kill()

        run = partial(
            trio.run_process,
            [*command, str(self.config)],
            stderr=PIPE,
            check=False,
            deliver_cancel=kill,
            env=environ,
            pass_fds=tuple(given.values()),
            cwd=ROOT,
        )
        process = Process(await self._nursery.start(run))
        if ready:
            await self.manager.until("READY=1")
        return process

    async def cookie(self, *, sync: str | None = None) -> Any:
        """Return the stored cookie, after a sync if a cookie is given."""
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as client:
            url = f"{self.url}/api/sync-cookie"
            if sync is not None:
                assert (await client.post(url, json={"cookie": sync})).status_code == 200
            return (await client.get(url)).json().get("cookie")


@pytest.fixture
async def host(tmp_path: Path, manager: Manager, nursery: trio.Nursery) -> AsyncIterator[Host]:
    host = Host(tmp_path, manager, nursery)
    nursery.start_soon(manager.attend)
    with host.door:
        yield host
    nursery.cancel_scope.cancel()


async def test_daemon_is_ready_when_it_answers_and_reports_its_state(
    host: Host, capfd: pytest.CaptureFixture[str]
) -> None:
    daemon = await host.start(watchdog=1.0)
    assert await host.cookie() is None  # answered, in time
    await host.manager.until("STATUS=All parts run")
    for _ in range(5):
        host.manager.heard.clear()
        await host.manager.until("WATCHDOG=1")
    assert await daemon.end() == 0
    await host.manager.until("STOPPING=1")
    assert host.manager.said("EXTEND_TIMEOUT_USEC")
    assert capfd.readouterr().out == "\n"  # of it all, nothing is left in the environment


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
async def test_cookie_outlives_the_process_but_not_a_stop(host: Host, end: signal.Signals) -> None:
    daemon = await host.start()
    assert await host.cookie(sync=COOKIE) == COOKIE
    status = await call(host.state, "status")
    assert status["cookie"]["kept"] is True
    await daemon.end(end)
    daemon = await host.start()
    assert await host.cookie() == COOKIE
    assert "the cookie synced at " in await daemon.until("is here again")
    await daemon.end(end)
    host.manager.listen()
    assert len(host.manager.store) == 1
    os.close(host.manager.store.popitem()[1])  # systemctl stop
    daemon = await host.start()
    assert await host.cookie() is None
    await daemon.end()
    assert "hunter2" not in daemon.said


async def test_refused_configuration_is_the_last_status(host: Host) -> None:
    host.config.write_text(host.config.read_text().replace("links", "lynx").replace('"none"', "7"))
    daemon = await host.start(ready=False)
    assert await daemon.ended() == 2
    (said,) = host.manager.said("STATUS")
    assert re.fullmatch(r"Ended: lynx: .+; .+ \| products\.source: .+; .+", said), said
    assert host.manager.said("READY") == []


async def test_restart_refuses_no_client(host: Host) -> None:
    answers: list[int] = []

    async def ask() -> None:
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as client:
            answers.append((await client.get(f"{host.url}/livez")).status_code)

    daemon = await host.start()
    assert await daemon.end() == 0
    async with trio.open_nursery() as clients:
        for _ in range(20):
            clients.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked(0.1)
        assert answers == []
        daemon = await host.start()
    assert answers == [200] * 20
    await daemon.end()


async def test_blocked_event_loop_stops_the_pings_and_dumps_its_stack(host: Host) -> None:
    daemon = await host.start(before=BLOCK, watchdog=2.0, ready=False)
    assert "(0:00:01." in await daemon.until("Timeout ")  # before the manager's two seconds
    assert "in current" in await daemon.until('File "<string>", line')
    host.manager.listen()
    host.manager.heard.clear()
    await trio.sleep(1.0)
    assert not host.manager.said("WATCHDOG")
    assert await daemon.end(signal.SIGKILL) == -signal.SIGKILL  # it had not ended by itself


async def test_start_that_fails_is_the_last_status(host: Host) -> None:
    daemon = await host.start(door=False, ready=False)
    assert await daemon.ended() == 1
    host.manager.listen()
    (line,) = host.manager.said("STATUS")
    assert line.startswith("Ended: Invalid: server.bind: cannot listen on 127.0.0.1")
