"""The history keeps, finds, deletes and forgets entries."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from smartlinkd.errors import NotFound
from smartlinkd.history.model import ALL, Filters, HistoryLimits, milliseconds
from smartlinkd.marketplace.products import ProductData

if TYPE_CHECKING:
    from datetime import datetime

    from tests.history.conftest import House, Open

SHIRT = "https://shopee.vn/product/7/41"
LAMP = "https://shopee.vn/product/7/42"


async def links(house: House, filters: Filters = ALL) -> list[str]:
    return [entry.link for entry in await house.history.page(filters, limit=1000)]


async def found(house: House, query: str = "", *, sub_id: str = "") -> list[str]:
    return await links(house, Filters(query, sub_id))


# Keeping


async def test_converted_link_is_kept_with_product_and_client(house: House) -> None:
    house.convert(SHIRT, name="Áo thun nam", sub_ids=("fb", "", "x1"), client="a bot", commission=9)
    (entry,) = await house.history.page(ALL, limit=10)
    assert (entry.link, entry.client, entry.sub_ids) == (SHIRT, "a bot", ("fb", "", "x1"))
    assert entry.at == house.clock.now
    assert entry.short_link.startswith("https://s.shopee.vn/")
    assert entry.long_link == f"{entry.short_link}?long"
    assert entry.product is not None
    product = ProductData.model_validate_json(entry.product)
    assert (product.name, product.commission) == ("Áo thun nam", 9)


async def test_link_without_product_data_has_none(house: House) -> None:
    house.convert(SHIRT)
    (entry,) = await house.history.page(ALL, limit=10)
    assert entry.product is None


async def test_failed_link_is_not_kept(house: House) -> None:
    house.convert("bad link", SHIRT)
    assert await links(house) == [SHIRT]


async def test_order_without_client_is_not_kept(house: House) -> None:
    house.convert(SHIRT, client=None)
    assert await links(house) == []


async def test_same_link_twice_is_two_entries(house: House) -> None:
    house.convert(SHIRT)
    house.convert(SHIRT)
    assert await links(house) == [SHIRT, SHIRT]


async def test_submitted_text_beyond_the_limit_is_cut(house: House) -> None:
    house.convert(f"{SHIRT} {'x' * 5000}")
    (entry,) = await house.history.page(ALL, limit=10)
    assert len(entry.link) == 4096
    assert entry.link.endswith("x…")


async def test_half_character_in_link_is_kept_as_replacement_character(house: House) -> None:
    house.convert(f"\ud83d {SHIRT}")
    assert await links(house) == [f"\ufffd {SHIRT}"]


async def test_commission_beyond_64_bits_is_kept_and_not_summed(house: House) -> None:
    house.convert(SHIRT, name="a", commission=2**80)
    house.convert(LAMP, name="b", commission=3)
    (day,) = await house.history.days(ALL)
    assert (day.links, day.commission) == (2, 3)
    assert len(await links(house)) == 2


async def test_entries_are_on_disk_without_anybody_reading(house: House, path: Path) -> None:
    house.convert(SHIRT)
    with trio.fail_after(10):
        while True:
            with closing(sqlite3.connect(path)) as other_program:
                (tables,) = other_program.execute(
                    "SELECT count(*) FROM sqlite_schema WHERE name = 'entries'"
                ).fetchone()
                if tables and other_program.execute("SELECT link FROM entries").fetchall():
                    return
            await trio.sleep(0.01)


async def test_file_is_its_owners_alone(house: House, path: Path) -> None:
    house.convert(SHIRT)
    await links(house)
    assert (await trio.Path(path).stat()).st_mode & 0o777 == 0o600


async def test_entries_survive_end_and_start(open_house: Open) -> None:
    async with open_house() as house:
        house.convert(SHIRT)
    async with open_house() as house:
        house.convert(LAMP)
        assert await links(house) == [LAMP, SHIRT]


async def test_deleted_id_is_not_given_again(house: House) -> None:
    house.convert(SHIRT)
    (first,) = await house.history.page(ALL, limit=1)
    await house.history.delete_one(first.id)
    house.convert(LAMP)
    (second,) = await house.history.page(ALL, limit=1)
    assert second.id > first.id


# Pages


async def test_pages_are_stable_while_new_entries_come(house: House) -> None:
    for number in range(5):
        house.convert(f"https://shopee.vn/product/1/{number}")
    first = await house.history.page(ALL, limit=2)
    house.convert(SHIRT)
    second = await house.history.page(ALL, limit=2, before=first[-1].id)
    third = await house.history.page(ALL, limit=2, before=second[-1].id)
    numbers = [entry.link.rpartition("/")[2] for entry in (*first, *second, *third)]
    assert numbers == ["4", "3", "2", "1", "0"]


# Search


@pytest.mark.parametrize(
    "query",
    [
        "Áo thun nam",
        "ao thun",
        "AO THUN",
        "nam áo",
        "thu",
        "hun n",
        "điện",
        "dien tu",
        "Đ",
        "a",
        "41",
        "product/7/41",
        "https://shopee.vn/product/7/41",
        "s.shopee",
        "fb2",
        '"quoted"',
        "100%",
        "a_b",
        "[x]",
        "x*y?",
    ],
)
async def test_query_finds_any_part_of_name_links_and_sub_ids(house: House, query: str) -> None:
    name = 'Áo thun nam điện tử "quoted" 100% a_b [x] x*y?'
    house.convert(SHIRT, name=name, sub_ids=("fb2",))
    assert await found(house, query) == [SHIRT]


@pytest.mark.parametrize(
    "query",
    [
        "quan",
        "zz",
        "aothun",
        "thunnam",
        "thun lamp",
        "nam zz",
        "fb2fb2",
        "a*m",
        "a?",
        "[a]",
        "-nam",
    ],
)
async def test_query_that_is_no_part_finds_nothing(house: House, query: str) -> None:
    house.convert(SHIRT, name="Áo thun nam", sub_ids=("fb2", "fb2"))
    assert await found(house, query) == []


@pytest.mark.parametrize(
    "query", ["a AND b", 'a" OR "b', "NEAR(x y)", "text:abc", "(", '"', "\0\0\0"]
)
async def test_query_with_signs_of_a_query_language_is_text(house: House, query: str) -> None:
    house.convert(SHIRT, name=f"before {query} behind")
    house.convert(LAMP, name="something else")
    assert SHIRT in await found(house, query)


async def test_query_of_spaces_finds_all(house: House) -> None:
    house.convert(SHIRT)
    assert await found(house, "  ") == [SHIRT]


async def test_sub_id_is_found_as_a_whole_only(house: House) -> None:
    house.convert(SHIRT, sub_ids=("", "Group5"), name="a 5 group5 lamp")
    house.convert(LAMP, sub_ids=("Group55", "5"), name="group5")
    assert await found(house, sub_id="group5") == [SHIRT]
    assert await found(house, sub_id="5") == [LAMP]
    assert await found(house, sub_id="Group") == []
    assert await found(house, "lamp", sub_id="5") == []
    assert await found(house, "lamp", sub_id="group5") == [SHIRT]


async def test_times_bound_what_is_found(house: House) -> None:
    moments: list[datetime] = []
    for number in range(4):
        house.convert(f"https://shopee.vn/product/1/{number}", name="lamp")
        moments.append(house.clock.now)
        house.clock.advance(days=1)
    since, until = milliseconds(moments[1]), milliseconds(moments[3])
    for query in ("", "lamp", "la"):
        inside = await links(house, Filters(query, since_ms=since, until_ms=until))
        assert [link[-1] for link in inside] == ["2", "1"]
        later = await links(house, Filters(query, since_ms=since + 1))
        assert [link[-1] for link in later] == ["3", "2"]
        assert await links(house, Filters(query, until_ms=0)) == []


async def test_times_are_compared_also_after_clock_was_set_back(house: House) -> None:
    house.convert(SHIRT)
    house.clock.advance(days=-10)
    house.convert(LAMP)
    house.clock.advance(days=10)
    house.convert(f"{SHIRT}0")
    since = milliseconds(house.clock.now)
    assert await links(house, Filters(since_ms=since)) == [f"{SHIRT}0", SHIRT]
    assert await links(house, Filters(until_ms=since)) == [LAMP]


async def test_days_are_summed_by_the_clock_that_is_given(house: House) -> None:
    house.convert(SHIRT, LAMP, name="lamp", commission=5)
    house.clock.advance(hours=15)
    house.convert(SHIRT, name="lamp", commission=None)
    house.clock.advance(days=2)
    house.convert(LAMP, name="shirt", commission=7)

    async def days(filters: Filters, offset: int = 0) -> list[tuple[str, int, int]]:
        summed = await house.history.days(filters, utc_offset_min=offset)
        return [(each.day.isoformat(), each.links, each.commission) for each in summed]

    assert await days(ALL) == [("2026-05-04", 3, 10), ("2026-05-06", 1, 7)]
    in_vietnam = [("2026-05-04", 2, 10), ("2026-05-05", 1, 0), ("2026-05-07", 1, 7)]
    assert await days(ALL, 7 * 60) == in_vietnam
    assert (await days(ALL, -4 * 60))[:1] == [("2026-05-03", 2, 10)]
    assert await days(Filters("shirt")) == [("2026-05-06", 1, 7)]
    assert await days(Filters(since_ms=0, until_ms=1)) == []


# Deleting


async def test_one_entry_is_deleted_and_no_longer_found(house: House) -> None:
    house.convert(SHIRT, name="shirt")
    house.convert(LAMP, name="lamp")
    (entry,) = await house.history.page(Filters("shirt"), limit=1)
    await house.history.delete_one(entry.id)
    assert (await found(house, "shirt"), await links(house)) == ([], [LAMP])
    with pytest.raises(NotFound, match="no entry with this id"):
        await house.history.delete_one(entry.id)


async def test_what_fits_the_filters_is_deleted(house: House) -> None:
    for number in range(1200):
        house.convert(f"https://shopee.vn/product/1/{number}", name="odd" if number % 2 else "even")
    assert await house.history.delete(Filters("odd")) == 600
    assert await found(house, "odd") == []
    assert len(await links(house)) == 600
    assert await house.history.delete(Filters("odd")) == 0


async def test_all_are_deleted_also_those_that_wait_to_be_written(open_house: Open) -> None:
    async with open_house(limits=HistoryLimits(gather_s=60)) as house:
        house.convert(SHIRT, name="shirt")
        assert await house.history.delete(ALL) == 1
        assert await links(house) == []
        house.convert(LAMP, name="lamp")
        assert await found(house, "shirt") == []
        assert await found(house, "lamp") == [LAMP]


# HistoryRetention


async def forgets(house: House, wanted: list[str]) -> None:
    with trio.fail_after(20):
        while await links(house) != wanted:  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.01)


async def test_entries_beyond_their_age_are_forgotten(open_house: Open) -> None:
    async with open_house(days=10) as house:
        house.convert(SHIRT)
        house.clock.advance(days=9)
        house.convert(LAMP)
        await forgets(house, [LAMP, SHIRT])
        house.clock.advance(days=2)
        house.convert(f"{LAMP}0")
        await forgets(house, [f"{LAMP}0", LAMP])


async def test_entries_beyond_their_number_are_forgotten_the_oldest_first(open_house: Open) -> None:
    async with open_house(count=3) as house:
        for number in range(10):
            house.convert(f"https://shopee.vn/product/1/{number}")
        await forgets(house, [f"https://shopee.vn/product/1/{number}" for number in (9, 8, 7)])


async def test_retention_that_is_taken_counts_at_once(house: House) -> None:
    house.convert(SHIRT)
    house.convert(LAMP)
    house.retain(count=1)
    await forgets(house, [LAMP])


async def test_retention_of_no_days_keeps_nothing_and_empties_the_file(house: House) -> None:
    house.convert(SHIRT)
    assert await links(house) == [SHIRT]
    house.retain(days=0)
    await forgets(house, [])
    house.convert(LAMP)
    assert await links(house) == []
    house.retain()
    house.convert(LAMP)
    assert await links(house) == [LAMP]


async def test_file_stays_within_its_bytes_and_keeps_the_newest(
    open_house: Open, path: Path
) -> None:
    most = 2 * 1024 * 1024
    async with open_house(size_bytes=most) as house:
        for number in range(6000):
            house.convert(f"https://shopee.vn/product/1/{number}", name=f"áo thun số {number} " * 5)
            if number % 500 == 499:
                await house.history.page(ALL, limit=1)
                await trio.sleep(0.05)
        with trio.fail_after(30):
            while (  # noqa: ASYNC110 - nobody tells
                await trio.Path(path).stat()
            ).st_size > most + 1024 * 1024:
                await trio.sleep(0.02)
        kept = await links(house)
        assert 500 < len(kept) < 5000
        assert kept[0].endswith("/5999")
        assert kept == sorted(kept, key=lambda link: -int(link.rpartition("/")[2]))
