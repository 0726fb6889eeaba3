"""The helpers for errors that all rooms share."""

from __future__ import annotations

from smartlinkd.errors import leaves


def test_the_leaves_of_a_group_come_in_order() -> None:
    first, second, third = ValueError("1"), ValueError("2"), ValueError("3")
    group = ExceptionGroup("", [first, ExceptionGroup("", [ExceptionGroup("", [second])]), third])
    assert list(leaves(group)) == [first, second, third]
