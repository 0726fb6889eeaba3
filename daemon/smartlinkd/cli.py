"""The command line: arguments in, a function of `commands/` called, an exit code out.

A command's module is imported when the command is called, so that `hash-password` starts without
the browser and the server. Exit codes (commands/codes.py): 0 done, 1 failed, 2 the usage, the
configuration or the server's address cannot be used, 3 some links failed, 128 + N signal N
(but `serve` ends with 0 at SIGTERM). Expected failures are written to standard error, and by
`serve` to the log.
"""

# ruff: noqa: PLC0415 - see above

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from functools import partial
from io import TextIOWrapper
from pathlib import Path

from smartlinkd import __version__
from smartlinkd.commands.client_options import (
    Command,
    add_client_commands,
    add_command,
    add_crew_actions,
    client_command,
    crew_name,
    discard_output,
    report_unwritable_output,
    server_options,
)
from smartlinkd.commands.codes import FAILED, UNUSABLE, say
from smartlinkd.config import ConfigError, Settings, load
from smartlinkd.errors import Refused
from smartlinkd.net.addresses import HIGHEST_PORT

CONFIG = Path("/etc/smartlinkd/config.toml")
DEMO_PORT = 8787


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that `arguments` (`sys.argv`) name, and return the exit code."""
    _open_what_is_closed()
    if isinstance(sys.stdout, TextIOWrapper):
        # An argument that is not UTF-8 has half characters, which cannot be encoded.
        sys.stdout.reconfigure(errors="replace")
    chosen = _parse(arguments)
    command: Command = chosen.command
    try:
        return _printed(command(chosen))
    except ConfigError as error:
        say(f"{len(error.problems)} problem(s) in the configuration")
        print(error, file=sys.stderr)
        return UNUSABLE
    except Refused as refusal:
        say(refusal)
        return FAILED
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader of our output (a pager, head) has gone.
        discard_output()
        return 128 + signal.SIGPIPE


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options. The parser, half a megabyte, does not outlive this."""
    parser = build_parser()
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser)  # ends the process
    return parser.parse_args(arguments)


