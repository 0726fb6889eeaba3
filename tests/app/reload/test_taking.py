"""A changed configuration is taken up while the daemon serves."""

from __future__ import annotations

import logging
import os
import signal
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import trio

from smartlinkd.admin.control_socket import call
from smartlinkd.app import tree
from smartlinkd.auth.actor import Auth
from smartlinkd.config import loading
from smartlinkd.crews.catalog.catalog import Catalog
from smartlinkd.crews.catalog.checks import PROBE_TIMEOUT_S
from smartlinkd.crews.executor import Executor
from smartlinkd.errors import Unavailable
from smartlinkd.supervision.supervisor import Supervisor
from smartlinkd.systemd.environment import Descriptor, SystemdEnvironment
from tests.app.reload.played import DONE, HASH, OTHER_HASH, WAIT, Daemon, crew, running

LOOPBACK = ["127.0.0.0/8"]


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


async def test_a_limit_that_this_machine_never_lets_be_met_is_warned_of(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "memory_limit", lambda: 735 * 1024 * 1024)
    daemon.write()
    async with running(daemon):
        daemon.write(crew("new", memory=736 * 1024 * 1024))
        assert 'WARNING: crew "new": memory: is 736 MiB' in await daemon.hang_up()


@pytest.mark.parametrize("lent", [True, False])
async def test_an_address_that_the_service_manager_holds_wants_more_than_a_restart(
    daemon: Daemon, lent: bool
) -> None:
    daemon.write()
    with socket.create_server(("127.0.0.1", 0)) as theirs:
        descriptors = (Descriptor("http", os.dup(theirs.fileno())),) if lent else ()
        async with running(daemon, SystemdEnvironment(descriptors=descriptors)):
            daemon.write(server={"bind": "127.0.0.2:0"})
            said = await daemon.hang_up()
    assert "WARNING: these changes need a restart: server.bind" in said
    assert ("so no restart changes server.bind: `sudo ./run install` does" in said) is lent


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
        for grace, longer in ((11, 0.0), (40, 29.0)):  # 11 s is what a start that hangs takes
            daemon.write(crew("one", grace=2), crew("slow", grace=grace))
            await daemon.hang_up()
            assert [each.longest_end for each in made] == [longest + longer for longest in before]
        daemon.write(crew("one", grace=2))  # what still runs of the other was promised its grace
        await daemon.hang_up()
        assert made[0].longest_end == before[0] + 29.0


async def test_the_password_changes_with_its_file(daemon: Daemon) -> None:
    secret = daemon.folder / "hash"
    secret.write_text(HASH)
    secret.chmod(0o600)
    by_file: dict[str, object] = {"password_hash": "", "password_hash_file": str(secret)}
    daemon.write(auth=by_file)
    async with running(daemon):
        session = (await daemon.login()).json()["token"]
        daemon.write(crew("one"), auth=by_file)
        await daemon.hang_up()
        assert (await daemon.get("/api/status", session)).status_code == 200
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


