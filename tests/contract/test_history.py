"""The history over HTTP: entries of each way to convert, search, CSV and deletion."""

from __future__ import annotations

import csv
import io
import re
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trio

from tests.config_file import WITHOUT_BROWSER
from tests.contract.keys import key_for, make_key
from tests.e2e.conftest import until
from tests.e2e.crews.conftest import client_of
from tests.fakes.small_disk import fill, small_disk

if TYPE_CHECKING:
    from tests.contract.conftest import Daemon, Portal
    from tests.e2e.conftest import Account, Running

pytestmark = pytest.mark.chromium

Json = dict[str, Any]

CREW = r"""
import json, socket, sys
line = socket.socket(fileno=3).makefile("rw", encoding="utf-8")
given = json.loads(line.readline())
def say(type, **fields):
    print(json.dumps({"type": type, **fields}), file=line, flush=True)
say("started")
arguments = {"links": [given["inputs"]["link"]]}
say("tool_call", call_id="1", tool="convert_links", arguments=arguments)
say("result", output=line.readline())
"""


@pytest.fixture(scope="module")
def keeping(running: Running) -> Iterator[Daemon]:
    """The module's own daemon."""
    command = [sys.executable, "-c", CREW]
    crew = {"name": "linker", "runner": "command", "command": command, "tools": ["convert_links"]}
    with running(crews=[crew]) as daemon:
        daemon.wait_for_browser()
        yield daemon


@pytest.fixture
def account(portal: Portal) -> Account:
    return portal.account()


async def get(daemon: Daemon, path: str, token: str = "") -> httpx.Response:
    answer = await daemon.ask("GET", path, token=token or await daemon.login())
    assert answer.status_code == 200, answer.text
    return answer


async def entries(daemon: Daemon, **filters: object) -> list[Json]:
    query = str(httpx.QueryParams({name: str(value) for name, value in filters.items()}))
    body = (await get(daemon, f"/api/history?{query}")).json()
    assert body.keys() == {"ok", "entries", "nextCursor"}
    found: list[Json] = body["entries"]
    return found


async def links(daemon: Daemon, **filters: object) -> list[str]:
    return [entry["link"] for entry in await entries(daemon, **filters)]


async def convert(
    daemon: Daemon, account: Account, *links: str, sub_ids: list[str] | None = None
) -> dict[str, Json]:
    answer = await daemon.convert(*links, account=account, sub_ids=sub_ids)
    assert answer.status_code == 200, answer.text
    mapping: dict[str, Json] = answer.json()["mapping"]
    return mapping


async def clear(daemon: Daemon) -> None:
    answer = await daemon.ask("DELETE", "/api/history", token=await daemon.login())
    assert (answer.status_code, answer.json()["ok"]) == (200, True)


# The entries


async def test_converted_link_is_first_entry_with_all_that_was_answered(
    keeping: Daemon, portal: Portal, account: Account
) -> None:
    item = portal.item()
    link = f"  {portal.link(item)}?from=a-friend "
    made = await convert(keeping, account, link, "no link", sub_ids=["fb", "", "x1", ""])
    (entry, *_) = await entries(keeping)
    assert entry.keys() == {
        *("id", "at", "link", "shortLink", "longLink", "subIds", "product", "client")
    }
    assert entry["link"] == link
    assert entry["shortLink"] == made[link]["shortLink"]
    assert entry["longLink"] == made[link]["longLink"]
    assert entry["product"] == made[link]["product"] is not None
    assert entry["subIds"] == ["fb", "", "x1"]
    assert entry["client"] == "owner"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}Z", entry["at"])
    assert "no link" not in await links(keeping)


