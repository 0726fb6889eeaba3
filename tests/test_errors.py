"""The helpers for errors that all rooms share."""

from __future__ import annotations

import pytest

from smartlinkd.errors import MAX_ERROR_TEXT, describe, leaves


def test_the_leaves_of_a_group_come_in_order() -> None:
    first, second, third = ValueError("1"), ValueError("2"), ValueError("3")
    group = ExceptionGroup("", [first, ExceptionGroup("", [ExceptionGroup("", [second])]), third])
    assert list(leaves(group)) == [first, second, third]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("broken"), "ValueError: broken"),
        (ValueError(), "ValueError"),
        (ValueError("two\n  lines\tand a tab "), "ValueError: two lines and a tab"),
        (ExceptionGroup("g", [ValueError("broken")]), "ValueError: broken"),
        (
            ExceptionGroup("g", [ValueError("broken"), KeyError("lost"), OSError()]),
            "ValueError: broken (and 2 more)",
        ),
        (
            ExceptionGroup("g", [ExceptionGroup("h", [ValueError("broken")])]),
            "ValueError: broken",
        ),
    ],
)
def test_an_error_is_described_in_one_line(error: Exception, line: str) -> None:
    assert describe(error) == line


def test_a_description_is_bounded() -> None:
    exact = "x" * MAX_ERROR_TEXT
    assert describe(ValueError(exact)) == f"ValueError: {exact}"
    assert describe(ValueError(exact + "x")) == f"ValueError: {exact[:-1]}…"
