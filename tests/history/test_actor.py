"""The history keeps, finds, deletes and forgets entries."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import trio

from smartlinkd.history.model import ALL, Filters, HistoryLimits, milliseconds

if TYPE_CHECKING:
    from datetime import datetime

    from tests.history.conftest import Open, RunningHistory

SHIRT = "https://shopee.vn/product/7/41"
LAMP = "https://shopee.vn/product/7/42"


async def found(running: RunningHistory, query: str = "", *, sub_id: str = "") -> list[str]:
    return await running.links(Filters(query, sub_id))


# Keeping


async def test_submitted_text_beyond_the_limit_is_cut(running: RunningHistory) -> None:
    running.convert(f"{SHIRT} {'x' * 5000}")
    (entry,) = await running.history.page(ALL, limit=10)
    assert len(entry.link) == 4096
    assert entry.link.endswith("x…")


async def test_half_character_in_link_is_kept_as_replacement_character(
    running: RunningHistory,
) -> None:
    running.convert(f"\ud83d {SHIRT}")
    assert await running.links() == [f"\ufffd {SHIRT}"]


async def test_commission_beyond_64_bits_is_kept_and_not_summed(running: RunningHistory) -> None:
    running.convert(SHIRT, name="a", commission=2**80)
    running.convert(LAMP, name="b", commission=3)
    (day,) = await running.history.days(ALL)
    assert (day.links, day.commission) == (2, 3)
    assert len(await running.links()) == 2


async def test_entries_are_on_disk_without_anybody_reading(
    running: RunningHistory, path: Path
) -> None:
    running.convert(SHIRT)
    with trio.fail_after(10):
        while True:
            with closing(sqlite3.connect(path)) as other_program:
                (tables,) = other_program.execute(
                    "SELECT count(*) FROM sqlite_schema WHERE name = 'entries'"
                ).fetchone()
                if tables and other_program.execute("SELECT link FROM entries").fetchall():
                    return
            await trio.sleep(0.01)


async def test_entries_survive_end_and_start_in_a_file_of_their_owner_alone(
    open_history: Open, path: Path
) -> None:
    async with open_history() as running:
        running.convert(SHIRT)
    async with open_history() as running:
        running.convert(LAMP)
        assert await running.links() == [LAMP, SHIRT]
    assert (await trio.Path(path).stat()).st_mode & 0o777 == 0o600


async def test_deleted_id_is_not_given_again(running: RunningHistory) -> None:
    running.convert(SHIRT)
    (first,) = await running.history.page(ALL, limit=1)
    await running.history.delete_one(first.id)
    running.convert(LAMP)
    (second,) = await running.history.page(ALL, limit=1)
    assert second.id > first.id


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
        "  ",
    ],
)
async def test_query_finds_any_part_of_name_links_and_sub_ids(
    running: RunningHistory, query: str
) -> None:
    name = 'Áo thun nam điện tử "quoted" 100% a_b [x] x*y?'
    running.convert(SHIRT, name=name, sub_ids=("fb2",))
    assert await found(running, query) == [SHIRT]


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
async def test_query_that_is_no_part_finds_nothing(running: RunningHistory, query: str) -> None:
    running.convert(SHIRT, name="Áo thun nam", sub_ids=("fb2", "fb2"))
    assert await found(running, query) == []


@pytest.mark.parametrize(
    "query", ["a AND b", 'a" OR "b', "NEAR(x y)", "text:abc", "(", '"', "\0\0\0"]
)
async def test_query_with_signs_of_a_query_language_is_text(
    running: RunningHistory, query: str
) -> None:
    running.convert(SHIRT, name=f"before {query} behind")
    running.convert(LAMP, name="something else")
    assert SHIRT in await found(running, query)


async def test_sub_id_is_found_as_a_whole_only(running: RunningHistory) -> None:
    running.convert(SHIRT, sub_ids=("", "Group5"), name="a 5 group5 lamp")
    running.convert(LAMP, sub_ids=("Group55", "5"), name="group5")
    assert await found(running, sub_id="group5") == [SHIRT]
    assert await found(running, sub_id="5") == [LAMP]
    assert await found(running, sub_id="Group") == []
    assert await found(running, "lamp", sub_id="5") == []
    assert await found(running, "lamp", sub_id="group5") == [SHIRT]


async def test_times_bound_what_is_found(running: RunningHistory) -> None:
    moments: list[datetime] = []
    for number in range(4):
        running.convert(f"https://shopee.vn/product/1/{number}", name="lamp")
        moments.append(running.clock.now)
        running.clock.advance(days=1)
    since, until = milliseconds(moments[1]), milliseconds(moments[3])
    for query in ("", "lamp", "la"):
        inside = await running.links(Filters(query, since_ms=since, until_ms=until))
        assert [link[-1] for link in inside] == ["2", "1"]
        later = await running.links(Filters(query, since_ms=since + 1))
        assert [link[-1] for link in later] == ["3", "2"]
        assert await running.links(Filters(query, until_ms=0)) == []


async def test_times_are_compared_also_after_clock_was_set_back(running: RunningHistory) -> None:
    running.convert(SHIRT)
    running.clock.advance(days=-10)
    running.convert(LAMP)
    running.clock.advance(days=10)
    running.convert(f"{SHIRT}0")
    since = milliseconds(running.clock.now)
    assert await running.links(Filters(since_ms=since)) == [f"{SHIRT}0", SHIRT]
    assert await running.links(Filters(until_ms=since)) == [LAMP]


async def test_days_are_summed_by_the_clock_that_is_given(running: RunningHistory) -> None:
    running.convert(SHIRT, LAMP, name="lamp", commission=5)
    running.clock.advance(hours=15)
    running.convert(SHIRT, name="lamp", commission=None)
    running.clock.advance(days=2)
    running.convert(LAMP, name="shirt", commission=7)

    async def days(filters: Filters, offset: int = 0) -> list[tuple[str, int, int]]:
        summed = await running.history.days(filters, utc_offset_min=offset)
        return [(each.day.isoformat(), each.links, each.commission) for each in summed]

    assert await days(ALL) == [("2026-05-04", 3, 10), ("2026-05-06", 1, 7)]
    in_vietnam = [("2026-05-04", 2, 10), ("2026-05-05", 1, 0), ("2026-05-07", 1, 7)]
    assert await days(ALL, 7 * 60) == in_vietnam
    assert (await days(ALL, -4 * 60))[:1] == [("2026-05-03", 2, 10)]
    assert await days(Filters("shirt")) == [("2026-05-06", 1, 7)]
    assert await days(Filters(since_ms=0, until_ms=1)) == []


# Deleting


async def test_what_fits_the_filters_is_deleted(running: RunningHistory) -> None:
    for number in range(1200):
        running.convert(
            f"https://shopee.vn/product/1/{number}", name="odd" if number % 2 else "even"
        )
    assert await running.history.delete(Filters("odd")) == 600
    assert await found(running, "odd") == []
    assert len(await running.links()) == 600
    assert await running.history.delete(Filters("odd")) == 0


async def test_all_are_deleted_also_those_that_wait_to_be_written(open_history: Open) -> None:
    async with open_history(limits=HistoryLimits(gather_s=60)) as running:
        running.convert(SHIRT, name="shirt")
        assert await running.history.delete(ALL) == 1
        assert await running.links() == []
        running.convert(LAMP, name="lamp")
        assert await found(running, "shirt") == []
        assert await found(running, "lamp") == [LAMP]


# HistoryRetention


async def forgets(running: RunningHistory, wanted: list[str]) -> None:
    with trio.fail_after(20):
        while await running.links() != wanted:  # noqa: ASYNC110 - nobody tells
            await trio.sleep(0.01)


async def test_entries_beyond_their_age_are_forgotten_while_it_runs(open_history: Open) -> None:
    async with open_history(days=10) as running:
        running.convert(SHIRT)
        running.clock.advance(days=9)
        running.convert(LAMP)
        await forgets(running, [LAMP, SHIRT])
        running.clock.advance(days=2)
        running.convert(f"{LAMP}0")
        await forgets(running, [f"{LAMP}0", LAMP])


async def test_retention_of_no_days_keeps_nothing_and_empties_the_file(
    running: RunningHistory,
) -> None:
    running.convert(SHIRT)
    assert await running.links() == [SHIRT]
    running.retain(days=0)
    await forgets(running, [])
    running.convert(LAMP)
    assert await running.links() == []
    running.retain()
    running.convert(LAMP)
    assert await running.links() == [LAMP]
