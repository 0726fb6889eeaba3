"""Short links: the products that they lead to, and the codes with which they fail."""

from __future__ import annotations

import pytest

from tests.contract.conftest import Daemon, Portal

pytestmark = pytest.mark.chromium

Json = dict[str, object]


async def entries_of(linking: Daemon, portal: Portal, *codes: str) -> dict[str, Json]:
    """Convert the sandbox's short links of these codes; return the entries by code."""
    links = {code: portal.short(code) for code in codes}
    answer = await linking.convert(*links.values(), account=portal.account())
    assert answer.status_code == 200, answer.text
    mapping = answer.json()["mapping"]
    return {code: mapping[link] for code, link in links.items()}


@pytest.mark.parametrize(
    ("code", "product"),
    [
        ("direct", "/88201679/23456789012?"),
        ("moved", "/40011223/17788990011?"),
        ("relative", "/88201679/23456789012?"),
        ("chain5", "/88201679/23456789012?"),
        ("refresh", "/72345001/18123456789?"),
        ("meta", "/55104422/21334455667?"),
        ("script", "/61002345/19876543210?"),
        ("variable", "/83004567/22001100220?"),
        ("canonical", "/90112233/25550001112?"),
        ("ogurl", "/33445566/20202020202?"),
    ],
)
async def test_short_link_of_each_kind_leads_to_its_product(
    linking: Daemon, portal: Portal, code: str, product: str
) -> None:
    entry = (await entries_of(linking, portal, code))[code]
    assert entry["failCode"] == 0
    assert product in str(entry["longLink"])


@pytest.mark.parametrize(
    "code",
    ["gone", "loop", "chain6", "foreign", "lookalike", "scheme", "nowhere", "home", "dlink7Qx"],
)
async def test_short_link_to_no_product_fails_with_10(
    linking: Daemon, portal: Portal, code: str
) -> None:
    found = await entries_of(linking, portal, code)
    assert found == {code: {"error": True, "failCode": 10}}
    assert await portal.counted("dlink opened") == 0


@pytest.mark.parametrize("code", ["unknown", "big", "signin", "check", "broken", "slow"])
async def test_short_link_of_which_nothing_is_known_fails_with_minus_1(
    linking: Daemon, portal: Portal, code: str
) -> None:
    found = await entries_of(linking, portal, code)
    assert found == {code: {"error": True, "failCode": -1}}


async def test_short_links_are_resolved_without_the_cookie(linking: Daemon, portal: Portal) -> None:
    before = await portal.counted("short link")
    await entries_of(linking, portal, *(f"p1i{portal.item()}" for _ in range(3)))
    assert await portal.counted("short link") == before + 3
    assert await portal.counted("short link with cookie") == 0
