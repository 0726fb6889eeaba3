"""The commands for the running daemon, with a real control socket."""

from __future__ import annotations

import json
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from smartlinkd.admin.control_socket import Arguments, Command, ControlSocket, Response
from smartlinkd.admin.reports import (
    CreateKeyArguments,
    CrewTokenArguments,
    RevokeKeyArguments,
    RevokeTokensArguments,
)
from smartlinkd.auth.keys import SCOPES
from smartlinkd.cli import main
from smartlinkd.commands.table import table
from smartlinkd.errors import Invalid


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(f'[state]\ndirectory = "{tmp_path}"\n')
    return path


async def ask(config: Path, *words: str) -> int:
    """Run a command of the shell while the daemon runs in this process."""
    return await trio.to_thread.run_sync(partial(main, [*words, "--config", str(config)]))


ANSWERS: dict[str, Response] = {
    "crew token": {"crew": "post", "token": "slc_xyz"},
    "keys create": {"key": "slk_xyz", "id": "1"},
}


@pytest.fixture
async def received(nursery: trio.Nursery, tmp_path: Path) -> list[str]:
    """The commands that the daemon has received, with their arguments."""
    found: list[str] = []

    def command(name: str, takes: type[Arguments] = Arguments) -> Command:
        async def do(**wanted: Any) -> Response:
            if name == "2fa off":
                raise Invalid("the second factor is off already")
            found.append(" ".join([name, *map(str, wanted.values())]))
            return ANSWERS.get(name, {"name": name})

        return Command(do, takes)

    names = ("status", "account show", "account clear", "2fa off", "crew list", "keys list")
    commands = {name: command(name) for name in names} | {
        "crew token": command("crew token", CrewTokenArguments),
        "keys create": command("keys create", CreateKeyArguments),
        "keys revoke": command("keys revoke", RevokeKeyArguments),
        "tokens revoke": command("tokens revoke", RevokeTokensArguments),
    }
    await nursery.start(ControlSocket(tmp_path, commands).run)
    return found


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("status", ("status", "name  status")),
        ("account show", ("account show", "name  account show")),
        ("account clear", ("account clear", "name  account clear")),
        ("crew list", ("crew list", "name  crew list")),
        ("keys list", ("keys list", "name  keys list")),
        ("keys revoke 8f1c", ("keys revoke 8f1c", "name  keys revoke")),
        ("tokens revoke", ("tokens revoke False", "name  tokens revoke")),
        ("tokens revoke --keys", ("tokens revoke True", "name  tokens revoke")),
        ("keys create 'a bot' --scope convert", ("keys create a bot ['convert'] None", "slk_xyz")),
        (
            "keys create 'a bot' --scope status --scope crews --expires-in-days 30",
            ("keys create a bot ['status', 'crews'] 30", "slk_xyz"),
        ),
        ("crew token post", ("crew token post None False", "slc_xyz")),
        ("crew token post --user ann", ("crew token post ann False", "slc_xyz")),
        ("crew token post --user ''", ("crew token post  False", "slc_xyz")),
        ("crew token post --rotate", ("crew token post None True", "slc_xyz")),
        ("crew token post --rotate --user ann", ("crew token post ann True", "slc_xyz")),
    ],
)
async def test_command_is_sent_with_its_options_and_its_answer_is_printed(
    config: Path,
    received: list[str],
    capsys: pytest.CaptureFixture[str],
    words: str,
    expected: tuple[str, str],
) -> None:
    wanted, printed = expected
    assert await ask(config, *shlex.split(words)) == 0
    assert capsys.readouterr() == (f"{printed}\n", "")
    assert received == [wanted]


async def test_keys_create_with_unknown_scope_names_those_there_are(
    config: Path, received: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert await ask(config, "keys", "create", "a bot", "--scope", "all") == 1
    said = capsys.readouterr().err
    assert said.startswith("smartlinkd: scopes.0: must be 'convert', 'cookie:write'")
    assert received == []


def test_help_of_keys_create_names_every_scope(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["keys", "create", "--help"])
    said = capsys.readouterr().out
    assert [scope for scope in SCOPES if scope not in said] == []


async def test_crew_token_as_json_prints_the_whole_answer(
    config: Path, received: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert await ask(config, "crew", "token", "post", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True, "crew": "post", "token": "slc_xyz"}


async def test_refusal_exits_with_1(
    config: Path, received: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert await ask(config, "2fa", "off") == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "smartlinkd: the second factor is off already\n")
    assert await ask(config, "2fa", "off", "--json") == 1
    out, err = capsys.readouterr()
    refusal = {"ok": False, "error": "the second factor is off already"}
    assert (json.loads(out), err) == (refusal, "")


async def test_control_characters_of_an_answer_are_not_printed(
    config: Path,
    tmp_path: Path,
    nursery: trio.Nursery,
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def answer() -> Response:
        return {"a\x1b[2J\nb": "c\x1b[2J\nd", "rows": [{"e\r": {"f\n": "g\x9b"}}]}

    async def refuse() -> Response:
        raise Invalid("h\x1b[2J\nsmartlinkd: all is well\ud800")

    async def token(**_: Any) -> Response:
        return {"token": "slc\x1b]0;i\x07\nj"}

    control = ControlSocket(
        tmp_path,
        {
            "status": Command(answer),
            "2fa off": Command(refuse),
            "crew token": Command(token, CrewTokenArguments),
        },
    )
    await nursery.start(control.run)

    assert await ask(config, "status") == 0
    assert capsys.readouterr().out == "a [2J b  c [2J d\nrows\n  e\n  f  g\n"
    assert await ask(config, "2fa", "off") == 1
    assert capsys.readouterr().err == "smartlinkd: h\\x1b[2J\\nsmartlinkd: all is well\\ud800\n"
    assert await ask(config, "crew", "token", "post") == 0
    assert capsys.readouterr().out == "slc\\x1b]0;i\\x07\\nj\n"
    assert await ask(config, "status", "--json") == 0
    assert all(each.isprintable() for each in capsys.readouterr().out.splitlines())


def test_answer_is_printed_as_a_table() -> None:
    answer = {
        "ready": True,
        "queue": 0,
        "load": 0.25,
        "account": None,
        "hosts": ["a", "b"],
        "browser": {"state": "ready", "retry": None},
        "actors": [
            {"name": "vault", "error": ""},
            {"name": "conversion", "error": "gone\nwrong", "since": {"day": 3}},
        ],
        "empty": {},
    }
    assert table(answer).splitlines() == [
        "ready    yes",
        "queue    0",
        "load     0.2",
        "account  -",
        "hosts    a, b",
        "browser",
        "  state  ready",
        "  retry  -",
        "actors",
        "  name        error       since",
        "  vault       -           -",
        "  conversion  gone wrong  day 3",
        "empty    -",
    ]


def test_long_cell_before_another_is_cut() -> None:
    rows = [{"name": "x" * 60, "error": "y" * 61}, {"name": "x" * 61, "error": "no"}]
    assert table({"last": "z" * 61, "actors": rows}).splitlines() == [
        f"last    {'z' * 61}",
        "actors",
        f"  name{' ' * 56}  error",
        f"  {'x' * 60}  {'y' * 61}",
        f"  {'x' * 59}…  no",
    ]


def test_empty_answer_is_a_dash() -> None:
    assert table({}) == "-"
