"""The whole tree: its start, what keeps it from starting, and its end."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
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
from smartlinkd.sandbox.open_api import APP_ID, SECRET
from smartlinkd.sandbox.server import open_sandbox
from smartlinkd.sandbox.state import SandboxState
from smartlinkd.state_files import StateUnusable
from smartlinkd.supervision.supervisor import Escalated
from tests.config_file import write_config
from tests.programs import Program

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


# The start


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
    tmp_path: Path, sections: dict[str, dict[str, object]], browser: bool
) -> None:
    """Supervisors start their children in this order, and stop them in the reverse one."""
    nowhere: dict[str, object] = {"executable": "/nowhere/chromium"}
    async with serving(settings(tmp_path, browser=nowhere, **sections)):
        parts: Any = (await call(tmp_path / "state", "status"))["actors"]
    wanted = [
        *("pauses", "auth", "vault", "history", "browser", "conversion", "crew tokens", "crews"),
        *("http", "monitoring", "control"),
        *("journal", "executor", "webhooks"),  # of the crews
    ]
    assert [part["name"] for part in parts] == [
        name for name in wanted if browser or name != "browser"
    ]


async def test_who_looks_up_a_name_takes_no_thread_of_its_parts(tmp_path: Path) -> None:
    async with serving(settings(tmp_path)):
        shared = trio.to_thread.current_default_thread_limiter()
        shared.total_tokens = 1
        async with shared:
            with trio.fail_after(PATIENCE):
                assert await trio.socket.getaddrinfo("localhost", 80)


# What keeps it from starting


async def test_two_daemons_cannot_share_a_state_directory(tmp_path: Path) -> None:
    async with serving(settings(tmp_path)) as url:
        with pytest.raises(StateUnusable, match="another daemon is using"):
            await tree.serve(settings(tmp_path))
        assert await get(f"{url}/livez") == 200
        assert (await call(tmp_path / "state", "status"))["ok"] is True


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


Start = Callable[[Tables], Program]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a daemon; one that does not end by itself is stopped when the test has ended."""
    with ExitStack() as started:

        def start(wanted: Tables) -> Program:
            config = tmp_path / "config.toml"
            write_config(config, wanted)
            words = ("serve", "--config", str(config))
            daemon = Program("smartlinkd", *words, folder=tmp_path, log=tmp_path / "log")
            started.callback(daemon.stop)
            return daemon

        yield start


async def exit_code(daemon: Program, *, within: float = PATIENCE) -> int:
    return await trio.to_thread.run_sync(daemon.process.wait, within)


def records(daemon: Program) -> list[dict[str, Any]]:
    return [json.loads(line) for line in daemon.log.read_text().splitlines()]


async def convert(url: str, link: str, answers: list[httpx.Response]) -> None:
    async with httpx.AsyncClient(
        base_url=url, trust_env=False, verify=False, timeout=PATIENCE
    ) as client:
        login = await client.post("/api/auth/login", json={"password": "correct horse"})
        headers = {"Authorization": f"Bearer {login.json()['token']}"}
        answers.append(await client.post("/api/convert", json={"links": [link]}, headers=headers))


async def converting(
    start: Start, directory: Path, sandbox: SandboxState, clients: trio.Nursery, **server: object
) -> tuple[Program, list[httpx.Response]]:
    """A daemon that is held up upstream in a conversion, and what it has answered."""
    answers: list[httpx.Response] = []
    sandbox.arm("open_api_slow")
    daemon = start(
        tables(
            directory,
            server=server,
            marketplace={"shop_url": sandbox.origins.shop, "short_urls": [sandbox.origins.short]},
            open_api={"url": sandbox.origins.open_api},
        )
    )
    url = daemon.wait_for(r'serving on (http:[^"]+)', daemon.log)[1]
    clients.start_soon(convert, url, f"{sandbox.origins.shop}/product/7/1", answers)
    with trio.fail_after(PATIENCE):
        while not sandbox.counters["open api"]:
            await trio.lowlevel.checkpoint()
    return daemon, answers


@pytest.mark.parametrize("until", ["its grace is over", "a second signal comes"])
async def test_a_request_that_does_not_end_is_waited_for_until(
    start: Start, tmp_path: Path, until: str
) -> None:
    is_second = until == "a second signal comes"
    grace = 10 * PATIENCE if is_second else 0.2
    async with open_sandbox(hold=PATIENCE) as sandbox:
        with pytest.RaisesGroup(httpx.TransportError, flatten_subgroups=True):
            async with trio.open_nursery() as clients:
                daemon, answers = await converting(start, tmp_path, sandbox, clients, grace=grace)
                daemon.process.send_signal(signal.SIGINT if is_second else signal.SIGTERM)
                if is_second:
                    daemon.wait_for("stopping on SIGINT", daemon.log)
                    daemon.process.terminate()
                assert await exit_code(daemon, within=5) == 0
    assert not answers
    assert ("stopping at once on SIGTERM" in daemon.log.read_text()) is is_second
    assert records(daemon)[-1]["message"] == "stopped"
    assert not (tmp_path / "state" / "control.sock").exists()


@pytest.mark.parametrize("why", ["directory", "port"])
async def test_a_start_that_fails_is_1_and_one_line(start: Start, tmp_path: Path, why: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        if why == "directory":
            (tmp_path / "state").touch()
            daemon = start(tables(tmp_path))
        else:
            daemon = start(tables(tmp_path, server={"bind": f"127.0.0.1:{port}"}))
        assert await exit_code(daemon) == 1
    (record,) = records(daemon)
    assert record["level"] == "critical"
    told = {"directory": "state.directory: ", "port": f"server.bind: .*, port {port}: another pro"}
    assert re.match(told[why], record["message"])
    assert "exception" not in record
