"""`smartlinkd hash-password`: a password in, its hash out, and nothing else on standard output.

So `smartlinkd hash-password > /etc/smartlinkd/password` makes the file that
`auth.password_hash_file` names. A password is never taken from the command line, which every user
of the machine can read.
"""

from __future__ import annotations

import getpass
import sys

from smartlinkd.auth.passwords import MAX_PASSWORD, hash_password
from smartlinkd.commands.codes import FAILED, GOOD

SHORTEST = 8  # characters; NIST SP 800-63B, section 5.1.1.2. The throttle does the rest
NO_TEXT = "the password is not UTF-8 text"  # which is what clients send, so it would let nobody in


def main() -> int:
    """Ask for the password, or read it from a pipe; print its hash. `FAILED` if it is refused."""
    password = ask_password() if sys.stdin.isatty() else _piped()
    if password is None:
        return FAILED
    if why := fault_of(password):
        return _refuse(why)
    print(hash_password(password))
    return GOOD


def ask_password() -> str | None:
    """The password that is typed twice at the terminal; None, and why, when there is none."""
    try:
        password = getpass.getpass("Password: ")
        again = getpass.getpass("Again: ")
    except EOFError:
        _refuse("no password was given")
        return None
    except UnicodeDecodeError:
        _refuse(NO_TEXT)
        return None
    if password != again:
        _refuse("the two passwords differ")
        return None
    return password


def fault_of(password: str) -> str:
    """Why it cannot be one; nothing when it can."""
    if not password:
        return "the password is empty"
    if len(password) < SHORTEST:
        return f"the password is shorter than {SHORTEST} characters"
    if len(password) > MAX_PASSWORD:
        return f"the password is longer than {MAX_PASSWORD} characters"
    try:
        password.encode()
    except UnicodeEncodeError:  # in the locale "C" Python reads any byte, as half a character
        return NO_TEXT
    return ""


def _piped() -> str | None:
    """The only line of standard input. A longer text is a wrong file, and is not read whole."""
    try:
        given = sys.stdin.read(MAX_PASSWORD + 3)
    except UnicodeDecodeError:
        _refuse(NO_TEXT)
        return None
    given = given.removesuffix("\n").removesuffix("\r")
    if "\n" in given or "\r" in given:
        _refuse("standard input holds more than one line; give the password alone")
        return None
    return given


def _refuse(why: str) -> int:
    print(f"smartlinkd: {why}", file=sys.stderr)
    return FAILED
