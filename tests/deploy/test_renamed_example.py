"""An upgrade from 0.1 gives the example crew its new name in every configuration, and says so."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from smartlinkd.deploy.service import InstallFailed
from tests.deploy.machine import Machine

OLD_COMMAND = 'command = ["/opt/smartlinkd/current/bin/python", "-m", "daemon.crews.deal_post"]'
OLD_COMMAND_ON_LINES = "command = ['python3',\n  '-m',\n  'daemon.crews.deal_post']"
CREW = '\n[[crews]]\nname = "{name}"\nrunner = "command"\n{command}\ninputs = ["links"]\n'


def add(config: Path, command: str, *, name: str = "deal-post") -> str:
    """Append a crew to a configuration, and return the whole file."""
    config.parent.mkdir(parents=True, exist_ok=True)
    with config.open("a", encoding="utf-8") as file:
        file.write(CREW.format(name=name, command=command))
    return config.read_text(encoding="utf-8")


def test_example_is_renamed_in_each_configuration_and_copies_are_kept(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    configs = [machine.paths.configuration, machine.instance().configuration]
    commands = [f"# -m daemon.crews.deal_post\n{OLD_COMMAND}", OLD_COMMAND_ON_LINES]
    before = [add(*each) for each in zip(configs, commands, strict=True)]
    configs[0].chmod(0o640)
    machine.install()
    said = capsys.readouterr().out
    for config, text, command in zip(configs, before, commands, strict=True):
        copy = config.with_name("config.toml.before-0.2")
        renamed = re.sub(r"(?<=[\"'])daemon\.", "smartlinkd.", command)
        assert config.read_text(encoding="utf-8") == text.replace(command, renamed)
        assert copy.read_text(encoding="utf-8") == text
        assert f"{config}: daemon.crews.deal_post is now called smartlinkd.crews" in said
        assert str(copy) in said
    assert stat.S_IMODE(configs[0].stat().st_mode) == 0o640
    copy = configs[0].with_name("config.toml.before-0.2")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o640


@pytest.mark.parametrize(
    "command",
    [
        'command = ["python3", "-m", "daemon"]',
        'command = ["python3", "-m", "daemon.crews.deal_posts"]',
        'command = ["python3", "-m", "my.daemon.crews.deal_post"]',
        'command = ["python3", "daemon.crews.deal_post"]',
    ],
)
def test_other_commands_stay_as_they_are(machine: Machine, command: str) -> None:
    before = add(machine.paths.configuration, command)
    machine.install()
    assert machine.paths.configuration.read_text(encoding="utf-8") == before
    assert not machine.paths.configuration.with_name("config.toml.before-0.2").exists()


def test_version_that_does_not_start_leaves_the_configuration_of_before(machine: Machine) -> None:
    before = add(machine.paths.configuration, OLD_COMMAND)
    machine.fault = InstallFailed("it does not answer")
    with pytest.raises(InstallFailed, match="is running again"):
        machine.install()
    assert machine.paths.configuration.read_text(encoding="utf-8") == before
    assert not machine.paths.configuration.with_name("config.toml.before-0.2").exists()


def test_linked_configuration_is_changed_where_it_lies(machine: Machine, tmp_path: Path) -> None:
    config, real = machine.paths.configuration, tmp_path / "mine.toml"
    add(config, OLD_COMMAND)
    config.rename(real)
    config.symlink_to(real)
    machine.install()
    assert config.is_symlink()
    assert "smartlinkd.crews.deal_post" in real.read_text(encoding="utf-8")