async def test_client_of_each_way_to_convert_is_named(
    keeping: Daemon, portal: Portal, account: Account
) -> None:
    session = await keeping.login()
    key = (await make_key(keeping, "convert", name="a bot"))["key"]
    keeping.secrets |= account.secrets
    by = {name: portal.link(portal.item()) for name in ("owner", "a bot", "text", "crew:linker")}
    body = {"cookie": account.cookie}
    for name, token in (("owner", session), ("a bot", key)):
        answer = await keeping.ask(
            "POST", "/api/convert", {**body, "links": [by[name]]}, token=token
        )
        assert answer.status_code == 200, answer.text
    text = {**body, "text": f"buy {by['text']} now"}
    answer = await keeping.ask("POST", "/api/convert-text", text, token=key)
    assert answer.status_code == 200, answer.text
    await keeping.sync(account)
    crew = "/crews/linker"
    asked = {"inputs": {"link": by["crew:linker"]}}
    kickoff = await keeping.ask("POST", f"{crew}/kickoff", asked, token=await crews_key(keeping))
    assert kickoff.status_code == 200, kickoff.text
    status = f"{crew}/status/{kickoff.json()['kickoff_id']}?wait=30"
    ended = await keeping.ask("GET", status, token=await crews_key(keeping))
    assert ended.json()["state"] == "SUCCESS", ended.text
    clients = {entry["link"]: entry["client"] for entry in await entries(keeping, limit=10)}
    assert {name: clients.get(link) for name, link in by.items()} == {
        "owner": "owner",
        "a bot": "a bot",
        "text": "a bot",
        "crew:linker": "crew:linker",
    }


async def crews_key(daemon: Daemon) -> str:
    return (await client_of(daemon, "linker")).token


async def test_conversion_without_a_credential_is_refused_and_not_kept(
    keeping: Daemon, portal: Portal
) -> None:
    link = portal.link(portal.item())
    assert (await keeping.ask("GET", "/metrics")).status_code == 200  # the client counts as local
    assert (await keeping.ask("POST", "/api/convert", {"links": [link]})).status_code == 403
    assert await links(keeping, q=link) == []


async def test_key_needs_the_scope_to_read_and_none_deletes(keeping: Daemon) -> None:
    reader = await key_for(keeping, "history")
    other = await key_for(keeping, "convert")
    for path in ("/api/history", "/api/history.csv", "/api/history-days"):
        assert (await keeping.ask("GET", path, token=reader)).status_code == 200
        assert (await keeping.ask("GET", path, token=other)).status_code == 403
        assert (await keeping.ask("GET", path)).status_code == 403
    for path in ("/api/history", "/api/history/1"):
        assert (await keeping.ask("DELETE", path, token=reader)).status_code == 403


# Search


async def test_cursor_is_stable_while_new_entries_come(
    keeping: Daemon, portal: Portal, account: Account
) -> None:
    old = [portal.link(portal.item()) for _ in range(5)]
    for link in old:
        await convert(keeping, account, link)
    seen: list[str] = []
    cursor = ""
    while len(seen) < len(old):
        path = f"/api/history?limit=2&cursor={cursor}" if cursor else "/api/history?limit=2"
        page = (await get(keeping, path)).json()
        seen += [entry["link"] for entry in page["entries"]]
        cursor = page["nextCursor"]
        await convert(keeping, account, portal.link(portal.item()))
    assert seen[:5] == old[::-1]


async def test_last_page_has_no_cursor(keeping: Daemon, portal: Portal, account: Account) -> None:
    await clear(keeping)
    await convert(keeping, account, portal.link(portal.item()), portal.link(portal.item()))
    pages = [(await get(keeping, f"/api/history?limit={limit}")).json() for limit in (1, 2, 200)]
    assert [page["nextCursor"] is None for page in pages] == [False, True, True]


