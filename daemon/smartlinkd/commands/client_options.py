"""The options of the commands that are clients of a daemon's HTTP API.

A command's module is imported when it is called, as in `cli.py`.
"""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from smartlinkd.commands.codes import FAILED, UNUSABLE, say

Command = Callable[[argparse.Namespace], int]
"""A function that carries out a command and returns the exit code."""


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    command: Command,
    says: str,
    example: str | None = None,
) -> argparse.ArgumentParser:
    """Add a command, and return its parser for the options."""
    added = commands.add_parser(
        name,
        help=says,
        description=says,
        epilog=f"Example: {example}" if example is not None else None,
        allow_abbrev=False,
    )
    added.set_defaults(command=command)
    return added


def add_client_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `login`, `logout`, `convert`, `history`, `sync-cookie`, `mcp` and `completion`."""
    add = partial(add_command, commands)
    login = add(
        "login",
        client_command("login", "log_in"),
        "Make an API key for this user, and keep it.",
        "smartlinkd login --server https://links.example.net",
    )
    _login(login)
    add("logout", client_command("login", "log_out"), "End the kept API key, and forget it.")
    convert = add(
        "convert",
        client_command("convert"),
        "Turn product links into your own.",
        "smartlinkd convert --file products.csv --column link --output converted.csv",
    )
    _convert(convert)
    history = add(
        "history",
        client_command("history"),
        "Show what was converted, newest first.",
        'smartlinkd history "ao thun" --from 2026-11-01 --limit 0 --format csv',
    )
    _history(history)
    sync_cookie = add(
        "sync-cookie",
        client_command("sync_cookie"),
        "Store a cookie from standard input.",
        "smartlinkd sync-cookie < cookies.txt",
    )
    _sync_cookie(sync_cookie)
    mcp = add("mcp", client_command("mcp"), "Serve a language model's tools on standard input.")
    server_options(mcp, has_json=False)
    completion = add(
        "completion",
        client_command("completion"),
        "Print code that completes commands in your shell.",
        'eval "$(smartlinkd completion bash)"',
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"))


def add_crew_actions(inner: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `crew run`, `follow`, `stop` and `executions`."""
    for name, help_text in (
        ("run", "Start an execution; print its id, or with --follow or --wait its result."),
        ("follow", "Show what an execution does, and print its result."),
        ("stop", "Stop an execution."),
        ("executions", "Show the executions of a crew, newest first."),
    ):
        added = add_command(inner, name, client_command("crew", name), help_text)
        server_options(added)
        crew_name(added)
        if name == "run":
            added.add_argument(
                "-i",
                dest="inputs",
                action="append",
                default=[],
                metavar="INPUT",
                help="name=text, name:=JSON, or @FILE with a JSON object; once for each",
            )
            waits = added.add_mutually_exclusive_group()
            waits.add_argument("--follow", action="store_true", help="show what happens, and wait")
            waits.add_argument("--wait", action="store_true", help="wait for the result")
        elif name == "executions":
            added.add_argument("--state", choices=("PENDING", "RUNNING", "SUCCESS", "FAILED"))
            added.add_argument("--limit", type=_count, default=20, metavar="N", help="1 to 100")
        else:
            added.add_argument("id", metavar="ID", help="of the execution")


def crew_name(parser: argparse.ArgumentParser) -> None:
    """Add the name of a crew, which a shell can complete."""
    action = parser.add_argument("name", metavar="NAME", help="of the crew")

    def complete(**given: Any) -> list[str]:
        from smartlinkd.commands.completion import crew_names

        return crew_names(**given)

    action.completer = complete  # type: ignore[attr-defined]  # as argcomplete wants it


