"""Files of environment variables: read as systemd reads them, or refused."""

from __future__ import annotations

import pytest

from smartlinkd.config.env_file import parse
from smartlinkd.validation import BadValue


def read(content: str) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in parse(content).items()}


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("KEY=plain", "plain"),
        ("KEY=two words", "two words"),
        ("  KEY = around  ", "around"),
        ("KEY=", ""),
        ("KEY=a=b#c", "a=b#c"),
        ("KEY='as $it \\ is'", "as $it \\ is"),
        ('KEY="a \\"word\\", \\$5, a \\\\ and \\n"', 'a "word", $5, a \\ and \\n'),
        ("KEY=it's", "it's"),
        ("KEY=ünï", "ünï"),
        ("KEY=value\r", "value"),
        ("KEY='single' ", "single"),
        ('KEY="a \\`b\\`"', "a `b`"),
        ("KEY=no-break\xa0", "no-break\xa0"),
    ],
)
def test_a_value_is_what_systemd_takes_it_for(line: str, value: str) -> None:
    assert read(line) == {"KEY": value}


def test_empty_lines_and_comments_are_passed_over() -> None:
    assert read("\n# A=1\n ; B=2\n\nC=3\n") == {"C": "3"}


def test_a_line_ends_where_it_does_for_systemd() -> None:
    assert read("A=1\r\nB=2\rC=3\x0b4\u20285\n") == {"A": "1", "B": "2", "C": "3\x0b4\u20285"}


def test_there_may_be_128() -> None:
    assert len(read("".join(f"A{i}=x\n" for i in range(128)))) == 128


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("A=1\nhunter2", "line 2 is no NAME=VALUE"),
        ("A=1\r\nhunter2", "line 2 is no NAME=VALUE"),
        ("# hunter2\\\nA=1", "line 1 is a comment that ends in a backslash"),
        ("A='hunter2\rB='", "line 1 gives A a value that does not end where its quotes do"),
        ("A='hunter2'B'", "line 1 gives A a value that does not end where its quotes do"),
        ("export A=hunter2", "line 1 begins with `export`"),
        ("1A=hunter2", "line 1 sets what is no name for a variable"),
        ("HOME=hunter2", "line 1 sets what is set by the daemon"),
        ("SMARTLINKD_FD=hunter2", "line 1 sets what is set by the daemon"),
        ("A='hunter2", "line 1 gives A a value that does not end where its quotes do"),
        ('A="hunter2" # why', "line 1 gives A a value that does not end where its quotes do"),
        ("A=hunter2\\", "line 1 gives A a value that has a backslash outside of quotes"),
        ("A=hunter2\0", "line 1 gives A a value that must not hold a NUL character"),
        ("A=hunter2\nA=hunter2", "line 2 sets A again"),
        ("A=" + 32769 * "x", "line 1 gives A a value that must be at most 32768 bytes"),
        ("".join(f"A{i}=hunter2\n" for i in range(129)), "sets more than 128 variables"),
    ],
)
def test_what_would_be_read_in_two_ways_is_refused(content: str, fault: str) -> None:
    with pytest.raises(BadValue) as refused:
        parse(content)
    assert fault in refused.value.fault
    assert refused.value.remedy
    assert "hunter2" not in refused.value.fault + refused.value.remedy


def test_values_are_hidden() -> None:
    assert "hunter2" not in repr(parse("A=hunter2"))
