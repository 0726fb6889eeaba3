"""systemd's side, with a stand-in for `systemctl` that writes down how it was called."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from smartlinkd.deploy import service
from smartlinkd.deploy.service import InstallFailed
from smartlinkd.deploy.units import ServicePaths
from smartlinkd.net.addresses import Bind

Systemctl = Callable[[str], Path]


@pytest.fixture
def systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Systemctl:
    """Put one there that does so; the file with its calls."""
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")

    def put(body: str) -> Path:
        calls = programs / "calls"
        for name in ("systemctl", "journalctl"):
            path = programs / name
            path.write_text(f'#!/bin/sh\necho "{name} $*" >>{calls}\n{body}\n')
            path.chmod(0o755)
        return calls

    return put


@pytest.fixture
def paths(tmp_path: Path) -> ServicePaths:
    (tmp_path / "opt/smartlinkd").mkdir(parents=True)
    return ServicePaths(root=tmp_path)


def test_activate_switches_one_relative_link(paths: ServicePaths) -> None:
    one, two = (paths.versions / f"2026-01-0{day}.abcDEF" for day in (1, 2))
    one.mkdir()
    two.mkdir()
    assert service.current_version(paths) is None
    service.activate(paths, one)
    paths.current.with_name(".current.new").symlink_to("of one that was killed")
    service.activate(paths, two)
    assert service.current_version(paths) == two
    assert str(paths.current.readlink()) == two.name  # so it is good wherever it is looked at from


def test_old_versions_are_folders_of_installations_only(paths: ServicePaths) -> None:
    names = ("2026-01-01.abcDEF", "2026-01-02.abcDEF", "tmp.x1Y_z2")
    for name in (*names, "clone", ".git", "2026-01-01", "tmp"):
        (paths.versions / name).mkdir()
    service.activate(paths, paths.versions / names[0])
    assert {folder.name for folder in service.old_versions(paths)} == set(names[1:])
    elsewhere = paths.root / "data"  # they may be on another disk
    paths.versions.rename(elsewhere)
    paths.versions.symlink_to(elsewhere)
    assert {folder.name for folder in service.old_versions(paths)} == set(names[1:])


def test_failed_start_raises_with_the_end_of_the_log(
    paths: ServicePaths, systemctl: Systemctl
) -> None:
    systemctl(
        'case "$0 $*" in *restart*) echo "Job failed" >&2; exit 1;; '
        '*journalctl*"-u smartlinkd.service") echo "no room";; esac'
    )
    with pytest.raises(InstallFailed, match=r"(?s)restart smartlinkd.service: Job failed\nno room"):
        service.start(paths)


def test_other_services_are_those_that_run(paths: ServicePaths, systemctl: Systemctl) -> None:
    systemctl(
        'case "$*" in *list-units*--state=active*smartlinkd.service*"smartlinkd@*.service"*) '
        'echo "smartlinkd.service loaded active running X"; '
        'echo "smartlinkd@a.service loaded active running Y";; esac'
    )
    assert service.other_services(paths) == ["smartlinkd@a.service"]
    others = service.other_services(ServicePaths("smartlinkd@b", paths.root))
    assert others == ["smartlinkd.service", "smartlinkd@a.service"]


@pytest.mark.parametrize(
    ("says_yes", "there"), [("is-active", True), ("is-enabled", True), ("none", False)]
)
def test_service_that_is_active_or_enabled_is_installed(
    paths: ServicePaths, systemctl: Systemctl, says_yes: str, there: bool
) -> None:
    systemctl(f'[ "$1" = {says_yes} ]')
    assert service.is_installed(paths) is there


@contextmanager
def answering(answer: bytes | None) -> Iterator[Bind]:
    """A port where everybody gets these bytes and their end; with None nobody listens there."""
    if answer is None:
        with socket.socket() as deaf:
            deaf.bind(("127.0.0.1", 0))
            yield Bind("127.0.0.1", deaf.getsockname()[1])
        return
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    caller, _ = listener.accept()
                except OSError:
                    return
                with caller:
                    caller.recv(4096)
                    caller.sendall(answer)

        server = Thread(target=serve)
        server.start()
        try:
            yield Bind("127.0.0.1", listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            server.join()


HEALTHY = b'HTTP/1.1 200 OK\r\n\r\n{"ok": true, "browserReady": true}'


def test_health_is_asked_past_the_environments_proxy(
    paths: ServicePaths, systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemctl("")
    for name in [each for each in os.environ if each.lower() == "no_proxy"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with answering(HEALTHY) as bind:
        assert service.wait_until_ready(paths, bind, with_browser=True) is True


@pytest.mark.parametrize(("with_browser", "ready"), [(True, False), (False, True)])
def test_wait_for_a_browser_that_is_not_ready_ends_where_one_is_needed(
    paths: ServicePaths, systemctl: Systemctl, with_browser: bool, ready: bool
) -> None:
    systemctl("")
    with answering(HEALTHY.replace(b"true}", b"false}")) as bind:
        found = service.wait_until_ready(
            paths, bind, with_browser=with_browser, browser_within_s=0.1
        )
    assert found is ready


ACTIVE = 'case "$0 $*" in *--quiet*) ;; *is-active*) echo active;; esac'
FAILED = 'case "$0 $*" in *--quiet*) exit 3;; *is-active*) echo failed;; esac'


@pytest.mark.parametrize(
    ("state", "answer"),
    [
        (FAILED, HEALTHY),  # a daemon that was started by hand, for example
        (ACTIVE, b""),
        (ACTIVE, b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + b'{"ok": true'),
        (ACTIVE, b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"),
        (ACTIVE, b"SSH-2.0-OpenSSH_9.2\r\n"),
        (ACTIVE, b"HTTP/1.1 503 Busy\r\n\r\n{}"),
        (ACTIVE, b"HTTP/1.1 200 OK\r\n\r\n[]"),
        (ACTIVE, b"HTTP/1.1 200 OK\r\n\r\n\xff"),
        (ACTIVE, None),
    ],
)
def test_service_without_a_healthy_answer_of_its_own_is_not_installed(
    paths: ServicePaths, systemctl: Systemctl, state: str, answer: bytes | None
) -> None:
    systemctl(state)
    with answering(answer) as bind:
        told = f"is {'failed' if state == FAILED else 'active'} and does not answer at {bind}"
        with pytest.raises(InstallFailed, match=told):
            service.wait_until_ready(paths, bind, with_browser=True, answers_within_s=0.1)


def test_socket_that_moves_is_stopped_first(paths: ServicePaths, systemctl: Systemctl) -> None:
    calls = systemctl("")
    service.start(paths)
    assert "stop" not in calls.read_text()
    calls.unlink()
    service.start(paths, is_moved=True)
    asked = [line.partition("--no-ask-password ")[2] for line in calls.read_text().splitlines()]
    assert asked == [
        "daemon-reload",
        "enable --quiet smartlinkd.socket smartlinkd.service",
        "stop smartlinkd.socket smartlinkd.service",
        "start smartlinkd.socket",
        "restart smartlinkd.service",
    ]
