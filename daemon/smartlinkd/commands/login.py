"""`smartlinkd login` and `logout`: make an API key for this user, keep it, end it."""

from __future__ import annotations

import argparse
import getpass
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from pydantic import SecretStr

from smartlinkd.auth.keys import MAX_NAME
from smartlinkd.client import ApiFailure, ClientError, Smartlinkd
from smartlinkd.commands.codes import FAILED, GOOD, say
from smartlinkd.commands.server import (
    KeptLogin,
    find_server,
    keep_login,
    load_login,
    login_path,
)
from smartlinkd.state_files import NotSaved

DEFAULT_SCOPES = ("convert", "history", "status")


def log_in(chosen: argparse.Namespace) -> int:
    """Ask for password and code, make a key with the wanted scopes, and keep it."""
    scopes: Sequence[str] = chosen.scopes or DEFAULT_SCOPES
    server = find_server(chosen)
    if server is None:
        raise ClientError("no daemon is named; give --server URL, such as http://127.0.0.1:8787")
    old = load_login()
    with server.open_without_key() as daemon, open_session(daemon) as is_code_needed:
        # A code is taken once, so that a key needs the next one.
        code = ask_code("Another code, for the key: ") if is_code_needed else None
        name = f"{getpass.getuser()}@{socket.gethostname()}"[:MAX_NAME]
        made = daemon.create_key(name, scopes, expires_in_days=chosen.expires_in_days, code=code)
    login = KeptLogin(
        url=server.url,
        key=SecretStr(made.key),
        key_name=made.name,
        allow_http=server.allow_http,
    )
    try:
        path = keep_login(login)
    except (NotSaved, OSError) as error:
        _end_key(login)
        raise ClientError(f"the key could not be kept: {error}") from None
    if old is not None:
        _end_key(old)
    say(f"logged in at {login.url}; the key {made.name!r} ({', '.join(scopes)}) is kept in {path}")
    return GOOD


def log_out(_: argparse.Namespace) -> int:
    """End the kept key at its daemon, and forget it."""
    login = load_login()
    if login is None:
        say("nobody is logged in here")
        return FAILED
    ended = _end_key(login)
    try:
        login_path().unlink()
    except OSError as error:
        why = f"{login_path()} cannot be removed ({error.strerror}); remove it yourself"
        raise ClientError(why) from None
    say(f"logged out of {login.url}")
    return GOOD if ended else FAILED


@contextmanager
def open_session(daemon: Smartlinkd) -> Iterator[bool]:
    """Log in with a password from the user, and log out at the end.

    Yields True if the daemon wanted a code as well. A logout that fails, or that Ctrl-C ends, is
    ignored: the result of the session matters more, and the session ends by itself.
    """
    is_code_needed = False

    def code() -> SecretStr:
        nonlocal is_code_needed
        is_code_needed = True
        return ask_code("Code: ")

    daemon.log_in(_ask(f"Password of {daemon.url}: ", "the password"), code)
    try:
        yield is_code_needed
    finally:
        with suppress(ClientError, KeyboardInterrupt):
            daemon.log_out()


def ask_code(prompt: str) -> SecretStr:
    """Ask for a one-time code. Raises `ClientError` if none is given."""
    return _ask(prompt, "the code")


def _ask(prompt: str, what: str) -> SecretStr:
    """Ask at the terminal without an echo; read a line if standard input is a pipe."""
    try:
        if sys.stdin.isatty():
            return SecretStr(getpass.getpass(prompt))
        line = sys.stdin.readline()
    except (EOFError, UnicodeDecodeError):
        line = ""
    if not line.strip():
        raise ClientError(f"{what} was not given; type it at the prompt, or pipe it in as a line")
    return SecretStr(line.rstrip("\r\n"))


def _end_key(login: KeptLogin) -> bool:
    """End a kept key at its daemon. Print why and return False if that failed."""
    try:
        with Smartlinkd(login.url, login.key, allow_http=login.allow_http) as daemon:
            daemon.end_own_key()
    except ApiFailure as failure:
        if failure.status == 403:  # it has ended already
            return True
        why: ClientError = failure
    except ClientError as failure:
        why = failure
    else:
        return True
    say(
        f"the key {login.key_name!r} at {login.url} goes on ({why}); end it on its page under "
        "Security, or with `smartlinkd keys revoke`"
    )
    return False
