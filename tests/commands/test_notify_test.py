"""`smartlinkd notify-test`."""

from __future__ import annotations

from pathlib import Path

import pytest

from smartlinkd.cli import main
from smartlinkd.commands.codes import FAILED, GOOD, UNUSABLE
from tests.config_file import HASH, WITHOUT_BROWSER, Table, write_config


def configuration(folder: Path, **notify: object) -> Path:
    config = folder / "config.toml"
    channels: Table = notify
    write_config(config, {"auth": {"password_hash": HASH}, "notify": channels, **WITHOUT_BROWSER})
    return config


def test_each_channel_says_whether_it_took_the_notice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(tmp_path, command=["/bin/true"])
    assert main(["notify-test", "--config", str(config)]) == GOOD
    assert capsys.readouterr().out == "notify.command: sent\n"
    config = configuration(tmp_path, command=["/bin/false"], url="http://127.0.0.1:1/")
    assert main(["notify-test", "--config", str(config)]) == FAILED
    url, command = capsys.readouterr().out.splitlines()
    assert url.startswith("notify.url: not sent: ")
    assert command.startswith("notify.command: not sent: exit code 1")


def test_encrypted_channel_is_not_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encrypted = tmp_path / "credentials.encrypted"
    encrypted.mkdir(0o700)
    for name in ("url", "apprise"):
        (encrypted / f"notify.{name}").write_bytes(b"\0")
    assert main(["notify-test", "--config", str(configuration(tmp_path))]) == FAILED
    assert capsys.readouterr().out == "".join(
        f"{name}: not tried: it is encrypted, and only the service can read it\n"
        for name in ("notify.url", "notify.apprise")
    )


def test_configuration_without_a_channel_is_no_test(tmp_path: Path) -> None:
    assert main(["notify-test", "--config", str(configuration(tmp_path))]) == UNUSABLE
