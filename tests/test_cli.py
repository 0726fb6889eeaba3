"""The command line: the function that each command calls, and the exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

import smartlinkd
from smartlinkd.cli import main
from smartlinkd.commands import demo
from smartlinkd.sandbox import server


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"smartlinkd {smartlinkd.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["srve"],
        ["account"],
        ["account", "shw"],
        ["crew", "token"],
        ["check-config"],
        ["demo", "--port", "65536"],
        ["sandbox", "--port", "-1"],
        ["hash-password", "a password"],
        ["logout", "--server", "https://links.example.net"],
        ["login", "--key-file", "key"],
        ["mcp", "--json"],
    ],
)
def test_wrong_usage_is_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: smartlinkd" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["status"], ["account", "show"], ["2fa", "off"]])
def test_client_commands_need_the_state_directory_alone(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commands do not read the daemon's secrets, and the file may be invalid elsewhere."""
    path = tmp_path / "config.toml"
    path.write_text('[server]\nbind = "8787"\n[state]\ndirectory = "state"\n')
    assert main([*words, "--config", str(path)]) == 2
    _, err = capsys.readouterr()
    assert [line.partition(":")[0] for line in err.splitlines()] == [
        "smartlinkd",
        "state.directory",
    ]
    path.write_text(f'[server]\nbind = "8787"\n[state]\ndirectory = "{tmp_path}"\n')
    assert main([*words, "--config", str(path)]) == 1
    assert f"no daemon answers on {tmp_path}/control.sock" in capsys.readouterr().err


def test_demo_and_sandbox_get_their_options(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, object]] = []

    def remember(**options: object) -> int:
        calls.append(options)
        return 7

    monkeypatch.setattr(demo, "main", remember)
    monkeypatch.setattr(server, "main", remember)
    assert main(["demo"]) == 7
    assert main(["demo", "--once", "--port", "0"]) == 7
    assert main(["sandbox"]) == 7
    assert main(["sandbox", "--host", "::1", "--port", "9001"]) == 7
    assert calls == [
        {"once": False, "port": 8787},
        {"once": True, "port": 0},
        {"host": "127.0.0.1", "port": 0},
        {"host": "::1", "port": 9001},
    ]


def test_an_interrupted_command_ends_as_shells_expect(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(**_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "main", interrupted)
    assert main(["demo"]) == 130
