"""systemd's side, with a stand-in for `systemctl` that writes down how it was called."""

from __future__ import annotations

import os
import socket
import urllib.request
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


def test_the_switch_is_one_link(paths: ServicePaths) -> None:
    one, two = (paths.versions / f"2026-01-0{day}.abcDEF" for day in (1, 2))
    one.mkdir()
    two.mkdir()
    assert service.current_version(paths) is None
    service.activate(paths, one)
    paths.current.with_name(".current.new").symlink_to("of one that was killed")
    service.activate(paths, two)
    assert service.current_version(paths) == two
    assert str(paths.current.readlink()) == two.name  # so it is good wherever it is looked at from


def test_only_what_installations_have_made_is_old(paths: ServicePaths) -> None:
    names = ("2026-01-01.abcDEF", "2026-01-02.abcDEF", "tmp.x1Y_z2")
    for name in (*names, "clone", ".git", "2026-01-01", "tmp"):
        (paths.versions / name).mkdir()
    service.activate(paths, paths.versions / names[0])
    assert {folder.name for folder in service.old_versions(paths)} == set(names[1:])


def test_the_version_in_use_is_never_old_wherever_its_disk_is(paths: ServicePaths) -> None:
    """As with an /opt that leads to a larger disk."""
    elsewhere = paths.root / "data"
    paths.versions.rename(elsewhere)
    paths.versions.symlink_to(elsewhere)
    for name in ("2026-01-01.abcDEF", "2026-01-02.abcDEF"):
        (paths.versions / name).mkdir()
    service.activate(paths, paths.versions / "2026-01-02.abcDEF")
    assert [folder.name for folder in service.old_versions(paths)] == ["2026-01-01.abcDEF"]


def test_a_version_that_is_gone_is_none(paths: ServicePaths) -> None:
    service.activate(paths, paths.versions / "2026-01-01.abcDEF")
    assert service.current_version(paths) is None


def test_a_start_that_fails_is_told_with_its_last_words(
    paths: ServicePaths, systemctl: Systemctl
) -> None:
    systemctl(
        'case "$0 $*" in *restart*) echo "Job failed" >&2; exit 1;; '
        '*journalctl*"-u smartlinkd.service") echo "no room";; esac'
    )
    with pytest.raises(InstallFailed, match=r"(?s)restart smartlinkd.service: Job failed\nno room"):
        service.start(paths)


def test_a_log_that_cannot_be_read_hides_no_fault(
    paths: ServicePaths, systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = systemctl('case "$*" in *restart*) echo "Job failed" >&2; exit 1;; esac')
    (calls.parent / "journalctl").unlink()
    monkeypatch.setenv("PATH", str(calls.parent))
    with pytest.raises(
        InstallFailed, match=r"(?s): Job failed\nits log cannot be read: .*journalc"
    ):
        service.start(paths)


def test_the_others_that_share_the_version_are_those_that_run(
    paths: ServicePaths, systemctl: Systemctl
) -> None:
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
def test_one_is_there_that_runs_or_will(
    paths: ServicePaths, systemctl: Systemctl, says_yes: str, there: bool
) -> None:
    systemctl(f'[ "$1" = {says_yes} ]')
    assert service.is_installed(paths) is there


def test_one_that_does_not_answer_is_not_proven(
    paths: ServicePaths, systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemctl('case "$0 $*" in *--quiet*) ;; *is-active*) echo active;; esac')
    monkeypatch.setattr(service, "ANSWERS_WITHIN", 0.1)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # and nobody listens there
        with pytest.raises(InstallFailed, match=r"is active and does not answer at 127\.0\.0\.1:"):
            service.wait_until_ready(
                paths, Bind("127.0.0.1", deaf.getsockname()[1]), with_browser=True
            )


def test_nor_is_one_that_is_not_active_whoever_answers_there(
    paths: ServicePaths, systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that was started by hand, for example."""
    systemctl('case "$0 $*" in *--quiet*) exit 3;; *is-active*) echo failed;; esac')
    monkeypatch.setattr(service, "ANSWERS_WITHIN", 0.1)
    with answering(HEALTHY) as bind, pytest.raises(InstallFailed, match="is failed and does not"):
        service.wait_until_ready(paths, bind, with_browser=True)


@contextmanager
def answering(answer: bytes) -> Iterator[Bind]:
    """Where everybody gets these bytes, and their end."""
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


def test_it_is_asked_directly_whatever_proxy_the_environment_names(
    paths: ServicePaths, systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    systemctl("")
    for name in [each for each in os.environ if each.lower() == "no_proxy"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setattr(urllib.request, "_opener", None)  # that of a program that has just begun
    monkeypatch.setattr(service, "ANSWERS_WITHIN", 5.0)
    with answering(HEALTHY) as bind:
        assert service.wait_until_ready(paths, bind, with_browser=True) is True


@pytest.mark.parametrize(("with_browser", "proven"), [(True, False), (False, True)])
def test_a_browser_is_waited_for_where_one_is_needed(
    paths: ServicePaths,
    systemctl: Systemctl,
    monkeypatch: pytest.MonkeyPatch,
    with_browser: bool,
    proven: bool,
) -> None:
    systemctl("")
    monkeypatch.setattr(service, "BROWSER_WITHIN", 0.1)
    with answering(HEALTHY.replace(b"true}", b"false}")) as bind:
        assert service.wait_until_ready(paths, bind, with_browser=with_browser) is proven


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + b'{"ok": true',
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 503 Busy\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\n\r\n\xff",
    ],
)
def test_one_that_breaks_off_or_says_something_else_has_not_answered(
    paths: ServicePaths, systemctl: Systemctl, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    systemctl('case "$0 $*" in *--quiet*) ;; *is-active*) echo active;; esac')
    monkeypatch.setattr(service, "ANSWERS_WITHIN", 0.1)
    with (
        answering(answer) as bind,
        pytest.raises(InstallFailed, match="is active and does not ans"),
    ):
        service.wait_until_ready(paths, bind, with_browser=True)


def test_a_socket_that_moves_is_closed_first(paths: ServicePaths, systemctl: Systemctl) -> None:
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
