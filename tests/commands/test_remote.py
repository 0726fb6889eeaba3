"""The commands for the running daemon, at a real control socket."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from smartlinkd.admin.control_socket import Arguments, Command, ControlSocket, Response, plain
from smartlinkd.admin.reports import CreateKeyArguments, RevokeKeyArguments, RevokeTokensArguments
from smartlinkd.auth.keys import SCOPES
from smartlinkd.auth.passwords import hash_password
from smartlinkd.cli import main
from smartlinkd.commands.table import table
from smartlinkd.errors import Invalid, NotFound


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(
        f'[auth]\npassword_hash = "{hash_password("correct horse")}"\n'
        f'[state]\ndirectory = "{tmp_path}"\n'
    )
    path.chmod(0o600)
    return path


async def ask(config: Path, *words: str) -> int:
    """Run a command of the shell's while the daemon runs here."""
    return await trio.to_thread.run_sync(partial(main, [*words, "--config", str(config)]))


class CrewToken(Arguments):
    name: str
    user: str | None
    rotate: bool


@pytest.fixture
async def asked(nursery: trio.Nursery, tmp_path: Path) -> list[str]:
    """The commands that a daemon was asked for."""
    found: list[str] = []

    def answering(name: str) -> Callable[[], Awaitable[Response]]:
        async def answer() -> Response:
            found.append(name)
            if name == "2fa off":
                raise Invalid("the second factor is off already")
            return {"name": name}

        return answer

    async def token(wanted: CrewToken) -> Response:
        if wanted.name == "nobody":
            raise NotFound("there is no crew of that name; choose from: post")
        found.append(f"{wanted.name} {wanted.user} {wanted.rotate}")
        return {"crew": wanted.name, "token": "slc_xyz"}

    async def create_key(wanted: CreateKeyArguments) -> Response:
        found.append(f"{wanted.name} {wanted.scopes} {wanted.expires_in_days}")
        return {"key": "slk_xyz", "id": "1"}

    async def revoke_key(wanted: RevokeKeyArguments) -> Response:
        found.append(f"keys revoke {wanted.id}")
        return {"name": "keys revoke"}

    async def revoke(wanted: RevokeTokensArguments) -> Response:
        found.append(f"tokens revoke {wanted.keys}")
        return {"name": "tokens revoke"}

    names = ("status", "account show", "account clear", "2fa off", "crew list", "keys list")
    commands: dict[str, Command[Any]] = {name: plain(answering(name)) for name in names}
    commands |= {
        "crew token": Command(token, CrewToken),
        "keys create": Command(create_key, CreateKeyArguments),
        "keys revoke": Command(revoke_key, RevokeKeyArguments),
        "tokens revoke": Command(revoke, RevokeTokensArguments),
    }
    await nursery.start(ControlSocket(tmp_path, commands).run)
    return found


async def test_each_command_is_sent_by_its_name(
    config: Path, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (
        ["status"],
        ["account", "show"],
        ["account", "clear"],
        ["crew", "list"],
        ["keys", "list"],
        ["tokens", "revoke"],
        ["tokens", "revoke", "--keys"],
        ["keys", "revoke", "8f1c"],
    ):
        assert await ask(config, *words) == 0
        assert capsys.readouterr().out == f"name  {' '.join(words[:2])}\n"
    assert asked == [
        *("status", "account show", "account clear", "crew list", "keys list"),
        *("tokens revoke False", "tokens revoke True", "keys revoke 8f1c"),
    ]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--scope", "convert"], "a bot ['convert'] None"),
        (
            ["--scope", "status", "--scope", "crews", "--expires-in-days", "30"],
            "a bot ['status', 'crews'] 30",
        ),
    ],
)
async def test_keys_create_prints_the_key_alone(
    config: Path,
    asked: list[str],
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    wanted: str,
) -> None:
    assert await ask(config, "keys", "create", "a bot", *options) == 0
    assert capsys.readouterr().out == "slk_xyz\n"
    assert asked == [wanted]


async def test_keys_create_with_unknown_scope_names_those_there_are(
    config: Path, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert await ask(config, "keys", "create", "a bot", "--scope", "all") == 1
    said = capsys.readouterr().err
    assert said.startswith("smartlinkd: scopes.0: must be 'convert', 'cookie:write'")
    assert asked == []


def test_help_of_keys_create_names_every_scope(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["keys", "create", "--help"])
    said = capsys.readouterr().out
    assert [scope for scope in SCOPES if scope not in said] == []


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ([], "post None False"),
        (["--user", "ann"], "post ann False"),
        (["--rotate"], "post None True"),
        (["--user", ""], "post  False"),
        (["--rotate", "--user", "ann"], "post ann True"),
    ],
)
async def test_crew_token_prints_the_token_only(
    config: Path,
    asked: list[str],
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    wanted: str,
) -> None:
    assert await ask(config, "crew", "token", "post", *options) == 0
    assert capsys.readouterr() == ("slc_xyz\n", "")
    assert asked == [wanted]


async def test_crew_token_as_json_prints_the_whole_answer(
    config: Path, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert await ask(config, "crew", "token", "post", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True, "crew": "post", "token": "slc_xyz"}


async def test_crew_token_of_an_unknown_crew_exits_with_1(
    config: Path, asked: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert await ask(config, "crew", "token", "nobody") == 1
    told = "smartlinkd: there is no crew of that name; choose from: post\n"
    assert capsys.readouterr() == ("", told)


async def test_refusal_exits_with_1(
    config: Path, asked: list[str], capsys: pytest.CaptureFixture[str]
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

    async def token(_: CrewToken) -> Response:
        return {"token": "slc\x1b]0;i\x07\nj"}

    commands = {"status": plain(answer), "2fa off": plain(refuse)}
    control = ControlSocket(tmp_path, {**commands, "crew token": Command(token, CrewToken)})
    await nursery.start(control.run)

    assert await ask(config, "status") == 0
    assert capsys.readouterr().out == "a [2J b  c [2J d\nrows\n  e\n  f  g\n"
    assert await ask(config, "2fa", "off") == 1
    assert capsys.readouterr().err == "smartlinkd: h\\x1b[2J\\nsmartlinkd: all is well\\ud800\n"
    assert await ask(config, "crew", "token", "post") == 0
    assert capsys.readouterr().out == "slc\\x1b]0;i\\x07\\nj\n"
    assert await ask(config, "status", "--json") == 0
    assert all(each.isprintable() for each in capsys.readouterr().out.splitlines())


async def test_command_without_a_daemon_exits_with_1(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await ask(config, "status") == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert str(tmp_path / "control.sock") in err
    assert len(err.splitlines()) == 1


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