def server_options(
    parser: argparse.ArgumentParser, *, has_key: bool = True, has_json: bool = True
) -> None:
    """Add the options that name a daemon and a key, and `--json`."""
    parser.add_argument("--server", metavar="URL", help="the daemon's address")
    if has_key:
        parser.add_argument("--key-file", metavar="FILE", help="a file with an API key")
    parser.add_argument(
        "--allow-http", action="store_true", help="send the key in clear to another machine"
    )
    if has_json:
        parser.add_argument("--json", action="store_true", help="print JSON")


def _login(parser: argparse.ArgumentParser) -> None:
    server_options(parser, has_key=False, has_json=False)
    parser.set_defaults(key_file=None)
    parser.add_argument(
        "--scope",
        dest="scopes",
        action="append",
        metavar="SCOPE",
        help="what the key opens; give it once for each (default: convert, history, status)",
    )
    parser.add_argument(
        "--expires-in-days", type=int, metavar="DAYS", help="1 to 3650 (default: it never expires)"
    )


def _convert(parser: argparse.ArgumentParser) -> None:
    server_options(parser)
    parser.add_argument("links", nargs="*", metavar="LINK", help="a product or short link")
    parser.add_argument(
        "--file", metavar="FILE", help="links, one a line, or a CSV file; -: standard input"
    )
    parser.add_argument("--column", metavar="NAME", help="the column of a CSV file with the links")
    parser.add_argument(
        "--text", action="store_true", help="replace the links in a text, and print the text"
    )
    parser.add_argument(
        "--sub-id",
        dest="sub_ids",
        action="append",
        default=[],
        metavar="ID",
        help="a tracking sub-id, up to five times",
    )
    parser.add_argument(
        "--format",
        choices=("table", "csv", "json", "text"),
        help="of the output (default: table on a terminal, csv for a CSV file, else text: the "
        "short links alone)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="write there when all is done, not to the screen",
    )
    parser.add_argument(
        "--skip", type=_count, default=0, metavar="N", help="leave out the first N links"
    )


def _history(parser: argparse.ArgumentParser) -> None:
    server_options(parser)
    parser.add_argument("q", nargs="?", metavar="WORDS", help="of the product, links or sub-ids")
    parser.add_argument("--sub-id", metavar="ID", help="one of the sub-ids, as a whole")
    parser.add_argument("--from", dest="since", metavar="TIME", help="a date or an ISO 8601 time")
    parser.add_argument("--to", dest="until", metavar="TIME", help="a date, that day included")
    parser.add_argument(
        "--limit", type=_count, default=50, metavar="N", help="at most (default: 50; 0: all)"
    )
    parser.add_argument(
        "--format",
        choices=("table", "csv", "json"),
        help="of the output (default: table on a terminal, else csv)",
    )


def _sync_cookie(parser: argparse.ArgumentParser) -> None:
    server_options(parser)
    parser.add_argument("--account-name", metavar="NAME", help="shown for the account")
    parser.add_argument(
        "--replace-account", action="store_true", help="store it also if it is another account's"
    )


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise argparse.ArgumentTypeError("a number from 0 to 999999999 is needed")
    return int(text)


def client_command(module: str, function: str = "main", **options: Any) -> Command:
    """Return a command that is a client of a running daemon. The function gets `options`, too."""

    def call(chosen: argparse.Namespace) -> int:
        from smartlinkd.client import ApiFailure, ClientError

        command = getattr(import_module(f"smartlinkd.commands.{module}"), function)
        try:
            code: int = command(chosen, **options)
        except ClientError as error:
            say(error)
            return FAILED if isinstance(error, ApiFailure) else UNUSABLE
        except BrokenPipeError:
            raise
        except OSError as error:
            # Of standard output: an error of any other file is a `ClientError`.
            return report_unwritable_output(error)
        return code

    return call


def report_unwritable_output(error: OSError) -> int:
    """Print why standard output cannot be written, and return the exit code."""
    say(f"the output cannot be written: {error.strerror}")
    discard_output()
    return FAILED


def discard_output() -> None:
    """Redirect standard output to /dev/null: Python would flush it again at exit, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
