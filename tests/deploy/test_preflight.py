"""The checks that run on any Python, with its own library only."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from smartlinkd.deploy import preflight

SCRIPT = Path(preflight.__file__)

Try = Callable[..., tuple[int, str]]


@pytest.fixture
def tried(tmp_path: Path) -> Try:
    """Run it; exit code and what it says. `said` is what systemctl does, none when empty."""

    def run(
        *arguments: str, said: str = "echo 'systemd 252 (252.39-1~deb12u1)'"
    ) -> tuple[int, str]:
        if said:
            (tmp_path / "systemctl").write_text(f"#!/bin/sh\n{said}\n")
            (tmp_path / "systemctl").chmod(0o755)
        ended = subprocess.run(
            # Without site-packages: it has no environment yet.
            [sys.executable, "-I", "-S", str(SCRIPT), *arguments],
            env={"PATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
        return ended.returncode, ended.stdout + ended.stderr

    return run


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--bind", "127.0.0.1:8787"],
        ["--bind=[::1]:80"],
        ["--instance", "shop2", "--bind", "0.0.0.0:65535"],
        ["--instance", "x" * 20, "--bind", "0.0.0.0:1"],
    ],
)
def test_right_usage_goes_on(tried: Try, arguments: list[str]) -> None:
    assert tried(*arguments) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--instace", "a"], "unrecognized arguments: --instace a"),
        (["--inst", "a"], "unrecognized arguments: --inst a"),
        (["--bind"], "argument --bind: expected one argument"),
        (["--bind", "8787"], "argument --bind: must be an IP address, "),
        (["--bind", "127.0.0.1:"], "argument --bind: must be an IP address, "),
        (["--bind", "127.0.0.1:65536"], "argument --bind: must be an IP address, "),
        (["--bind", "::1:80"], "argument --bind: must be an IP address, IPv6 in brackets"),
        (["--bind", "[127.0.0.1]:80"], "argument --bind: "),
        (["--bind", "localhost:80"], "argument --bind: names a host"),
        (["--bind", "127.0.0.1:0"], "argument --bind: has port 0"),
        (["--instance", "Shop"], "argument --instance: a name is 1 to 20 lower-case letters"),
        (["--instance=-x"], "argument --instance: a name is"),
        (["--instance", "a/b"], "argument --instance: a name is"),
        (["--instance", "x" * 21], "argument --instance: a name is"),
        (["--instance", "none-such"], "a new instance needs an address of its own: --bind"),
    ],
)
def test_wrong_usage_exits_with_2_and_the_reason(
    tried: Try, arguments: list[str], told: str
) -> None:
    code, said = tried(*arguments)
    assert code == 2
    assert f"run install: error: {told}" in said


def test_existing_instance_needs_no_bind(tmp_path: Path) -> None:
    (tmp_path / "smartlinkd@shop2").mkdir()
    (tmp_path / "smartlinkd@shop2/config.toml").touch()
    words = ["--instance", "shop2"]
    found = preflight.parse_arguments(preflight.make_parser(), words, etc=tmp_path)
    assert (found.instance, found.bind) == ("shop2", None)


@pytest.mark.parametrize("said", ["echo systemd 247", "echo upstart 1", "exit 1"])
def test_systemd_that_is_too_old_is_refused(tried: Try, said: str) -> None:
    code, told = tried(said=said)
    assert code == 1
    assert told.startswith("install: systemd 252 or newer is needed")
    assert told.count("\n") == 1


def test_machine_without_systemd_is_refused(tried: Try) -> None:
    assert tried(said="") == (1, "install: systemd is needed, and there is no systemctl here\n")
