"""`./run install` from the checkout: what is there afterwards, and that it works."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import httpx
import pytest

from smartlinkd.sandbox.products import PRODUCTS
from tests.systemd.machine import PORTAL, Service, namespace, run, status_of

pytestmark = [pytest.mark.order("first")]

ACTIVE_WITHIN = 20.0


def test_it_is_active_within_20_seconds(installed: Service) -> None:
    """From when its unit is told to start; the packages take what pip takes."""
    moments = [
        int(installed.show(f"{name}TimestampMonotonic")) for name in ("InactiveExit", "ActiveEnter")
    ]
    print(f"installed in {installed.seconds:.1f} s, of which its start took {moments}")
    assert (moments[1] - moments[0]) / 1e6 < ACTIVE_WITHIN
    assert installed.is_active()
    assert installed.health()["ok"] is True
    assert "is running at http://127.0.0.1:8787; Chromium runs, in its sandbox." in installed.said


def test_the_password_that_was_shown_logs_in(installed: Service) -> None:
    shown = re.search(r"shown this once: (\S+)", installed.said)
    assert shown
    answer = installed.ask("/api/auth/login", {"password": shown[1]})
    assert answer.json()["ok"] is True


def test_nobody_gets_at_the_cookie_without_a_token_or_the_key(installed: Service) -> None:
    assert installed.ask("/api/sync-cookie").status_code == 403
    assert installed.ask("/api/sync-cookie", token=installed.sync_key).status_code == 200


def test_all_of_it_is_roots_and_secrets_are_roots_alone(installed: Service) -> None:
    folder = installed.configuration.parent
    for path in [folder, *folder.rglob("*"), *Path("/opt/smartlinkd").rglob("*")]:
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


def test_nothing_of_the_clone_is_needed_or_was_written_to(installed: Service) -> None:
    """The clone is mounted read-only here, so an installation that writes there has failed."""
    python = "/opt/smartlinkd/current/bin/python"
    where = run(
        python, "-I", "-c", "import smartlinkd, sys; print(smartlinkd.__file__, sys.base_prefix)"
    )
    assert where.startswith("/opt/smartlinkd/")
    assert where.split()[1] == "/usr"


def test_a_conversion_in_a_chromium_with_its_sandbox(service: Service) -> None:
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
