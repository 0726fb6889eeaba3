"""The whole tree: its start, what keeps it from starting, and its end."""

from __future__ import annotations

import json
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from smartlinkd.admin.control_socket import ControlSocket, NotRunning, call
from smartlinkd.app import tree
from smartlinkd.auth.passwords import hash_password
from smartlinkd.auth.state import AuthState
from smartlinkd.config import Settings, build
from smartlinkd.errors import Invalid
from smartlinkd.sandbox.open_api import APP_ID, SECRET
from smartlinkd.sandbox.server import Sandbox, open_sandbox
from smartlinkd.state_files import StateUnusable
from smartlinkd.supervision.child import ChildSpec
from smartlinkd.supervision.supervisor import Escalated
from tests.config_file import write_config

HASH = hash_password("correct horse")
PATIENCE = 20.0  # seconds; whatever takes longer hangs

Tables = dict[str, dict[str, object]]


def tables(directory: Path, **sections: dict[str, object]) -> Tables:
    """A daemon that makes links by the Open API, and so needs no browser."""
    found: Tables = {
        "server": {"bind": "127.0.0.1:0"},
        "state": {"directory": str(directory / "state")},
        "auth": {"password_hash": HASH},
        "links": {"source": "open_api"},
        "products": {"source": "none"},
        "open_api": {"app_id": APP_ID, "secret": SECRET, "url": "http://127.0.0.1:1/graphql"},
    }
    for name, given in sections.items():
        found.setdefault(name, {}).update(given)
    return found


def settings(directory: Path, **sections: dict[str, object]) -> Settings:
    return build(tables(directory, **sections))


@asynccontextmanager
async def serving(chosen: Settings) -> AsyncIterator[str]:
    """The tree while the body runs; its address."""
    async with trio.open_nursery() as nursery:
        urls = await nursery.start(tree.serve, chosen)
        yield urls[0]
        nursery.cancel_scope.cancel()


async def get(url: str) -> int:
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=PATIENCE) as client:
        return (await client.get(url)).status_code


async def is_refused(port: int) -> bool:
    try:
        async with await trio.open_tcp_stream("127.0.0.1", port):
            return False
    except OSError:
        return True


# The start


async def test_it_answers_as_soon_as_it_says_so(tmp_path: Path) -> None:
    async with serving(settings(tmp_path)) as url:
        assert await get(f"{url}/livez") == 200
        assert (await call(tmp_path / "state", "status"))["ok"] is True


async def test_who_looks_up_a_name_takes_no_thread_of_its_parts(tmp_path: Path) -> None:
    async with serving(settings(tmp_path)):
        shared = trio.to_thread.current_default_thread_limiter()
        shared.total_tokens = 1
        async with shared:
            with trio.fail_after(PATIENCE):
                assert await trio.socket.getaddrinfo("localhost", 80)


@pytest.mark.parametrize(
    ("sections", "browser"),
    [
        ({}, False),
        ({"links": {"source": "browser"}}, True),
        ({"products": {"source": "portal"}}, True),
        ({"products": {"source": "open_api"}}, False),
    ],
    ids=["neither", "links by browser", "products by browser", "both by API"],
)
async def test_parts_start_before_those_that_ask_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sections: dict[str, dict[str, object]],
    browser: bool,
) -> None:
    """They stop in the reverse order (`tests/supervision`)."""
    seen: list[str] = []

    def noting(name: str, run: Any, **more: Any) -> ChildSpec:
        async def noted(task_status: trio.TaskStatus[None]) -> None:
            seen.append(name)
            await run(task_status)

        return ChildSpec(name, noted, **more)

    monkeypatch.setattr(tree, "ChildSpec", noting)
    nowhere: dict[str, object] = {"executable": "/nowhere/chromium"}
    async with serving(settings(tmp_path, browser=nowhere, **sections)):
        pass
    crews = ["crew tokens", "crews", "journal", "executor", "webhooks"]
    wanted = [
        "pauses",
        "auth",
        "vault",
        "history",
        "browser",
        "conversion",
        *crews,
        "http",
        "monitoring",
        "control",
    ]
    assert seen == [name for name in wanted if browser or name != "browser"]


async def test_warnings_of_the_configuration_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(settings(tmp_path, server={"trusted_proxies": ["0.0.0.0/0"]})):
        pass
    assert "server.trusted_proxies: believes the forwarding headers" in caplog.text


# What keeps it from starting


