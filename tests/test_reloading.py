"""SIGHUP: a changed configuration is taken up while the daemon serves, or refused as a whole."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from daemon import reloading, tree
from daemon.auth.passwords import hash_password
from daemon.config import load
from daemon.control import call
from daemon.errors import Unavailable
from daemon.journal import actor as journal
from daemon.service_manager.given import Given
from daemon.supervision.supervisor import Supervisor
from tests.config_file import Tables, write_config
from tests.shortage import Shortage

PATIENCE = 20.0  # seconds; whatever takes longer hangs
HASH, OTHER_HASH = hash_password("correct horse"), hash_password("open barley")
DONE = """printf '{"type":"started"}\\n{"type":"result","output":"done"}\\n' >&3"""
WAIT = """printf '{"type":"started"}\\n' >&3; read given <&3; read stop <&3"""


def crew(name: str, script: str = DONE, **more: object) -> dict[str, object]:
    return {"name": name, "runner": "command", "command": ["/bin/sh", "-c", script], **more}


class Daemon:
    """The tree on a file of its configuration, and its client."""

    def __init__(self, folder: Path, caplog: pytest.LogCaptureFixture) -> None:
        self.folder = folder
        self.file = folder / "config.toml"
        self.url = ""
        self.client = httpx.AsyncClient(trust_env=False, verify=False)
        self._caplog = caplog

    def write(self, *crews: dict[str, object], **sections: dict[str, object]) -> None:
        """The file anew."""
        tables: Tables = {
            "server": {"bind": "127.0.0.1:0"},
            "state": {"directory": str(self.folder / "state")},
            "auth": {"password_hash": HASH},
            "links": {"source": "open_api"},
            "products": {"source": "none"},
            "open_api": {"app_id": "1", "secret": "s" * 32, "url": "http://127.0.0.1:1/graphql"},
        }
        write_config(self.file, tables, sections, {"crews": crews})

    async def hang_up(self) -> str:
        """SIGHUP; returns what was logged of it, when it is done."""
        before = len(self._caplog.records)
        os.kill(os.getpid(), signal.SIGHUP)
        with trio.fail_after(PATIENCE):
            while True:
                said = [each.getMessage() for each in self._caplog.records[before:]]
                if any("is reloaded" in it or "goes on by the one before" in it for it in said):
                    return "\n".join(said)
                await trio.sleep(0.01)

    async def get(self, path: str, token: str = "") -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return await self.client.get(self.url + path, headers=headers)

    async def login(self, password: str = "correct horse") -> httpx.Response:
        return await self.client.post(f"{self.url}/api/auth/login", json={"password": password})

    async def token(self, crew: str) -> str:
        told = await call(self.folder / "state", "crew token", {"name": crew})
        assert told["ok"], told
        return str(told["token"])

    async def kickoff(self, crew: str) -> tuple[str, str]:
        """The token and the kickoff_id."""
        token = await self.token(crew)
        answer = await self.client.post(
            f"{self.url}/crews/{crew}/kickoff",
            json={"inputs": {}},
            headers={"Authorization": f"Bearer {token}"},
        )
        assert answer.status_code == 200, answer.text
        return token, str(answer.json()["kickoff_id"])

    async def end_of(self, crew: str, token: str, kickoff_id: str) -> Any:
        with trio.fail_after(PATIENCE):
            while True:
                answer = await self.get(f"/crews/{crew}/status/{kickoff_id}?wait=5", token)
                found = answer.json()
                if found["state"] not in ("PENDING", "STARTED", "RUNNING"):
                    return found


@asynccontextmanager
async def running(daemon: Daemon, given: Given = Given()) -> AsyncIterator[None]:  # noqa: B008 - frozen
    reread = partial(load, daemon.file, {})
    async with daemon.client, trio.open_nursery() as nursery:
        listening = await nursery.start(tree.serve, reread(), given, reread)
        daemon.url = listening.urls[0]
        yield
        nursery.cancel_scope.cancel()


@pytest.fixture
def daemon(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Daemon]:
    """Of the log's levels, which a reload sets, nothing stays."""
    loggers = logging.getLogger(), logging.getLogger("daemon")
    levels = [each.level for each in loggers]
    caplog.set_level(logging.INFO)
    yield Daemon(tmp_path, caplog)
    for each, level in zip(loggers, levels, strict=True):
        each.setLevel(level)


