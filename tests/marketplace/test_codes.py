"""The portal's failCode in terms of ours."""

from __future__ import annotations

import pytest

from smartlinkd.marketplace.codes import FailCode, from_portal


@pytest.mark.parametrize(
    ("portal", "ours"),
    [
        (0, FailCode.SUCCESS),
        (None, FailCode.SUCCESS),
        (2, FailCode.INVALID_LINK),
        (1, FailCode.UNKNOWN),
        *((code, FailCode.UNKNOWN) for code in (3, 4, 5, 6, 7)),
        (99, FailCode.UNKNOWN),
        (-1, FailCode.UNKNOWN),
        (40300, FailCode.UNKNOWN),
    ],
)
def test_each_code_of_the_portal(portal: int | None, ours: FailCode) -> None:
    assert from_portal(portal) is ours


def test_the_numbers_are_those_that_clients_were_promised() -> None:
    assert {code.value for code in FailCode} == {0, -1, 10, 40300}