async def test_two_daemons_cannot_share_a_state_directory(tmp_path: Path) -> None:
    async with serving(settings(tmp_path)) as url:
        with pytest.raises(StateUnusable, match="another daemon is using"):
            await tree.serve(settings(tmp_path))
        assert await get(f"{url}/livez") == 200
        assert (await call(tmp_path / "state", "status"))["ok"] is True


async def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        bind = f"127.0.0.1:{port}"
        with pytest.raises(Invalid, match=rf"server\.bind: .*, port {port}: another program"):
            await tree.serve(settings(tmp_path, server={"bind": bind}))
    # and the directory is free for the next try
    async with serving(settings(tmp_path, server={"bind": bind})) as url:
        assert url == f"http://{bind}"


async def test_a_part_that_cannot_start_ends_it_all(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "auth.json").write_text("{")
    (state / "auth.json").chmod(0o600)
    with pytest.raises(Escalated, match=r"auth did not start: StateUnusable: .*auth\.json is dam"):
        await tree.serve(settings(tmp_path))
    assert (state / "auth.json").read_text() == "{"
    assert not (state / "control.sock").exists()


# The end


async def test_stopped_during_its_start_it_does_not_say_that_it_serves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stopped_before_it_serves(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGTERM)
        await trio.sleep_forever()

    monkeypatch.setattr(ControlSocket, "run", stopped_before_it_serves)
    caplog.set_level("INFO")
    with trio.fail_after(PATIENCE):
        await tree.serve(settings(tmp_path))
    assert "stopping on SIGTERM" in caplog.text
    assert "serving on" not in caplog.text


async def test_cancelled_it_leaves_nothing_behind(tmp_path: Path) -> None:
    async with serving(settings(tmp_path)) as url:
        bind = url.removeprefix("http://")
    assert not (tmp_path / "state" / "control.sock").exists()
    async with serving(settings(tmp_path, server={"bind": bind})) as url:
        assert await get(f"{url}/livez") == 200


async def test_a_part_that_cannot_be_kept_up_ends_it_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mock_clock: MockClock
) -> None:

    def fault(*_: object) -> None:
        raise ZeroDivisionError("a bug in auth")

    monkeypatch.setattr(AuthState, "check_session", fault)
    async with trio.open_nursery() as nursery:

        async def run(task_status: trio.TaskStatus[Sequence[str]]) -> None:
            text = r"auth needed more than 5 restarts .* a bug in auth"
            with pytest.raises(Escalated, match=text):
                await tree.serve(settings(tmp_path), task_status=task_status)
            nursery.cancel_scope.cancel()

        urls = await nursery.start(run)
        mock_clock.rate = 20  # five restarts take some 15 seconds
        nursery.start_soon(_ask_for_ever, urls[0])
    with pytest.raises(NotRunning):
        await call(tmp_path / "state", "status")


async def _ask_for_ever(url: str) -> None:
    async with httpx.AsyncClient(trust_env=False, verify=False, timeout=None) as client:
        while True:
            try:
                await client.get(f"{url}/api/status", headers={"Authorization": "Bearer x"})
            except httpx.TransportError:
                await trio.lowlevel.checkpoint()


# As a process