def _open_what_is_closed() -> None:
    """Open closed standard streams (`2>&-`) on /dev/null: a file would get their number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # and its number is the lowest that is free
            number = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, mode))


def _printed(code: int) -> int:
    """Flush standard output, and return `code`, or `FAILED` if the output cannot be written."""
    try:
        print(end="", flush=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        return report_unwritable_output(error)
    return code


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="smartlinkd",
        description="Product links in, your own affiliate short links out.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"smartlinkd {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    add = partial(add_command, commands)
    _config_option(add("serve", _serve, "Run the daemon until SIGTERM or Ctrl-C."))

    demo = add("demo", _demo, "Run the daemon against an embedded portal, and show what it does.")
    demo.add_argument("--once", action="store_true", help="stop after the post")
    demo.add_argument("--port", type=_port, default=DEMO_PORT, help="of the daemon (0: any)")

    sandbox = add("sandbox", _sandbox, "Run the portal of the demo alone, and say how to use it.")
    sandbox.add_argument("--host", default="127.0.0.1", help="address to listen on")
    sandbox.add_argument("--port", type=_port, default=0, help="the first of its ports (0: any)")

    add("hash-password", _hash_password, "Read a password, print its hash for the configuration.")
    check = add("check-config", _check_config, "Say whether a configuration is good.")
    check.add_argument("config", type=Path, metavar="FILE")
    doctor = add("doctor", _doctor, "Say whether this machine has what the daemon needs.")
    doctor.add_argument(
        "--config", type=Path, metavar="FILE", help=f"check it as well (default: {CONFIG}, if any)"
    )

    _config_option(
        add("notify-test", _notify_test, "Send a test notice over each channel to the owner.")
    )
    add_client_commands(commands)

    _running(add("status", _ask("status"), "Show what the running daemon is doing."))
    _group(
        commands,
        "account",
        {
            "show": "Show how the accounts stand with the portal.",
            "clear": "End the pause of every account, and learn its affiliate id again from "
            "the next links.",
        },
    )
    tokens = _group(commands, "tokens", {"revoke": "End every session token."})["revoke"]
    tokens.add_argument("--keys", action="store_true", help="end every API key, too")
    tokens.set_defaults(command=_ask("tokens revoke", "keys"))
    _keys(commands)
    _group(commands, "2fa", {"off": "Switch the second factor off (a lost phone)."})
    _crew(commands)
    return parser


def _group(
    commands: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    verbs: dict[str, str],
) -> dict[str, argparse.ArgumentParser]:
    """Add commands of two words that the running daemon carries out. Return parsers by verb."""
    group = commands.add_parser(name, help=f"{' | '.join(verbs)}, at the running daemon")
    return _verbs(group.add_subparsers(metavar="ACTION", required=True), name, verbs)


def _verbs(
    inner: argparse._SubParsersAction[argparse.ArgumentParser], name: str, verbs: dict[str, str]
) -> dict[str, argparse.ArgumentParser]:
    parsers = {}
    for verb, says in verbs.items():
        parsers[verb] = add_command(inner, verb, _ask(f"{name} {verb}"), says)
        _running(parsers[verb])
    return parsers


def _crew(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    group = commands.add_parser("crew", help="list | token | run | follow | stop | executions")
    inner = group.add_subparsers(metavar="ACTION", required=True)
    says = {"list": "Show the crews.", "token": "Print a bearer token of a crew."}
    token = _verbs(inner, "crew", says)["token"]
    crew_name(token)
    token.add_argument("--user", metavar="USER", help="its token, not the organization token")
    token.add_argument("--rotate", action="store_true", help="make a new one; the old one is dead")
    token.set_defaults(command=_ask("crew token", "name", "user", "rotate", only="token"))
    add_crew_actions(inner)


def _keys(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    keys = _group(
        commands,
        "keys",
        {
            "list": "Show the API keys.",
            "create": "Make an API key for a program, and print it. It is shown this once.",
            "revoke": "End an API key.",
        },
    )
    create = keys["create"]
    create.add_argument("name", metavar="NAME", help="what the key is for, up to 60 characters")
    create.add_argument(
        "--scope",
        dest="scopes",
        action="append",
        required=True,
        metavar="SCOPE",
        help="what the key opens; give it once for each: convert, cookie:write, cookie:read, "
        "history, status, account, metrics, crews",
    )
    create.add_argument(
        "--expires-in-days", type=int, metavar="DAYS", help="1 to 3650 (default: it never expires)"
    )
    create.set_defaults(
        command=_ask("keys create", "name", "scopes", "expires_in_days", only="key")
    )
    revoke = keys["revoke"]
    revoke.add_argument("id", metavar="ID", help="of the key, as `keys list` shows it")
    revoke.set_defaults(command=_ask("keys revoke", "id"))


def _running(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(default_config=CONFIG)
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"of a daemon on this machine (default: {CONFIG}, if no server is named)",
    )
    server_options(parser)


def _config_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config", type=Path, default=CONFIG, metavar="FILE", help=f"(default: {CONFIG})"
    )


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text[:6]) <= HIGHEST_PORT):
        raise argparse.ArgumentTypeError(f"a port is a number from 0 to {HIGHEST_PORT}")
    return int(text)


def _settings(path: Path, *, by_hand: bool = False) -> Settings:
    return load(path, os.environ, by_hand=by_hand)


def _serve(chosen: argparse.Namespace) -> int:
    from smartlinkd.commands import serve

    return serve.main(partial(_settings, chosen.config))


def _demo(chosen: argparse.Namespace) -> int:
    from smartlinkd.commands import demo

    return demo.main(once=chosen.once, port=chosen.port)


def _sandbox(chosen: argparse.Namespace) -> int:
    from smartlinkd.sandbox import server

    return server.main(host=chosen.host, port=chosen.port)


def _hash_password(chosen: argparse.Namespace) -> int:  # noqa: ARG001 - it has no options
    from smartlinkd.commands import hash_password

    return hash_password.main()


def _check_config(chosen: argparse.Namespace) -> int:
    from smartlinkd.commands import check_config

    return check_config.main(chosen.config, partial(_settings, chosen.config, by_hand=True))


def _notify_test(chosen: argparse.Namespace) -> int:
    from smartlinkd.commands import notify_test

    return notify_test.main(_settings(chosen.config, by_hand=True))


def _doctor(chosen: argparse.Namespace) -> int:
    path = chosen.config or (CONFIG if os.access(CONFIG, os.R_OK) else None)
    from smartlinkd.commands import doctor

    return doctor.main(partial(_settings, path, by_hand=True) if path else None)


def _ask(command: str, *arguments: str, only: str | None = None) -> Command:
    """Return a command that the running daemon carries out.

    Args:
        arguments: the options that are sent with it.
        only: print this field of the response alone.
    """
    return client_command("running", command=command, arguments=arguments, only=only)
