"""The unit files, checked without systemd. tests/systemd runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from smartlinkd.commands.check_config import HIDDEN

FOLDER = Path(__file__).parents[1] / "systemd"

# Keys of systemd.service(5) and systemd.exec(5) that systemd 252 does not know.
NEWER = ("RestartSteps", "RestartMaxDelaySec", "RestartMode", "PrivatePIDs", "ImportCredential")


def keys(name: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (FOLDER / name).read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value)
    return found


def test_hidden_folders_are_those_of_check_config_and_the_installation() -> None:
    """systemd.exec(5) says what ProtectHome= and PrivateTmp= hide."""
    unit = keys("smartlinkd.service")
    assert (unit["ProtectHome"], unit["PrivateTmp"]) == (["yes"], ["yes"])
    assert set(HIDDEN) == {"/home", "/root", "/run/user", "/tmp", "/var/tmp"}
    folders = ", ".join(f'"{folder}/"' for folder in HIDDEN)
    assert f"hidden = ({folders})" in (FOLDER / "install.sh").read_text()


@pytest.mark.parametrize("key", NEWER)
def test_unit_has_no_key_that_the_oldest_systemd_does_not_know(key: str) -> None:
    assert key not in keys("smartlinkd.service")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("Type", "notify"),
        ("NotifyAccess", "main"),
        ("Restart", "always"),
        ("StartLimitIntervalSec", "0"),  # otherwise the cookie is lost with the last start
        ("LimitCORE", "1"),  # or the watchdog writes the cookie to the disk; 0 is not for pipes
        ("OOMPolicy", "continue"),
        ("CapabilityBoundingSet", ""),
        ("RestrictNamespaces", "user pid net"),
    ],
)
def test_unit_has_the_keys_that_the_daemon_relies_on(key: str, value: str) -> None:
    assert keys("smartlinkd.service")[key] == [value]