async def test_filters_find_by_name_link_sub_id_and_time(
    keeping: Daemon, portal: Portal, account: Account
) -> None:
    one, other = portal.link(portal.item()), portal.link(portal.item())
    made = await convert(keeping, account, one, sub_ids=["Group9"])
    await convert(keeping, account, other, sub_ids=["group99"])
    name = made[one]["product"]["name"]
    assert one in await links(keeping, q=name.upper())
    assert await links(keeping, q=one) == [one]
    assert await links(keeping, q=made[one]["shortLink"]) == [one]
    assert await links(keeping, subId="group9") == [one]
    assert await links(keeping, q="group9", limit=2) == [other, one]
    assert await links(keeping, q=one, subId="group99") == []
    at = (await entries(keeping, q=one))[0]["at"]
    day, ends = at[:10], at.replace("Z", "+00:00")
    assert await links(keeping, q=one, **{"from": at}) == [one]
    assert await links(keeping, q=one, **{"from": day, "to": day}) == [one]
    assert await links(keeping, q=one, to=ends) == []
    assert await links(keeping, q=one, to="2020-01-01") == []
    assert await links(keeping, q=one, **{"from": "2999-12-31"}) == []


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        ("limit=0", "limit: must be 1 or more"),
        ("limit=201", "limit: must be 200 or less"),
        ("limit=x", "limit: must be a whole number"),
        ("cursor=zzz", "cursor: was not given out here"),
        ("cursor=99999999999999999999", "cursor: was not given out here"),
        ("from=yesterday", "from: must be a date (2026-05-04) or a time (2026-05-04T03:02:01Z)"),
        ("to=2026-02-30", "to: must be a date (2026-05-04) or a time"),
        ("from=2026-05-04T00:00:00+07:00", "a + in an address is written %2B"),
        (f"q={'x' * 201}", "q: is too long (at most 200 characters)"),
    ],
)
async def test_wrong_parameter_is_400_that_names_it(
    keeping: Daemon, query: str, fault: str
) -> None:
    answer = await keeping.ask("GET", f"/api/history?{query}", token=await keeping.login())
    assert (answer.status_code, answer.json()["ok"]) == (400, False)
    assert fault in answer.json()["error"]


async def test_days_sum_links_and_commission(
    keeping: Daemon, portal: Portal, account: Account
) -> None:
    pair = [portal.link(portal.item()), portal.link(portal.item())]
    made = await convert(keeping, account, *pair, sub_ids=["summed"])
    (entry, _) = await entries(keeping, subId="summed")
    answer = (await get(keeping, "/api/history-days?subId=summed")).json()
    commission = sum(each["product"]["commission"] for each in made.values())
    day = {"day": entry["at"][:10], "links": 2, "commission": commission}
    assert answer == {"ok": True, "days": [day]}
    far = (await get(keeping, "/api/history-days?subId=summed&utcOffset=840")).json()["days"]
    assert [each["links"] for each in far] == [2]
    wrong = await keeping.ask("GET", "/api/history-days?utcOffset=841", token=await keeping.login())
    assert wrong.status_code == 400


# CSV


async def test_csv_has_a_line_for_each_entry_that_fits(
    keeping: Daemon, portal: Portal, account: Account
) -> None:
    one, other = portal.link(portal.item()), portal.link(portal.item())
    formula = f"=HYPERLINK(1) {other}"
    made = await convert(keeping, account, one, formula, sub_ids=["csv", "", "2"])
    answer = await get(keeping, "/api/history.csv?subId=csv")
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="history.csv"'
    text = answer.content.decode()
    assert text.startswith("\ufeff")
    assert text.endswith("\r\n")
    rows = list(csv.DictReader(io.StringIO(text[1:], newline=""), strict=True))
    by_link = {row["link"]: row for row in rows}
    assert by_link.keys() == {one, f"'{formula}"}
    row, entry = by_link[one], made[one]
    assert (row["shortLink"], row["longLink"]) == (entry["shortLink"], entry["longLink"])
    assert [row["subId1"], row["subId2"], row["subId3"], row["subId4"]] == ["csv", "", "2", ""]
    assert row["client"] == "owner"
    product = entry["product"]
    assert row["name"].lstrip("'") == product["name"]
    assert (row["price"], row["commission"]) == (str(product["price"]), str(product["commission"]))
    assert (row["isXtra"], row["rating"]) == (
        str(product["isXtra"]).lower(),
        product["rating"] or "",
    )


