"""A value that breaks its rule, and the rule that all share: that it is text.

It is told as what is wrong and what to do, and never repeats the value: a secret pasted under the
wrong key would end up in a terminal or a journal.
"""

from __future__ import annotations


class BadValue(ValueError):  # noqa: N818 - a finding, told as a `Problem` of the configuration
    """A value breaks its rule. Without a `remedy` the key's example is the remedy."""

    def __init__(self, fault: str, remedy: str = "") -> None:
        super().__init__(fault)
        self.fault = fault
        self.remedy = remedy


def text(value: object) -> str:
    """The value, which has to be a string. Raises `BadValue`, as each rule does."""
    if not isinstance(value, str):
        raise BadValue("must be text in quotes")
    return value
