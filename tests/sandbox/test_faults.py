from __future__ import annotations

import pytest

from smartlinkd.errors import Invalid
from smartlinkd.sandbox.faults import FAULTS, MAX_ARMED, Behaviour, Fault, Point, Switchboard

SUBMIT_401 = 900_000_101


def name(fault: Fault | None) -> str | None:
    return fault.name if fault else None


def test_no_two_faults_share_a_name_or_a_magic_number() -> None:
    names = [fault.name for fault in FAULTS]
    items = [fault.item for fault in FAULTS if fault.item]
    accounts = [fault.account for fault in FAULTS if fault.account]

    assert len(names) == len(set(names))
    assert len(items) == len(set(items))
    assert len(accounts) == len(set(accounts))


def test_every_play_is_in_some_fault() -> None:
    assert {fault.behaviour for fault in FAULTS} == set(Behaviour)


def test_nothing_is_wrong_by_itself() -> None:
    board = Switchboard()

    assert all(board.due(point, account="1", items=[1, 2]) is None for point in Point)


def test_a_magic_item_among_others_is_enough() -> None:
    assert name(Switchboard().due(Point.SUBMIT, account="1", items=[1, SUBMIT_401])) == "submit_401"


def test_a_magic_item_bites_at_its_own_point_only() -> None:
    assert Switchboard().due(Point.PRODUCT, account="1", items=[SUBMIT_401]) is None


def test_a_magic_account() -> None:
    assert name(Switchboard().due(Point.PAGE, account="990000011")) == "page_alert"


def test_a_fault_happens_as_often_as_it_was_switched_on_for() -> None:
    board = Switchboard()
    board.arm("submit_500", times=2)

    seen = [name(board.due(Point.SUBMIT)) for _ in range(3)]

    assert seen == ["submit_500", "submit_500", None]


def test_asking_elsewhere_uses_nothing_up() -> None:
    board = Switchboard()
    board.arm("submit_500", times=1)
    board.due(Point.PAGE)

    assert name(board.due(Point.SUBMIT)) == "submit_500"


def test_a_fault_for_one_account_spares_the_others() -> None:
    board = Switchboard()
    board.arm("page_hang", account="8")

    assert board.due(Point.PAGE, account="9") is None
    assert name(board.due(Point.PAGE, account="8")) == "page_hang"


def test_a_fault_without_times_stays_until_it_is_cleared() -> None:
    board = Switchboard()
    board.arm("page_hang")
    before = [name(board.due(Point.PAGE)) for _ in range(50)]
    board.clear()

    assert set(before) == {"page_hang"}
    assert board.due(Point.PAGE) is None


@pytest.mark.parametrize(("fault", "times"), [("nonesuch", 1), ("submit_500", 0)])
def test_what_cannot_be_switched_on(fault: str, times: int) -> None:
    with pytest.raises(Invalid):
        Switchboard().arm(fault, times=times)


def test_the_switchboard_is_bounded() -> None:
    board = Switchboard()
    for _ in range(MAX_ARMED):
        board.arm("page_500")

    with pytest.raises(Invalid, match="DELETE"):
        board.arm("page_500")
