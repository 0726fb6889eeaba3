"""The crew of a project, found by its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from smartlinkd.crews.crewai_adapter.finding import find
from smartlinkd.crews.crewai_adapter.texts import Unusable
from tests.crews.crewai_adapter.stand_in import write

CREW = {"src/press/crew.py": ""}
TWO = {**CREW, "src/radio/crew.py": ""}


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (CREW, "press.crew"),
        ({**CREW, "pyproject.toml": "tool = 3"}, "press.crew"),
        ({**TWO, "pyproject.toml": "[project]\nname = 'radio'"}, "radio.crew"),
        (
            {**TWO, "pyproject.toml": "[project.scripts]\nrun_crew = 'press.main:run'"},
            "press.crew",
        ),
        ({"crew.json": ""}, "crew.json"),
        ({"crew.jsonc": "", "crew.json": ""}, "crew.jsonc"),
        (
            {**CREW, "own.jsonc": "", "pyproject.toml": "[tool.crewai]\ndefinition = 'own.jsonc'"},
            "own.jsonc",
        ),
    ],
)
def test_crew_of_a_project_is_found(tmp_path: Path, files: dict[str, str], found: str) -> None:
    crew = find(write(tmp_path, files))
    assert (str(crew.relative_to(tmp_path)) if isinstance(crew, Path) else crew) == found


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ({}, "there is no crew in "),
        (TWO, "several packages in "),
        ({"pyproject.toml": "[tool.crewai]\ntype = 'flow'"}, "this project is a flow "),
        ({"pyproject.toml": "a = = b"}, "pyproject.toml cannot be read "),
        *(
            (
                {"crew.json": "", "pyproject.toml": f"[tool.crewai]\ndefinition = {name}"},
                "[tool.crewai] definition in pyproject.toml, ",
            )
            for name in ("'../crew.json'", "'not-there.json'", "3")
        ),
    ],
)
def test_folder_without_a_usable_project_is_refused(
    tmp_path: Path, files: dict[str, str], fault: str
) -> None:
    with pytest.raises(Unusable) as raised:
        find(write(tmp_path / "project", files) if files else tmp_path)
    assert str(raised.value).startswith(fault)
    assert "; " in str(raised.value)
