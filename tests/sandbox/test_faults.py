from __future__ import annotations

import pytest

from smartlinkd.errors import Invalid
from smartlinkd.sandbox.faults import FAULTS, MAX_ARMED, Fault, Point, Switchboard


def name(fault: Fault | None) -> str | None:
    return fault.name if fault else None


def test_faults_have_names_and_magic_numbers_of_their_own() -> None:
    names = [fault.name for fault in FAULTS]
    items = [fault.item for fault in FAULTS if fault.item]
    accounts = [fault.account for fault in FAULTS if fault.account]

    assert len(names) == len(set(names))
    assert len(items) == len(set(items))
    assert len(accounts) == len(set(accounts))


def test_fault_of_one_account_spares_the_others() -> None:
    board = Switchboard()
    board.arm("page_hang", account="8")

    assert board.due(Point.PAGE, account="9") is None
    assert name(board.due(Point.PAGE, account="8")) == "page_hang"


def test_armed_faults_are_bounded() -> None:
    board = Switchboard()
    for _ in range(MAX_ARMED):
        board.arm("page_500")

    with pytest.raises(Invalid, match="DELETE"):
        board.arm("page_500")
