"""One account: its status, its human checks, and the affiliate ids of its links."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from smartlinkd.conversion.account import Account, AccountState, AccountStatus, AffiliateIds
from smartlinkd.logs import LogEvent
from smartlinkd.marketplace.answers import UNKNOWN_ROW, FailCode, Row
from smartlinkd.marketplace.errors import HumanCheck, SessionLost
from smartlinkd.vault.cookie import Cookie, parse_cookie
from tests.conversion.conftest import RENEWED

if TYPE_CHECKING:
    from tests.conversion.conftest import Ask, Fakes

COOKIE = parse_cookie("SPC_U=100100100100100; SPC_EC=first")
OTHER = parse_cookie("SPC_U=100100100100100; SPC_EC=second")
OF_1001 = parse_cookie("SPC_U=1001; SPC_EC=x")
OF_2002 = parse_cookie("SPC_U=2002; SPC_EC=first")

NAME = COOKIE.account
SHOWN = NAME[:12]
Told = list[tuple[str, AccountState]]


@pytest.fixture
def told() -> Told:
    return []


@pytest.fixture
def account(told: Told) -> Account:
    return Account(NAME, lambda account: told.append((account.shown, account.state)))


def statuses(told: Told) -> list[AccountStatus]:
    return [state.status for _, state in told]


def test_change_of_status_is_reported_once_with_a_short_name(
    account: Account, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    account.note_links_made(COOKIE)
    account.note_synced_cookie(COOKIE, None)
    account.note_session_lost(SessionLost(), COOKIE)
    account.note_session_lost(SessionLost(), COOKIE)
    for _ in range(2):  # an extension sends it every few minutes
        account.note_synced_cookie(COOKIE, COOKIE)
    assert account.state.status is AccountStatus.SESSION_LOST
    account.pause(COOKIE)
    account.pause(COOKIE)
    account.clear()
    account.clear()
    assert statuses(told) == [
        AccountStatus.SESSION_LOST,
        AccountStatus.PAUSED,
        AccountStatus.ACTIVE,
    ]
    assert {name for name, _ in told} == {SHOWN}
    assert told[-1][1] == account.state
    logged = [record for record in caplog.records if hasattr(record, "event")]
    assert [(record.event, record.about) for record in logged] == [  # type: ignore[attr-defined]
        (event, {"account": SHOWN})
        for event in (LogEvent.SESSION_LOST, LogEvent.ACCOUNT_PAUSED, LogEvent.ACCOUNT_BACK)
    ]


def test_cookie_that_ends_no_pause_is_logged_without_its_values(
    account: Account, told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    account.pause(COOKIE)
    caplog.clear()
    account.note_synced_cookie(parse_cookie(COOKIE.header()), None)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert f"account {SHOWN} stays paused" in record.message
    assert NAME not in record.message
    assert COOKIE.digest not in record.message
    assert "first" not in record.message
    assert statuses(told) == [AccountStatus.PAUSED]


@pytest.mark.parametrize(
    ("synced", "other"),
    [([OTHER], COOKIE), ([COOKIE, OTHER], COOKIE), ([COOKIE, OTHER, COOKIE], OTHER)],
    ids=["of a request", "superseded", "superseded by the one before it"],
)
def test_lost_session_of_another_cookie_than_the_stored_one_is_not_the_accounts(
    account: Account, told: Told, synced: list[Cookie], other: Cookie
) -> None:
    """A client may send an old cookie with each request, and a submit may be under way."""
    for before, cookie in zip([None, *synced], synced, strict=False):
        account.note_synced_cookie(cookie, before)
    account.note_session_lost(SessionLost(), other)
    assert statuses(told) == []
    account.note_session_lost(SessionLost(), synced[-1])
    account.note_links_made(other)
    assert statuses(told) == [AccountStatus.SESSION_LOST]


FAILED = Row(None, None, FailCode.INVALID_LINK)


def made(number: int, name: str | None = "an_17") -> Row:
    source = f"&utm_source={name}" if name else ""
    long_link = f"https://shopee.vn/universal-link/product/7/{number}?utm_medium=x{source}"
    return Row(f"https://s.shopee.vn/{number}", long_link, FailCode.SUCCESS)


async def test_link_of_the_accounts_own_id_is_given_out(caplog: pytest.LogCaptureFixture) -> None:
    affiliate_ids = AffiliateIds("1001")
    rows = [made(1), FAILED, made(2), made(3, None)]
    assert affiliate_ids.reject_foreign(rows, OF_1001) == rows
    assert affiliate_ids.reject_foreign(rows[2:], OF_1001) == rows[2:]
    assert caplog.records == []


async def test_link_of_a_foreign_id_is_unknown_and_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    affiliate_ids = AffiliateIds("1001")
    affiliate_ids.reject_foreign([made(1)], OF_1001)
    assert affiliate_ids.reject_foreign([made(2, "an_99"), made(3)], OF_1001) == [
        UNKNOWN_ROW,
        made(3),
    ]
    assert "earn for an_99, not for an_17" in caplog.text
    assert affiliate_ids.reject_foreign([made(4)], OF_1001) == [made(4)]


@pytest.mark.parametrize("names", [("an_99", "an_17", "an_17"), ("an_17", "an_99")])
async def test_most_links_of_the_first_submit_decide_the_own_id(names: tuple[str, ...]) -> None:
    rows = [made(number, name) for number, name in enumerate(names, start=1)]
    own = [UNKNOWN_ROW if name == "an_99" else row for name, row in zip(names, rows, strict=True)]
    assert AffiliateIds("1001").reject_foreign(rows, OF_1001) == own


async def test_own_id_is_kept_for_the_next_synced_cookie_until_the_owner_clears_it() -> None:
    account = Account("1001", lambda _: None)
    account.affiliate_ids.reject_foreign([made(1)], OF_1001)
    renewed, other = (parse_cookie(f"SPC_U=1001; SPC_EC={each}") for each in ("y", "z"))
    account.note_synced_cookie(renewed, OF_1001)
    account.note_synced_cookie(other, None)
    foreign = [made(2, "an_99")]
    assert account.affiliate_ids.reject_foreign(foreign, renewed) == [UNKNOWN_ROW]
    assert account.affiliate_ids.reject_foreign(foreign, other) == foreign
    account.clear()
    assert account.affiliate_ids.reject_foreign(foreign, renewed) == foreign


async def test_own_id_of_another_cookie_does_not_count_and_foreign_link_is_not_remembered(
    fakes: Fakes, autojump_clock: MockClock
) -> None:
    await fakes.open()
    own, forged = fakes.cookie, parse_cookie("SPC_U=1001; SPC_EC=of-another-session")
    fakes.links.script = [[made(1, "an_99")], [made(2)], [made(3, "an_99")], [made(3)]]
    codes = []
    for number, cookie in ((1, forged), (2, own), (3, own), (3, own)):
        codes.append(await fakes.codes(fakes.link(number), cookie=cookie))
    assert codes == [[0], [0], [-1], [0]]


async def status(fakes: Fakes) -> dict[str, AccountStatus]:
    return {name: each.status for name, each in (await fakes.service.status()).accounts.items()}


async def test_account_is_paused_as_soon_as_a_check_is_reported(
    fakes: Fakes, autojump_clock: MockClock
) -> None:
    await fakes.open()
    await fakes.convert(fakes.link(1))
    fakes.service.report_human_check(fakes.cookie)
    await wait_all_tasks_blocked()
    assert await status(fakes) == {"1001": AccountStatus.PAUSED}
    with pytest.raises(HumanCheck):
        await fakes.convert(fakes.link(2))
    assert len(fakes.links.submits) == 1
    await fakes.convert(fakes.link(2), cookie=OF_2002)
    assert await fakes.service.clear_accounts() == 1
    await fakes.convert(fakes.link(2))


async def test_check_of_a_replaced_cookie_pauses_nobody(fakes: Fakes) -> None:
    """Its context may be warm for minutes, also when the owner has answered the check since."""
    await fakes.open()
    await fakes.service.note_synced_cookie(RENEWED, fakes.cookie)
    await fakes.service.clear_accounts()
    fakes.service.report_human_check(fakes.cookie)
    await wait_all_tasks_blocked()
    assert AccountStatus.PAUSED not in (await status(fakes)).values()
    await fakes.service.note_synced_cookie(fakes.cookie, RENEWED)
    fakes.service.report_human_check(fakes.cookie)
    await wait_all_tasks_blocked()
    assert await status(fakes) == {"1001": AccountStatus.PAUSED}


async def test_reported_check_refuses_waiting_links_and_not_the_sent_one(
    fakes: Fakes, ask: Ask[object], autojump_clock: MockClock
) -> None:
    await fakes.open(chunk=1)
    sent = ask(lambda: fakes.convert(fakes.link(1), sub_ids=("sent",)))
    await wait_all_tasks_blocked()
    waits = ask(lambda: fakes.convert(fakes.link(2), sub_ids=("waits",)))
    await wait_all_tasks_blocked()
    fakes.service.report_human_check(fakes.cookie)
    await waits.over.wait()
    assert isinstance(waits.refusal, HumanCheck)
    assert not sent.over.is_set()
    await sent.over.wait()
    assert sent.refusal is None
    assert len(fakes.links.submits) == 1


async def test_check_reported_while_the_service_restarts_pauses_the_account(
    fakes: Fakes, nursery: trio.Nursery
) -> None:
    service = fakes.make()
    fakes.service.report_human_check(fakes.cookie)
    fakes.service.report_human_check(OF_2002)
    await nursery.start(service.run)
    await wait_all_tasks_blocked()
    assert await status(fakes) == {"1001": AccountStatus.PAUSED, "2002": AccountStatus.PAUSED}
