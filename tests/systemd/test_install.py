"""The service after `./run install` from a clone."""

from __future__ import annotations

import re
import stat

import httpx
import pytest

from smartlinkd.sandbox.products import PRODUCTS
from tests.systemd.machine import PORTAL, VERSIONS, Service, namespace, run, status_of

pytestmark = [pytest.mark.order("first")]

ACTIVE_WITHIN = 20.0


def test_service_is_active_within_20_seconds(installed: Service) -> None:
    """The time is measured from the start of the unit, without the installation of packages."""
    moments = [
        int(installed.show(f"{name}TimestampMonotonic")) for name in ("InactiveExit", "ActiveEnter")
    ]
    assert (moments[1] - moments[0]) / 1e6 < ACTIVE_WITHIN
    assert installed.is_active()
    assert installed.health()["ok"] is True
    assert (
        "is running at http://127.0.0.1:8787; Chromium runs, in its sandbox."
        in installed.install_output
    )


def test_printed_password_logs_in(installed: Service) -> None:
    shown = re.search(r"shown this once: (\S+)", installed.install_output)
    assert shown
    answer = installed.ask("/api/auth/login", {"password": shown[1]})
    assert answer.json()["ok"] is True


def test_cookie_needs_a_token_or_the_key(installed: Service) -> None:
    assert installed.ask("/api/sync-cookie").status_code == 403
    assert installed.ask("/api/sync-cookie", token=installed.sync_key).status_code == 200


def test_files_belong_to_root_and_only_root_reads_secrets(installed: Service) -> None:
    folder = installed.configuration.parent
    for path in [folder, *folder.rglob("*"), *VERSIONS.rglob("*")]:
        status = path.lstat()
        assert (status.st_uid, status.st_gid) == (0, 0), path
        if not path.is_symlink():
            assert not status.st_mode & 0o022, path
    assert {p.name for p in (folder / "credentials").iterdir()} == {
        "auth.password_hash",
        "cookie.sync_key",
    }
    assert stat.S_IMODE((folder / "credentials").stat().st_mode) == 0o700
    assert {stat.S_IMODE(p.stat().st_mode) for p in (folder / "credentials").iterdir()} == {0o600}


def test_installation_does_not_depend_on_the_clone(installed: Service) -> None:
    """The clone is mounted read-only here, so an installation that writes there has failed."""
    python = "/opt/smartlinkd/current/bin/python"
    where = run(
        python, "-I", "-c", "import smartlinkd, sys; print(smartlinkd.__file__, sys.base_prefix)"
    )
    assert where.startswith("/opt/smartlinkd/")
    assert where.split()[1] == "/usr"


def test_conversion_runs_in_a_sandboxed_chromium(service: Service) -> None:
    shop = f"http://127.0.0.1:{PORTAL + 1}"
    links = [f"{shop}/product/{each.shop_id}/{each.item_id}" for each in PRODUCTS[:3]]
    answer = service.answer("/api/convert", {"links": links}, token=service.login())
    assert [answer["mapping"][link]["failCode"] for link in links] == [0, 0, 0]
    for link in links:
        short = answer["mapping"][link]["shortLink"]
        assert httpx.get(short, trust_env=False).status_code in (200, 302), short
    processes = service.processes()
    (browser,) = [
        pid
        for pid, line in processes.items()
        if "--remote-debugging" in line and "--type" not in line
    ]
    renderers = [pid for pid, line in processes.items() if "--type=renderer" in line]
    assert renderers
    for renderer in renderers:
        filters = [int(status_of(pid)["Seccomp_filters"]) for pid in (browser, renderer)]
        assert filters[1] > filters[0] > 0
        for kind in ("user", "pid", "net"):
            assert namespace(renderer, kind) != namespace(browser, kind)
        assert status_of(renderer)["NoNewPrivs"] == "1"
    assert not any("--no-sandbox" in line for line in processes.values())
