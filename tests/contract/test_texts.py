"""`/api/extract` finds the links of a text; `/api/convert-text` replaces them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.contract.conftest import Daemon, Portal

pytestmark = pytest.mark.chromium


async def test_extract_gives_links_with_places_in_code_points(
    linking: Daemon, portal: Portal
) -> None:
    first, second = portal.link(portal.item()), portal.short("direct")
    text = f"🔥🔥 Deal: ({first}?sp_atk=1).\nXem {second}! {portal.origins.shop}/shop123"
    answer = await linking.ask("POST", "/api/extract", {"text": text}, token=await linking.login())
    links = answer.json()["links"]
    assert [each["link"] for each in links] == [f"{first}?sp_atk=1", second]
    assert [text[each["start"] : each["end"]] for each in links] == [f"{first}?sp_atk=1", second]
    assert links[0]["start"] == len("🔥🔥 Deal: (")


async def test_extract_asks_nobody(linking: Daemon, portal: Portal) -> None:
    account, link, token = portal.account(), portal.link(portal.item()), await linking.login()
    made = (await linking.convert(link, account=account)).json()["mapping"][link]["shortLink"]
    text = f"{made} {portal.link(portal.item())}"  # the short link was not resolved yet
    before = [await portal.counted(what) for what in ("short link", "submit", "product read")]
    answer = await linking.ask("POST", "/api/extract", {"text": text}, token=token)
    assert len(answer.json()["links"]) == 2
    after = [await portal.counted(what) for what in ("short link", "submit", "product read")]
    assert after == before
    await linking.convert(made, account=account)
    assert await portal.counted("short link") > before[0]


async def test_extract_of_500_lines_finds_each_link(linking: Daemon, portal: Portal) -> None:
    token = await linking.login()
    lines = "\n".join(f"{n};{portal.link(portal.item())};Son số {n}" for n in range(500))
    answer = await linking.ask("POST", "/api/extract", {"text": lines}, token=token)
    assert len(answer.json()["links"]) == 500


@pytest.mark.parametrize(("path", "kib"), [("/api/extract", 512), ("/api/convert-text", 64)])
async def test_text_at_its_bound_is_taken_and_beyond_it_is_400(
    linking: Daemon, portal: Portal, path: str, kib: int
) -> None:
    bound, token = kib * 1024, await linking.login()
    cookie = {"cookie": portal.account().cookie} if path == "/api/convert-text" else {}
    largest, larger = ({"text": "a" * size, **cookie} for size in (bound, bound + 1))
    assert (await linking.ask("POST", path, largest, token=token)).status_code == 200
    answer = await linking.ask("POST", path, larger, token=token)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith(f"text: has {bound + 1} bytes")


async def test_convert_text_replaces_what_was_converted_and_keeps_the_rest(
    linking: Daemon, portal: Portal
) -> None:
    account, item = portal.account(), portal.item()
    link, gone = portal.link(item), portal.short("gone")
    text = f"🔥 Mua ({link}), rồi {gone}! Lần nữa: {link}\n"
    body = {"text": text, "cookie": account.cookie, "subIds": ["zalo"]}
    answer = await linking.ask("POST", "/api/convert-text", body, token=await linking.login())
    entry = portal.entry(item, account, "zalo", product=False)
    assert answer.json()["text"] == text.replace(link, entry["shortLink"])
    assert answer.json()["mapping"] == {link: entry, gone: {"error": True, "failCode": 10}}


async def test_convert_text_without_a_cookie_uses_the_stored_one(
    linking: Daemon, portal: Portal
) -> None:
    account, item = portal.account(), portal.item()
    await linking.sync(account)
    body = {"text": portal.link(item)}
    answer = await linking.ask("POST", "/api/convert-text", body, token=await linking.login())
    assert answer.json()["text"] == portal.entry(item, account)["shortLink"]


async def test_convert_text_without_links_is_the_text(linking: Daemon, portal: Portal) -> None:
    account = portal.account()
    body = {"text": "Không có link.", "cookie": account.cookie}
    answer = await linking.ask("POST", "/api/convert-text", body, token=await linking.login())
    assert answer.json() == {"ok": True, "text": "Không có link.", "mapping": {}}
    assert await portal.submits(account) == []


async def test_convert_text_with_sixteen_different_links_is_refused(
    linking: Daemon, portal: Portal
) -> None:
    account = portal.account()
    text = " ".join(portal.link(portal.item()) for _ in range(16))
    body = {"text": text, "cookie": account.cookie}
    answer = await linking.ask("POST", "/api/convert-text", body, token=await linking.login())
    assert (answer.status_code, "16 different links" in answer.json()["error"]) == (400, True)
    assert await portal.submits(account) == []


@pytest.mark.parametrize("path", ["/api/extract", "/api/convert-text"])
async def test_text_operations_want_a_token_and_a_text(linking: Daemon, path: str) -> None:
    assert (await linking.ask("POST", path, {"text": ""})).status_code == 403
    answer = await linking.ask("POST", path, {}, token=await linking.login())
    assert (answer.status_code, answer.json()["error"]) == (400, "text: is missing")