async def test_csv_of_nothing_is_its_head(keeping: Daemon) -> None:
    answer = await get(keeping, "/api/history.csv?subId=nobody")
    assert answer.content.decode().startswith("\ufeffat,link,shortLink,longLink,subId1")
    assert answer.content.count(b"\r\n") == 1
    head = await keeping.ask("HEAD", "/api/history.csv", token=await keeping.login())
    assert (head.status_code, head.content) == (200, b"")


# Deleting


async def test_entry_is_deleted_once(keeping: Daemon, portal: Portal, account: Account) -> None:
    link, token = portal.link(portal.item()), await keeping.login()
    await convert(keeping, account, link)
    (entry,) = await entries(keeping, q=link)
    path = f"/api/history/{entry['id']}"
    answer = await keeping.ask("DELETE", path, token=token)
    assert (answer.status_code, answer.json()) == (200, {"ok": True})
    assert await links(keeping, q=link) == []
    for gone in (path, "/api/history/none", f"/api/history/{10**30}"):
        answer = await keeping.ask("DELETE", gone, token=token)
        assert (answer.status_code, answer.json()["ok"]) == (404, False)


async def test_what_fits_is_deleted_and_without_filters_all(
    keeping: Daemon, portal: Portal, account: Account
) -> None:
    one, other = portal.link(portal.item()), portal.link(portal.item())
    await convert(keeping, account, one, sub_ids=["gone"])
    await convert(keeping, account, other)
    token = await keeping.login()
    answer = await keeping.ask("DELETE", "/api/history?subId=gone", token=token)
    assert (answer.status_code, answer.json()) == (200, {"ok": True, "deleted": 1})
    assert (await links(keeping))[0] == other
    for wrong, named in (("from=never", "from"), ("subid=gone", "subid"), ("limit=1", "limit")):
        refused = await keeping.ask("DELETE", f"/api/history?{wrong}", token=token)
        assert refused.status_code == 400
        assert refused.json()["error"].startswith(f"{named}: ")
    assert await links(keeping) != []
    await clear(keeping)
    assert await links(keeping) == []


# Restarts, disks and settings


async def test_history_survives_stop_and_kill(
    running: Running, portal: Portal, account: Account
) -> None:
    pair = [portal.link(portal.item()), portal.link(portal.item())]
    with running(products={"source": "none"}) as daemon:
        daemon.wait_for_browser()
        await convert(daemon, account, pair[0])
        assert daemon.program.stop() == 0
        daemon.start()
        await daemon.until_ready()
        assert await links(daemon) == [pair[0]]
        await convert(daemon, account, pair[1])
        assert await links(daemon) == pair[::-1]
        await daemon.kill()
        daemon.start()
        assert await links(daemon) == pair[::-1]


async def test_full_disk_costs_no_conversion(
    running: Running, portal: Portal, account: Account, tmp_path: Path
) -> None:
    with (
        small_disk(tmp_path / "state", "32M") as state,
        running(state={"directory": str(state)}, products={"source": "none"}) as daemon,
    ):
        daemon.wait_for_browser()
        before, during, after = (portal.link(portal.item()) for _ in range(3))
        await convert(daemon, account, before)
        assert await links(daemon) == [before]
        fill(state / "filler")
        assert (await convert(daemon, account, during))[during]["failCode"] == 0
        daemon.program.wait_for("the history cannot be used: its disk is full", daemon.program.log)
        assert (await convert(daemon, account, before))[before]["failCode"] == 0
        assert await links(daemon) == [before]
        (state / "filler").unlink()
        daemon.program.wait_for("the history is written again", daemon.program.log)
        await convert(daemon, account, after)
        assert await links(daemon) == [after, before, during, before]
        assert daemon.program.log.read_text().count("the history cannot be used") == 1


