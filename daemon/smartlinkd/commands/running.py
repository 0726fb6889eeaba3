"""Commands that a running daemon carries out: `status`, and those of accounts, crews, keys, tokens.

With `--config`, or if no server is named (`find_server`), they go over the unix socket in the state
directory. Only the daemon's own user and root can open it, so there is no password. Else they go
over the HTTP API, and standard error says so. Keys and crews' tokens need the password there.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import trio
from pydantic import JsonValue

from smartlinkd.admin.control_socket import NotRunning, call
from smartlinkd.client import ClientError, Smartlinkd
from smartlinkd.commands.codes import FAILED, GOOD, say
from smartlinkd.commands.login import ask_code, open_session
from smartlinkd.commands.server import Server, find_server
from smartlinkd.commands.table import table
from smartlinkd.config import state_directory
from smartlinkd.untrusted import escape_unprintable

Answer = Mapping[str, JsonValue]

_WITH_KEY: Final = ("status", "account show", "account clear", "crew list")
_WITH_SESSION: Final = ("crew token", "keys list", "keys create", "keys revoke")


def main(
    chosen: argparse.Namespace, *, command: str, arguments: Sequence[str], only: str | None
) -> int:
    """Have a daemon carry out a command, and print its answer. Return the exit code.

    Args:
        arguments: the options that are sent with it.
        only: print the value of this key only; None for all.

    Raises:
        ClientError: the daemon refused, or cannot be reached, over HTTP; or as `find_server`.
        ConfigError: the configuration, which names the state directory, is wrong.
        Invalid: the arguments are too long for the socket.
    """
    # A configuration that was named is of a daemon on this machine.
    server = None if chosen.config is not None else find_server(chosen)
    if server is not None:
        say(f"at {server.url} ({server.source})")
        _print(_call_api(server, command, chosen), only=only, as_json=chosen.json)
        return GOOD
    given: dict[str, JsonValue] = {name: getattr(chosen, name) for name in arguments}
    directory = state_directory(chosen.config or chosen.default_config, os.environ)
    try:
        answer = trio.run(partial(call, directory, command, given))
    except NotRunning as why:
        say(why)
        return FAILED
    if not answer["ok"] and not chosen.json:
        say(escape_unprintable(answer["error"]))
    else:
        _print(answer, only=only, as_json=chosen.json)
    return GOOD if answer["ok"] else FAILED


def _print(answer: Answer, *, only: str | None, as_json: bool) -> None:
    if as_json:
        print(json.dumps(answer, indent=2))
    elif only is not None:
        print(escape_unprintable(str(answer[only])))
    else:
        print(table({key: value for key, value in answer.items() if key != "ok"}))


def _call_api(server: Server, command: str, chosen: argparse.Namespace) -> Answer:
    """Return the answer of the HTTP API. Raises `ClientError`."""
    if command in _WITH_KEY:
        with server.open() as daemon:
            return _ask_with_key(daemon, command)
    if command in _WITH_SESSION:
        with server.open_without_key() as daemon, open_session(daemon) as is_code_needed:
            return _ask_in_session(daemon, command, chosen, is_code_needed=is_code_needed)
    raise ClientError(
        f"`{command}` works on the daemon's machine alone; run it there as root, with --config"
    )


def _ask_with_key(daemon: Smartlinkd, command: str) -> Answer:
    match command:
        case "status":
            return daemon.status().model_dump(mode="json")
        case "account show":
            return daemon.account().model_dump(mode="json")
        case "account clear":
            return {"ok": True, "cleared": daemon.clear_account()}
        case _:
            return {"ok": True, "crews": [crew.model_dump(mode="json") for crew in daemon.crews()]}


def _ask_in_session(
    daemon: Smartlinkd, command: str, chosen: argparse.Namespace, *, is_code_needed: bool
) -> Answer:
    match command:
        case "crew token":
            token = daemon.crew_token(chosen.name, user=chosen.user, rotate=chosen.rotate)
            return {"ok": True, "token": token}
        case "keys list":
            return {"ok": True, "keys": [key.model_dump(mode="json") for key in daemon.list_keys()]}
        case "keys create":
            made = daemon.create_key(
                chosen.name,
                chosen.scopes,
                expires_in_days=chosen.expires_in_days,
                code=ask_code("Another code, for the key: ") if is_code_needed else None,
            )
            return made.model_dump(mode="json")
        case _:
            daemon.revoke_key(chosen.id)
            return {"ok": True}
