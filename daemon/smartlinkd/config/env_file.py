"""The files of environment variables that `environment_file` names: pure rules.

The problem: the same file often serves a systemd unit, a shell and us, and the three read quotes
and backslashes differently. The choice: what is taken here means the same to systemd
(systemd.exec(5), EnvironmentFile); what would need its finer rules (values over several lines,
escapes outside of double quotes), or is read otherwise by another release of it, is refused, with
the number of its line.

A message never holds anything of the file but a variable's name.
"""

from __future__ import annotations

import re

from pydantic import SecretStr

from smartlinkd.config.crew_values import MOST_VARIABLES, variable, variable_value
from smartlinkd.validation import BadValue

_END_OF_LINE = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t"  # not those of other alphabets, which systemd takes for a part of the value
_IN_SINGLE = re.compile(r"'([^']*)'")
_IN_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r'\\(["\\`$])')


def parse(content: str) -> dict[str, SecretStr]:
    """The variables of a file's `NAME=VALUE` lines. Raises `BadValue`, which names the line.

    Empty lines and those that begin with # or ; are passed over.
    """
    found: dict[str, SecretStr] = {}
    for number, line in enumerate(_END_OF_LINE.split(content), 1):
        stripped = line.strip(_BLANKS)
        if not stripped:
            continue
        if stripped[0] in "#;":
            if line.endswith("\\"):  # up to systemd 253 the next line is one of it
                fault = f"line {number} is a comment that ends in a backslash"
                raise BadValue(fault, "take the backslash away")
            continue
        try:
            name, value = _assignment(stripped)
        except BadValue as fault:
            raise BadValue(f"line {number} {fault.fault}", fault.remedy) from None
        if name in found:
            raise BadValue(f"line {number} sets {name} again", "keep one of the two lines")
        found[name] = value
    if len(found) > MOST_VARIABLES:
        raise BadValue(f"sets more than {MOST_VARIABLES} variables", "is it the right file?")
    return found


def _assignment(line: str) -> tuple[str, SecretStr]:
    left, equals, right = line.partition("=")
    if not equals:
        raise BadValue("is no NAME=VALUE", "write it so, or put a # before it")
    if left.startswith("export "):
        raise BadValue("begins with `export`", "take that word away")
    try:
        name = variable(left.rstrip(_BLANKS))
    except BadValue as fault:
        raise BadValue(f"sets what {fault.fault}", fault.remedy) from None
    try:
        return name, variable_value(_unquoted(right.lstrip(_BLANKS)))
    except BadValue as fault:
        raise BadValue(f"gives {name} a value that {fault.fault}", fault.remedy) from None


def _unquoted(value: str) -> str:
    if value[:1] == "'":
        return _whole(_IN_SINGLE, value)
    if value[:1] == '"':
        return _ESCAPED.sub(r"\1", _whole(_IN_DOUBLE, value))
    if "\\" in value:
        raise BadValue(
            "has a backslash outside of quotes", "put the whole value into single quotes"
        )
    return value


def _whole(quoted: re.Pattern[str], value: str) -> str:
    found = quoted.fullmatch(value)
    if not found:
        raise BadValue("does not end where its quotes do", "close them at the end of the line")
    return found[1]