async def test_retention_of_no_days_keeps_nothing(
    running: Running, portal: Portal, account: Account
) -> None:
    with running(products={"source": "none"}, history={"retention_days": 0}) as daemon:
        daemon.wait_for_browser()
        await convert(daemon, account, portal.link(portal.item()))
        assert await links(daemon) == []


def rewrite(daemon: Daemon, entries: Iterable[tuple[datetime, str]]) -> None:
    """Stop the daemon and add entries to its file, like entries of an earlier run."""
    assert daemon.program.stop() == 0
    with closing(sqlite3.connect(daemon.state / "history.sqlite")) as file, file:
        for at, link in entries:
            values = (round(at.timestamp() * 1000), link)
            added = file.execute(
                "INSERT INTO entries (at, client, link, short_link, long_link, sub_ids)"
                " VALUES (?, 'owner', ?, 'short', 'long', '[]')",
                values,
            )
            file.execute("INSERT INTO texts VALUES (?, ?)", (added.lastrowid, link))
        file.execute("INSERT INTO search (search) VALUES ('rebuild')")


async def test_entry_older_than_retention_days_is_forgotten(running: Running) -> None:
    now = datetime.now(UTC)
    with running(**WITHOUT_BROWSER) as daemon:
        rewrite(daemon, ((now - timedelta(days=days), f"{days} days") for days in (91, 89)))
        daemon.start()

        async def is_forgotten() -> bool:
            return await links(daemon) == ["89 days"]

        await until("the old entry is forgotten", is_forgotten)


async def test_history_keeps_to_its_bound_in_bytes(running: Running) -> None:
    now, count = datetime.now(UTC), 1000
    with running(**WITHOUT_BROWSER, history={"max_bytes": 2**20}) as daemon:
        rewrite(daemon, ((now, f"{number} {'x' * 4000}") for number in range(count)))
        file = daemon.state / "history.sqlite"
        assert file.stat().st_size > 4 * 2**20
        daemon.start()

        async def is_smaller() -> bool:
            return file.stat().st_size < 3 * 2**20

        await until("the file is smaller", is_smaller)
        kept = [int(link.split()[0]) for link in await links(daemon, limit=200)]
        assert 0 < len(kept) < 200
        assert kept == list(range(count - 1, count - 1 - len(kept), -1))


async def test_history_is_in_a_file_of_its_own(running: Running) -> None:
    crew = {"name": "echo", "runner": "command", "command": ["/bin/cat"]}
    with running(**WITHOUT_BROWSER, crews=[crew]) as daemon:
        key = await key_for(daemon, "crews")
        body: Json = {"inputs": {}}
        kicked = await daemon.ask("POST", "/crews/echo/kickoff", body, token=key)
        rewrite(daemon, [(datetime.now(UTC), "a link")])
        daemon.start()
        assert await links(daemon) == ["a link"]
        assert daemon.program.stop() == 0
        for file in daemon.state.glob("history.sqlite*"):
            file.unlink()
        daemon.start()
        assert await links(daemon) == []
        path = f"/crews/echo/status/{kicked.json()['kickoff_id']}"
        assert (await daemon.ask("GET", path, token=key)).status_code == 200


async def test_retention_is_taken_up_by_a_reload(
    running: Running, portal: Portal, account: Account
) -> None:
    with running(products={"source": "none"}) as daemon:
        daemon.wait_for_browser()
        pair = [portal.link(portal.item()), portal.link(portal.item())]
        for link in pair:
            await convert(daemon, account, link)
        await trio.Path(daemon.config).write_text(
            f"{daemon.config.read_text()}\n[history]\nretention_count = 1\n"
        )
        daemon.program.process.send_signal(1)

        async def forgotten() -> bool:
            return await links(daemon) == [pair[1]]

        await until("one entry", forgotten)
        assert "is reloaded: history.retention_count" in daemon.program.log.read_text()