async def test_a_crew_comes_and_another_goes(daemon: Daemon) -> None:
    daemon.write(crew("old"))
    async with running(daemon):
        old = await daemon.token("old")
        daemon.write(crew("new", default=True))
        assert "is reloaded: crews" in await daemon.hang_up()
        token, kickoff_id = await daemon.kickoff("new")
        assert (await daemon.end_of("new", token, kickoff_id))["result"] == "done"
        assert (await daemon.get(f"/status/{kickoff_id}", token)).status_code == 200
        assert (await daemon.get("/crews/old/inputs", old)).status_code == 401


async def test_what_runs_goes_on(daemon: Daemon) -> None:
    daemon.write(crew("one", WAIT + "; " + DONE, deadline=30))
    async with running(daemon):
        token, kickoff_id = await daemon.kickoff("one")
        daemon.write(crew("one", "exit 7"))
        await daemon.hang_up()
        stop = f"{daemon.url}/crews/one/stop/{kickoff_id}"
        answer = await daemon.client.post(stop, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 200, answer.text
        token, kickoff_id = await daemon.kickoff("one")
        assert "7" in (await daemon.end_of("one", token, kickoff_id))["error"]


async def test_a_crew_with_a_longer_grace_has_it(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Supervisor] = []

    def note(*args: Any, **more: Any) -> Supervisor:
        made.append(Supervisor(*args, **more))
        return made[-1]

    monkeypatch.setattr(tree, "Supervisor", note)
    daemon.write(crew("one", grace=2))
    async with running(daemon):
        before = [each.longest_end for each in made]
        daemon.write(crew("one", grace=2), crew("slow", grace=40))
        await daemon.hang_up()
        assert [each.longest_end - longest for each, longest in zip(made, before, strict=True)] == [
            38.0,
            38.0,
        ]
        daemon.write(crew("one", grace=2))  # what still runs of the other was promised its grace
        await daemon.hang_up()
        assert made[0].longest_end - before[0] == 38.0


async def test_the_password_changes_with_its_file(daemon: Daemon) -> None:
    secret = daemon.folder / "hash"
    secret.write_text(HASH)
    secret.chmod(0o600)
    by_file: dict[str, object] = {"password_hash": "", "password_hash_file": str(secret)}
    daemon.write(auth=by_file)
    async with running(daemon):
        session = (await daemon.login()).json()["token"]
        secret.write_text(OTHER_HASH)
        assert "is reloaded: auth.password_hash" in await daemon.hang_up()
        assert (await daemon.login()).status_code == 401
        assert (await daemon.login("open barley")).status_code == 200
        assert (await daemon.get("/api/status", session)).status_code == 403


async def test_who_is_local_and_how_long_a_body_may_be_change(daemon: Daemon) -> None:
    daemon.write(server={"max_body": 4096})
    async with running(daemon):
        assert (await daemon.get("/api/sync-cookie")).status_code == 200
        assert (await daemon.login("x" * 5000)).status_code == 413
        assert (await daemon.login("x" * 2000)).status_code == 400
        daemon.write(cookie={"open_to": []}, server={"max_body": 1024})
        said = await daemon.hang_up()
        assert "is reloaded: server.max_body, cookie.open_to" in said
        assert (await daemon.get("/api/sync-cookie")).status_code == 403
        assert (await daemon.login("x" * 2000)).status_code == 413


async def test_what_is_kept_of_executions_changes(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "PRUNE_EVERY", 0.05)
    daemon.write(crew("one"))
    async with running(daemon):
        ended = []
        for _ in range(2):
            token, kickoff_id = await daemon.kickoff("one")
            await daemon.end_of("one", token, kickoff_id)
            ended.append(kickoff_id)
        daemon.write(crew("one"), journal={"retention_count": 1})
        assert "is reloaded: journal.retention_count" in await daemon.hang_up()
        with trio.fail_after(PATIENCE):
            while True:
                answers = [await daemon.get(f"/crews/one/status/{id_}", token) for id_ in ended]
                if [each.status_code for each in answers] == [404, 200]:
                    break
                await trio.sleep(0.01)


async def test_a_request_under_way_ends_as_it_began(daemon: Daemon) -> None:
    signal_file = daemon.folder / "go on"
    waits = f"printf '{{\"type\":\"started\"}}\\n' >&3; until [ -e '{signal_file}' ]; do :; done; "
    one = crew("one", waits + DONE.replace('{"type":"started"}\\n', ""), deadline=30)
    daemon.write(one)
    async with running(daemon):
        token, kickoff_id = await daemon.kickoff("one")
        events = f"{daemon.url}/crews/one/events/{kickoff_id}"
        headers = {"Authorization": f"Bearer {token}"}
        async with daemon.client.stream("GET", events, headers=headers) as answer:
            lines = answer.aiter_lines()
            assert await anext(lines)
            daemon.write(one, server={"max_body": 1024})
            await daemon.hang_up()
            assert (await daemon.login("x" * 2000)).status_code == 413
            signal_file.touch()
            rest = "\n".join([line async for line in lines])
    assert "crew_kickoff_completed" in rest


async def test_a_faulty_file_changes_nothing_and_is_told(daemon: Daemon) -> None:
    daemon.write(crew("one"))
    async with running(daemon):
        daemon.write(cookie={"open_to": []}, browser={"queue": 0}, server={"max_bdy": 1})
        said = await daemon.hang_up()
        assert "not reloaded: browser.queue: " in said
        assert "not reloaded: server.max_bdy: " in said
        assert "has 2 problem(s)" in said
        assert (await daemon.get("/api/sync-cookie")).status_code == 200
        token, kickoff_id = await daemon.kickoff("one")
        assert (await daemon.end_of("one", token, kickoff_id))["result"] == "done"
        daemon.file.unlink()
        assert "goes on by the one before" in await daemon.hang_up()
        daemon.write(crew("one"))
        assert "nothing has changed" in await daemon.hang_up()


async def test_with_no_thread_to_read_it_the_file_changes_nothing(
    daemon: Daemon, no_thread: Shortage
) -> None:
    daemon.write(crew("old"))
    async with running(daemon):
        daemon.write(crew("new"))
        with no_thread():
            assert "cannot start a thread" in await daemon.hang_up()
        assert (await daemon.login()).status_code == 200
        assert "is reloaded: crews" in await daemon.hang_up()


async def test_a_crew_that_runs_is_not_broken_by_it(daemon: Daemon) -> None:
    daemon.write(crew("one"))
    async with running(daemon):
        daemon.write(crew("one", command=["/nowhere/at-all"]), cookie={"open_to": []})
        said = await daemon.hang_up()
        assert "not reloaded: " in said
        assert "/nowhere/at-all" in said
        assert (await daemon.get("/api/sync-cookie")).status_code == 200
        token, kickoff_id = await daemon.kickoff("one")
        assert (await daemon.end_of("one", token, kickoff_id))["result"] == "done"


@pytest.mark.parametrize(
    ("right", "slip"),
    [
        ('name = "one"', 'name = "One"'),
        ('name = "one"', 'name = "two"'),
        ('name = "one"\n', ""),
        ("[[crews]]", "[crews]"),
    ],
)
async def test_a_slip_in_a_crews_name_ends_nothing_that_waits_for_it(
    daemon: Daemon, right: str, slip: str
) -> None:
    two = [crew("two")] if right.startswith("name") else []
    daemon.write(crew("one", WAIT, max_running=1), *two)
    async with running(daemon):
        await daemon.kickoff("one")
        token, waiting = await daemon.kickoff("one")
        daemon.file.write_text(daemon.file.read_text().replace(right, slip, 1))
        assert "not reloaded: crews" in await daemon.hang_up()
        found = (await daemon.get(f"/crews/one/status/{waiting}", token)).json()
        assert found["state"] == "PENDING"


async def test_a_slip_in_the_name_of_a_new_crew_refuses_nothing(daemon: Daemon) -> None:
    daemon.write(crew("one"))
    async with running(daemon):
        daemon.write(crew("one"), crew("Two"), crew("three"))
        said = await daemon.hang_up()
        assert "a crew cannot run: crews[1].name: " in said
        assert "is reloaded: crews" in said


async def test_a_new_crew_that_is_broken_is_told_and_the_rest_is_taken(daemon: Daemon) -> None:
    daemon.write()
    async with running(daemon):
        daemon.write(crew("one", command=["/nowhere/at-all"]), crew("two"))
        said = await daemon.hang_up()
        assert "a crew cannot run: " in said
        assert "is reloaded: crews" in said
        token, kickoff_id = await daemon.kickoff("two")
        assert (await daemon.end_of("two", token, kickoff_id))["result"] == "done"


async def test_a_crews_own_address_is_named_for_as_long_as_it_is_another_one(
    daemon: Daemon,
) -> None:
    ports = []
    with ExitStack() as held:
        for _ in range(3):
            free = held.enter_context(socket.create_server(("127.0.0.1", 0)))
            ports.append(free.getsockname()[1])
    here, there, taken = (f"127.0.0.1:{port}" for port in ports)
    with socket.create_server(("127.0.0.1", ports[2])):
        daemon.write(crew("one", bind=here), crew("two", bind=taken))
        async with running(daemon):

            async def named(**binds: str) -> list[str]:
                daemon.write(*(crew(name, bind=bind) for name, bind in binds.items()))
                said = await daemon.hang_up()
                return [name for name in ("one", "two", "new") if f"bind of crew {name}" in said]

            for _ in range(2):
                assert await named(one=there) == ["one"]
            assert await named(one=here) == []  # where it answers all the time
            for _ in range(2):
                assert await named() == ["one"]  # the address is open still
            assert await named(one=here) == []
            for _ in range(2):
                assert await named(one=here, new=there) == ["new"]
                assert await named(one=here, two=taken) == ["two"]  # it never got it


async def test_what_needs_a_restart_is_named_each_time(daemon: Daemon) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    daemon.write(crew("one"))
    async with running(daemon):
        moved = crew("one", bind=f"127.0.0.1:{port}")
        daemon.write(moved, cookie={"sync_key": "k" * 43}, logging={"level": "debug"})
        for _ in range(2):
            said = await daemon.hang_up()
            assert "need a restart: cookie.sync_key" in said
            assert "k" * 43 not in said
        assert logging.getLogger("daemon").level == logging.DEBUG


async def test_a_part_that_cannot_take_its_share_is_asked_again_when_it_said(
    autojump_clock: MockClock,
) -> None:
    asked: list[float] = []

    async def take() -> None:
        asked.append(trio.current_time())
        if len(asked) < 3:
            raise Unavailable("the disk is full", retry_after=30)

    await reloading._insist(take)
    assert [at - asked[0] for at in asked] == [0, 30, 60]


async def test_the_service_manager_is_told(daemon: Daemon) -> None:
    daemon.write()
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    place = str(daemon.folder / "notify")
    with manager:
        manager.bind(place)
        async with running(daemon, Given(notify_socket=place)):
            await daemon.hang_up()
            said: list[str] = []
            manager.settimeout(PATIENCE)
            while not any(each.startswith("RELOADING=1\nMONOTONIC_USEC=") for each in said):
                said.append(manager.recv(4096).decode())
            while said[-1] != "READY=1":
                said.append(manager.recv(4096).decode())