class Process:
    """`smartlinkd serve`, and what it says."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.said = ""

    async def until(self, text: str) -> dict[str, Any]:
        """Read its log up to a message that begins so."""
        assert self.process.stderr is not None
        with trio.fail_after(PATIENCE):
            while True:
                for line in self.said.splitlines()[: self.said.count("\n")]:
                    record: dict[str, Any] = json.loads(line)
                    if record["message"].startswith(text):
                        return record
                part = await self.process.stderr.receive_some()
                assert part, f"it ended: {self.said}"
                self.said += part.decode()

    async def ended(self) -> int:
        with trio.fail_after(PATIENCE):
            assert self.process.stderr is not None
            async for part in self.process.stderr:
                self.said += part.decode()
            return await self.process.wait()


Start = Callable[[Tables], Any]


@pytest.fixture
async def start(tmp_path: Path, nursery: trio.Nursery) -> Start:
    """Starts a daemon; one that does not end by itself is killed when the test has ended."""

    async def start(wanted: Tables) -> Process:
        config = tmp_path / "config.toml"
        write_config(config, wanted)
        command = [sys.executable, "-m", "smartlinkd", "serve", "--config", str(config)]
        root = Path(__file__).parents[1]
        run = partial(trio.run_process, command, stderr=PIPE, check=False, cwd=root)
        return Process(await nursery.start(run))

    return start


async def begin_conversion(
    url: str, sandbox: Sandbox, task_status: trio.TaskStatus[None], answers: list[httpx.Response]
) -> None:
    """Log in and convert; `started()` when the call upstream has begun."""
    async with httpx.AsyncClient(
        base_url=url, trust_env=False, verify=False, timeout=PATIENCE
    ) as client:
        login = await client.post("/api/auth/login", json={"password": "correct horse"})
        token = login.json()["token"]
        async with trio.open_nursery() as nursery:

            async def convert() -> None:
                answers.append(
                    await client.post(
                        "/api/convert",
                        json={"links": [f"{sandbox.shop_url}/product/7/1"]},
                        headers={"Authorization": f"Bearer {token}"},
                    )
                )

            nursery.start_soon(convert)
            with trio.fail_after(PATIENCE):
                while not sandbox.state.counters["open api"]:
                    await trio.lowlevel.checkpoint()
            task_status.started()


async def converting(
    start: Start, directory: Path, sandbox: Sandbox, clients: trio.Nursery, **server: object
) -> tuple[Process, str, list[httpx.Response]]:
    """A daemon that is held up upstream in a conversion, its address, and what it has answered."""
    answers: list[httpx.Response] = []
    sandbox.state.faults.arm("open_api_slow")
    daemon = await start(
        tables(
            directory,
            server=server,
            marketplace={"shop_url": sandbox.shop_url, "short_urls": [sandbox.short_url]},
            open_api={"url": sandbox.open_api_url},
        )
    )
    url = str((await daemon.until("serving on "))["message"]).removeprefix("serving on ")
    await clients.start(lambda task_status: begin_conversion(url, sandbox, task_status, answers))
    return daemon, url, answers


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_requests_end_and_is_no_failure(
    start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    async with open_sandbox(hold=PATIENCE) as sandbox, trio.open_nursery() as clients:
        daemon, url, answers = await converting(start, tmp_path, sandbox, clients)
        daemon.process.send_signal(number)
        await daemon.until(f"stopping on {number.name}")
        port = httpx.URL(url).port or 0
        with trio.fail_after(PATIENCE):
            while not await is_refused(port):  # no new clients, while the old one is served
                pass
        assert not answers
        sandbox.state.closing.set()  # ends the wait upstream
        assert await daemon.ended() == 0
    (answer,) = answers
    assert answer.status_code == 200
    assert [entry["failCode"] for entry in answer.json()["mapping"].values()] == [0]
    assert answer.headers["Connection"] == "close"
    assert not (tmp_path / "state" / "control.sock").exists()
    assert json.loads(daemon.said.splitlines()[-1])["message"] == "stopped"


async def test_a_request_that_does_not_end_has_the_grace(start: Start, tmp_path: Path) -> None:
    async with open_sandbox(hold=PATIENCE) as sandbox:
        with pytest.RaisesGroup(httpx.TransportError, flatten_subgroups=True):
            async with trio.open_nursery() as clients:
                daemon, _, answers = await converting(start, tmp_path, sandbox, clients, grace=0.2)
                daemon.process.terminate()
                with trio.fail_after(5):
                    assert await daemon.process.wait() == 0
        assert await daemon.ended() == 0
    assert not answers


async def test_a_second_signal_ends_it_at_once(start: Start, tmp_path: Path) -> None:
    async with open_sandbox(hold=PATIENCE) as sandbox:
        with pytest.RaisesGroup(httpx.TransportError, flatten_subgroups=True):
            async with trio.open_nursery() as clients:
                daemon, _, answers = await converting(
                    start, tmp_path, sandbox, clients, grace=10 * PATIENCE
                )
                daemon.process.terminate()
                await daemon.until("stopping on SIGTERM")
                daemon.process.send_signal(signal.SIGINT)
                with trio.fail_after(5):
                    await daemon.until("stopping at once on SIGINT")
                    assert await daemon.process.wait() == 0
        assert await daemon.ended() == 0
    assert not answers
    assert not (tmp_path / "state" / "control.sock").exists()


@pytest.mark.parametrize("why", ["directory", "port"])
async def test_a_start_that_fails_is_1_and_one_line(start: Start, tmp_path: Path, why: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        if why == "directory":
            (tmp_path / "state").touch()
            wanted = tables(tmp_path)
        else:
            wanted = tables(tmp_path, server={"bind": f"127.0.0.1:{taken.getsockname()[1]}"})
        daemon: Process = await start(wanted)
        assert await daemon.ended() == 1
    (record,) = [json.loads(line) for line in daemon.said.splitlines()]
    assert record["level"] == "critical"
    assert record["message"].startswith("state.directory" if why == "directory" else "server.bind")
    assert "exception" not in record
