"""The account's state: `/api/account`, its pause, and `/readyz?account=1`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.contract.conftest import Daemon, Portal
    from tests.e2e.conftest import Running

pytestmark = pytest.mark.chromium


async def account_of(daemon: Daemon) -> Any:
    answer = await daemon.ask("GET", "/api/account", token=await daemon.login())
    assert answer.status_code == 200, answer.text
    return answer.json()


async def readiness_of(daemon: Daemon) -> tuple[int, str | None]:
    answer = await daemon.ask("GET", "/readyz?account=1")
    return answer.status_code, answer.json().get("error")


async def test_account_is_shown_from_no_cookie_to_a_pause_and_its_end(
    running: Running, portal: Portal
) -> None:
    account, links = portal.account(), [portal.link(portal.item()) for _ in range(3)]
    with running(products={"source": "none"}) as daemon:
        await daemon.until_ready()
        shown = await account_of(daemon)
        assert shown["cookie"] == {
            "stored": False,
            "accountName": None,
            "syncedAt": None,
            "missing": [],
        }
        assert (shown["accounts"], await readiness_of(daemon)) == ([], (503, "no_cookie"))

        await daemon.sync(account)
        assert (await account_of(daemon))["cookie"]["stored"] is True
        assert (await daemon.convert(links[0], account=None)).status_code == 200
        (entry,) = (await account_of(daemon))["accounts"]
        assert (entry["name"], entry["state"], entry["remedy"]) == (account.number, "active", None)
        assert await readiness_of(daemon) == (200, None)

        await portal.arm("human_check", account)
        assert (await daemon.convert(links[1], account=None)).status_code == 502
        (entry,) = (await account_of(daemon))["accounts"]
        assert (entry["state"], "clear the pause" in entry["remedy"]) == ("paused", True)
        assert await readiness_of(daemon) == (503, "paused")
        metrics = await daemon.metrics()
        assert metrics['smartlinkd_account_state{state="paused"}'] == 1
        assert metrics['smartlinkd_account_state{state="active"}'] == 0
        assert 0 < metrics["smartlinkd_cookie_age_seconds"] < 60
        assert metrics["process_resident_memory_bytes"] > 2**20
        assert metrics["process_open_fds"] > 5
        assert [name for name in metrics if name.startswith("smartlinkd_build_info{version=")]

        token = await daemon.login()
        cleared = await daemon.ask("POST", "/api/account/clear", token=token)
        assert cleared.json() == {"ok": True, "cleared": 1}
        assert await readiness_of(daemon) == (200, None)
        assert (await daemon.convert(links[1], account=None)).status_code == 200

        await portal.arm("session_lost", account)
        assert (await daemon.convert(links[2], account=None)).status_code == 502
        assert await readiness_of(daemon) == (503, "session_lost")


async def test_account_names_cookies_that_the_stored_one_lacks(
    linking: Daemon, portal: Portal
) -> None:
    account = portal.account()
    await linking.sync(account)
    assert (await account_of(linking))["cookie"]["missing"] == []
    body = {"cookie": f"SPC_U={account.number}; SPC_EC=.some-session", "accountName": "mine"}
    linking.secrets.add(".some-session")
    answer = await linking.ask("POST", "/api/sync-cookie", body)
    shown = (await account_of(linking))["cookie"]
    assert (shown["stored"], shown["accountName"]) == (True, "mine")
    assert shown["syncedAt"] == answer.json()["syncedAt"]
    assert {"SPC_ST", "csrftoken"} <= set(shown["missing"])
    assert not {"SPC_U", "SPC_EC"} & set(shown["missing"])


async def test_readiness_of_account_is_not_for_strangers(running: Running) -> None:
    with running(products={"source": "none"}, cookie={"open_to": []}) as daemon:
        await daemon.until_ready()
        assert (await daemon.ask("GET", "/readyz")).status_code == 200
        assert (await daemon.ask("GET", "/readyz?account=1")).status_code == 403
        token = await daemon.login()
        answer = await daemon.ask("GET", "/readyz?account=1", token=token)
        assert (answer.status_code, answer.json()["error"]) == (503, "no_cookie")
