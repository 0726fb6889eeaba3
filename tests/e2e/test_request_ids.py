"""One request's lines can be found by its id, whichever part wrote them and for whom else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio

from smartlinkd.sandbox.faults import FAULTS

if TYPE_CHECKING:
    from tests.e2e.conftest import Account, Daemon, Portal

pytestmark = pytest.mark.chromium

SPOILS_A_SUBMIT = next(fault.item or 0 for fault in FAULTS if fault.name == "submit_graphql_error")


def lines_of(daemon: Daemon, request_id: str) -> list[dict[str, Any]]:
    found = []
    for text in daemon.program.log.read_text().splitlines():
        line = json.loads(text)
        ids = line.get("request_id", [])
        if request_id in ([ids] if isinstance(ids, str) else ids):
            found.append(line)
    return found


async def convert(daemon: Daemon, link: str, account: Account, request_id: str) -> None:
    body = {"links": [link], "cookie": account.cookie}
    daemon.secrets |= account.secrets
    headers = {"X-Request-Id": request_id}
    answer = await daemon.ask("POST", "/api/convert", body, token=daemon.token, headers=headers)
    assert answer.headers["X-Request-Id"] == request_id


async def test_a_submit_that_fails_names_the_requests_that_it_was_made_for(
    linking: Daemon, portal: Portal, slow_submits: None
) -> None:
    account = portal.account()
    await linking.login()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(convert, linking, portal.link(portal.item()), account, "e2e-first")
        await portal.submitting(account)
        # These wait for that one, and are submitted together.
        for request_id, item in (("e2e-second", portal.item()), ("e2e-third", SPOILS_A_SUBMIT)):
            nursery.start_soon(convert, linking, portal.link(item), account, request_id)
    told = "the portal refused a submit of 2 links"
    (line,) = [one for one in lines_of(linking, "e2e-third") if one["message"].startswith(told)]
    assert sorted(line["request_id"]) == ["e2e-second", "e2e-third"]
    assert line["actor"] == "browser"
    assert line not in lines_of(linking, "e2e-first")