async def test_nobody_is_let_in_to_a_crew_or_told_of_it_before_it_is_there(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    really, before = Executor.apply_catalog, []

    async def take(executor: Executor, catalog: Catalog) -> None:
        told = await call(daemon.folder / "state", "crew token", {"name": "new"})
        before.append((told["ok"], "is reloaded" in caplog.text))
        await really(executor, catalog)

    monkeypatch.setattr(Executor, "apply_catalog", take)
    daemon.write()
    async with running(daemon):
        daemon.write(crew("new"))
        await daemon.hang_up()
        assert await daemon.token("new")
        assert before == [(False, False)]


async def test_a_new_crew_that_is_broken_is_told_and_the_rest_is_taken(daemon: Daemon) -> None:
    daemon.write()
    async with running(daemon):
        daemon.write(crew("one", command=["/nowhere/at-all"]), crew("two"), crew("Three"))
        said = await daemon.hang_up()
        assert 'ERROR: a crew cannot run: crew "one": command: ' in said
        assert "ERROR: a crew cannot run: crews[2].name: " in said
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
        believing: dict[str, object] = {"trusted_proxies": ["0.0.0.0/0"]}
        changed: dict[str, object] = {"sync_key": "k" * 43}
        daemon.write(moved, server=believing, cookie=changed, logging={"level": "debug"})
        for _ in range(2):
            said = await daemon.hang_up()
            assert "WARNING: these changes need a restart: cookie.sync_key" in said
            assert "WARNING: server.trusted_proxies: believes the forwarding headers" in said
            assert "k" * 43 not in said
        assert "nothing else has changed in it" in said  # it was taken up the first time
        assert logging.getLogger("smartlinkd").level == logging.DEBUG


async def test_what_lets_nobody_in_waits_for_nothing(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk is full, and the new password cannot be saved as long as it is."""
    daemon.write(crew("stays", users=["ann", "bob"]), crew("goes"), cookie={"open_to": LOOPBACK})
    async with running(daemon):
        assert (await daemon.get("/api/sync-cookie")).status_code == 200
        ann, bob = [await daemon.token("stays", user) for user in ("ann", "bob")]
        goes = await daemon.token("goes")

        change_password, is_full = Auth.change_password, [True]

        async def change_if_there_is_room(*given: Any) -> None:
            if is_full:
                raise Unavailable("no room", retry_after=1)
            await change_password(*given)

        monkeypatch.setattr(Auth, "change_password", change_if_there_is_room)
        daemon.write(
            crew("stays", users=["ann"]),
            cookie={"open_to": []},
            auth={"password_hash": OTHER_HASH},
        )
        os.kill(os.getpid(), signal.SIGHUP)
        await daemon.hears("in force in part")
        assert (await daemon.get("/api/sync-cookie")).status_code == 403
        paths = {"/crews/stays/inputs": (ann, 200), "/crews/goes/inputs": (goes, 401)}
        paths["/crews/stays/executions"] = (bob, 401)
        for path, (token, status) in paths.items():
            assert (await daemon.get(path, token)).status_code == status, path

        is_full.clear()
        await daemon.hears("the configuration is reloaded: ")
        assert "auth.password_hash" in caplog.text.partition("is reloaded: ")[2]
        assert (await daemon.login("open barley")).status_code == 200


async def test_whoever_is_shut_out_waits_for_no_crew(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executor is busy, as with a disk that stalls."""
    daemon.write(crew("stays"), cookie={"open_to": LOOPBACK})
    async with running(daemon):
        assert (await daemon.get("/api/sync-cookie")).status_code == 200
        apply, asked, may_go_on = Executor.apply_catalog, trio.Event(), trio.Event()

        async def apply_late(*given: Any) -> None:
            asked.set()
            await may_go_on.wait()
            await apply(*given)

        monkeypatch.setattr(Executor, "apply_catalog", apply_late)
        daemon.write(crew("stays"), cookie={"open_to": []})
        os.kill(os.getpid(), signal.SIGHUP)
        await asked.wait()
        assert (await daemon.get("/api/sync-cookie")).status_code == 403
        may_go_on.set()
        await daemon.hears("the configuration is reloaded: ")


def is_written(path: Path) -> bool:
    return path.exists() and path.read_text().endswith("\n")


async def test_an_interpreter_that_hangs_does_not_hold_up_the_end(
    daemon: Daemon,
) -> None:
    begun, python = daemon.folder / "begun", daemon.folder / "python"
    python.write_text(f"#!/bin/sh\necho $$ >{begun}; exec sleep 1000\n")
    python.chmod(0o755)
    (daemon.folder / "project").mkdir()
    project = {"runner": "crewai", "python": str(python), "project": str(daemon.folder / "project")}
    daemon.write()
    with trio.fail_after(PROBE_TIMEOUT_S - 1):
        async with running(daemon):
            daemon.write({"name": "hangs", **project})
            os.kill(os.getpid(), signal.SIGHUP)
            # A program of another's makes no event of ours.
            while not is_written(begun):  # noqa: ASYNC110
                await trio.sleep(0.01)
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)
