"""`./run install` over an installation: a second instance, good and broken versions."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.systemd.machine import ROOT, VERSIONS, Service, run, until

NOT_OF_A_CLONE = shutil.ignore_patterns(".*", "__pycache__", "mutants", "build", "*.egg-info")


def owned(service: Service) -> dict[str, bytes]:
    """Return the contents of the configuration files by path."""
    folder = service.configuration.parent
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def version() -> str:
    return str((VERSIONS / "current").readlink())


def program(service: Service) -> str:
    """Return the path of the Python that runs the service."""
    return next(iter(Path(f"/proc/{service.pid}/cmdline").read_text().split("\0")))


@pytest.fixture(scope="module")
def shop2(prepared: Service) -> Iterator[Service]:
    """Install a second instance, which also upgrades the first one."""
    if prepared.stored_cookie() is None:
        prepared.store_cookie()
    kept, before = owned(prepared), version()
    output = run("./run", "install", "--instance", "shop2", "--bind", "127.0.0.1:8789")
    other = Service("smartlinkd@shop2", "http://127.0.0.1:8789", output)
    assert owned(prepared) == kept
    assert version() != before
    yield other
    run("systemctl", "disable", "--now", f"{other.name}.socket", f"{other.name}.service")


def test_upgrade_keeps_cookie_and_password(service: Service, shop2: Service) -> None:
    assert [p.name for p in VERSIONS.iterdir() if not p.is_symlink()] == [version()]
    for each in (service, shop2):
        assert program(each).startswith(str(VERSIONS / version()))
    assert service.stored_cookie() is not None
    assert service.login()


def test_instances_are_isolated(service: Service, shop2: Service) -> None:
    assert shop2.health()["ok"] is True
    assert shop2.show("UID") != service.show("UID")
    assert shop2.stored_cookie() is None
    assert service.ask("/api/sync-cookie", token=shop2.sync_key).status_code == 403
    assert shop2.state.joinpath("journal.sqlite3").exists()
    config = str(shop2.configuration)
    assert "no cookie" in shop2.show("StatusText")
    assert "browser" in run("smartlinkd", "status", "--config", config)


def test_install_repairs_an_environment_of_another_python(service: Service) -> None:
    """The Python of another Debian release looks for packages in another folder."""
    before = version()
    (packages,) = (VERSIONS / before).glob("lib/python3.*")
    packages.rename(packages.with_name("python3.0"))
    run("systemctl", "restart", "--no-block", service.name)
    log = ("journalctl", "-u", service.name, "-o", "cat", "-n", "50")
    until("the service cannot start", lambda: "No module named 'smartlinkd'" in run(*log))
    run("./run", "install")
    assert [p.name for p in VERSIONS.iterdir() if not p.is_symlink()] == [version()]
    assert version() != before
    service.wait_until_ready()
    assert service.login()


@pytest.fixture
def broken(service: Service, tmp_path: Path) -> Path:
    """Return a clone with a version that crashes at its start."""
    clone = tmp_path / "clone"
    shutil.copytree(ROOT, clone, ignore=NOT_OF_A_CLONE)
    with (clone / "daemon/smartlinkd/app/listeners.py").open("a") as file:
        file.write("\nraise RuntimeError('this version is broken')\n")
    return clone


def test_version_that_cannot_start_leaves_the_previous_one(service: Service, broken: Path) -> None:
    cookie, before = service.stored_cookie(), version()
    output = run("./run", "install", cwd=broken, check=False)
    assert "this version is broken" in output
    assert f"The version before ({VERSIONS / before}) is running again." in output
    assert [p.name for p in VERSIONS.iterdir() if not p.is_symlink()] == [before]
    assert version() == before
    assert service.health()["ok"] is True
    assert service.stored_cookie() == cookie


def test_new_instance_that_cannot_start_is_disabled(service: Service) -> None:
    before, pid, cookie = version(), service.pid, service.stored_cookie()
    taken = service.url.removeprefix("http://")
    output = run("./run", "install", "--instance", "shop3", "--bind", taken, check=False)
    assert "It was stopped again." in output
    assert [p.name for p in VERSIONS.iterdir() if not p.is_symlink()] == [before]
    assert (service.pid, service.stored_cookie()) == (pid, cookie)
    for kind in ("socket", "service"):
        state = run("systemctl", "is-enabled", f"smartlinkd@shop3.{kind}", check=False)
        assert state.strip() == "disabled"
    run("rm", "-r", "/etc/smartlinkd@shop3")


def test_interrupted_upgrade_changes_nothing(service: Service) -> None:
    before, pid = version(), service.pid
    installing = subprocess.Popen(
        ["./run", "install"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def has_begun() -> bool:
        return any((p / "bin/pip").exists() for p in VERSIONS.iterdir() if p.name != before)

    until("the installation has begun", has_begun)
    time.sleep(1)
    subprocess.run(["kill", "-s", "INT", "--", f"-{installing.pid}"], check=True)
    assert installing.wait(20) == 128 + signal.SIGINT
    assert {p.name for p in VERSIONS.iterdir()} == {before, "current"}
    assert service.pid == pid
