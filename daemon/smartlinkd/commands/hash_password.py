"""`smartlinkd hash-password`: read a password, and print nothing but its hash.

So `smartlinkd hash-password > /etc/smartlinkd/password` makes the file for
`auth.password_hash_file`. A password is never an argument: every user of the machine could read it.
"""

from __future__ import annotations

import getpass
import sys

from smartlinkd.auth.passwords import MAX_PASSWORD, hash_password
from smartlinkd.commands.codes import FAILED, GOOD, say

MIN_LENGTH = 8  # characters; NIST SP 800-63B, section 5.1.1.2
NOT_UTF8 = "the password is not UTF-8 text"  # clients send UTF-8, so nobody could log in


def main() -> int:
    """Ask for a password, or read it from a pipe, and print its hash. Return the exit code."""
    password = ask_password() if sys.stdin.isatty() else _piped()
    if password is None:
        return FAILED
    if why := fault_of(password):
        return _refuse(why)
    print(hash_password(password))
    return GOOD


def ask_password() -> str | None:
    """Ask for a password twice at the terminal. Print why and return None if it is invalid."""
    try:
        password = getpass.getpass("Password: ")
        again = getpass.getpass("Again: ")
    except EOFError:
        _refuse("no password was given")
        return None
    except UnicodeDecodeError:
        _refuse(NOT_UTF8)
        return None
    if password != again:
        _refuse("the two passwords differ")
        return None
    return password


def fault_of(password: str) -> str:
    """Return why a password is refused; "" if it is accepted."""
    if not password:
        return "the password is empty"
    if len(password) < MIN_LENGTH:
        return f"the password is shorter than {MIN_LENGTH} characters"
    if len(password) > MAX_PASSWORD:
        return f"the password is longer than {MAX_PASSWORD} characters"
    try:
        password.encode()
    except UnicodeEncodeError:  # in the locale "C" Python reads other bytes as surrogates
        return NOT_UTF8
    return ""


def _piped() -> str | None:
    """Return the only line of standard input. Print why and return None if it is invalid."""
    try:
        given = sys.stdin.read(MAX_PASSWORD + 3)  # a wrong file may be large
    except UnicodeDecodeError:
        _refuse(NOT_UTF8)
        return None
    given = given.removesuffix("\n").removesuffix("\r")
    if "\n" in given or "\r" in given:
        _refuse("standard input holds more than one line; give the password alone")
        return None
    return given


def _refuse(why: str) -> int:
    say(why)
    return FAILED
