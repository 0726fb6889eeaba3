"""CrewAI projects on disk: their inputs, and what is wrong with their files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from smartlinkd.crews.catalog.crewai_project import MAX_FILE, InputCollector, read_project

AGENTS = "scout:\n  role: >\n    Scout for {topic}\n  goal: find\n  backstory: old\n"
TASKS = "find:\n  description: Find {count} of {topic}\n  expected_output: a list\n"


def put(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


@pytest.fixture
def tmp_path(open_folder: Path) -> Path:
    """Whom the daemon runs as has to get there."""
    return open_folder


@pytest.fixture
def classic(tmp_path: Path) -> Path:
    return put(
        tmp_path / "classic",
        {
            "src/news/crew.py": "raise SystemExit('this runs nothing')",
            "src/news/config/agents.yaml": AGENTS,
            "src/news/config/tasks.yaml": TASKS,
        },
    )


@pytest.fixture
def in_json(tmp_path: Path) -> Path:
    crew = {"agents": ["scout"], "tasks": [{"description": "{topic}"}], "inputs": {"topic": "tea"}}
    return put(
        tmp_path / "json",
        {
            "crew.jsonc": f"// made by hand\n{json.dumps(crew)}",
            "agents/scout.jsonc": '{"role": "Scout of {year}", "goal": "x", "backstory": "y",}',
        },
    )


def needed(project: InputCollector) -> dict[str, bool]:
    assert not project.faults
    return {each.name: each.required for each in project.inputs}


def faults(folder: Path) -> list[str]:
    project = read_project(folder)
    assert all(fault.remedy for fault in project.faults)
    return [fault.fault for fault in project.faults]


def test_inputs_of_a_classic_project_are_found(classic: Path) -> None:
    assert needed(read_project(classic)) == {"topic": True, "count": True}


def test_inputs_of_a_json_project_are_found(in_json: Path) -> None:
    assert needed(read_project(in_json)) == {"topic": False, "year": True}


def test_json_project_that_pyproject_names_is_found(in_json: Path) -> None:
    put(in_json, {"pyproject.toml": '[tool.crewai]\ntype = "crew"\ndefinition = "x/main.jsonc"'})
    (in_json / "x").mkdir()
    (in_json / "crew.jsonc").rename(in_json / "x/main.jsonc")
    (in_json / "agents").rename(in_json / "x/agents")
    assert needed(read_project(in_json)) == {"topic": False, "year": True}


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        ({}, "there is no crew in"),
        ({"pyproject.toml": (MAX_FILE + 1) * "#"}, "pyproject.toml is longer than 262144 bytes"),
        ({"pyproject.toml": "x = " + 9999 * "["}, "cannot be looked through"),
        ({"crew.json": "{"}, "crew.json is not JSON in line 1"),
        ({"crew.json": b"\xff"}, "crew.json is not UTF-8 text"),
        (
            {"crew.json": '{"agents": ["a\\u0000"], "tasks": [{}]}'},
            'crew.json names an agent without a file agents/"a\\u0000".jsonc',
        ),
        (
            {"crew.json": json.dumps({"agents": 101 * ["a"], "tasks": [{}]})},
            "crew.json has more than 100 agents",
        ),
        (
            {"src/a/crew.py": "", "src/a/config/tasks.yaml": "find:\n  description: {topic}"},
            "src/a/config/tasks.yaml: find has a description that is no text",
        ),
    ],
)
def test_unusable_project_file_is_named(
    tmp_path: Path, files: dict[str, str | bytes], fault: str
) -> None:
    (found,) = faults(put(tmp_path, files))
    assert fault in found


def test_fifo_in_a_project_is_refused_at_once(classic: Path) -> None:
    path = classic / "src/news/config/agents.yaml"
    path.unlink()
    os.mkfifo(path)
    assert faults(classic) == ["src/news/config/agents.yaml is not a regular file"]


# --- who may read --------------------------------------------------------------------------------

AS_NOBODY = """
import os, sys
sys.path[:0] = {path!r}
from smartlinkd.crews.catalog.crewai_project import read_project
from pathlib import Path
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for fault in read_project(Path({folder!r})).faults: print(fault.fault)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize(
    "locked",
    [
        "src",
        "src/news",
        "src/news/crew.py",
        "src/news/config",
        "src/news/config/agents.yaml",
        "pyproject.toml",
        ".env",
    ],
)
def test_unreadable_project_file_is_named(classic: Path, locked: str) -> None:
    put(classic, {"pyproject.toml": "", ".env": "KEY=x"})
    (classic / locked).chmod(0o700 if (classic / locked).is_dir() else 0o600)
    script = AS_NOBODY.format(path=sys.path, folder=str(classic))
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert ended.stdout.startswith(locked)
    assert "(Permission denied)" in ended.stdout


@pytest.mark.parametrize(
    "code",
    [
        'class News:\n    agents_config = "config/press.yaml"\n',
        'import x\n@x\nclass News(Base):\n    agents_config: str = "config/press.yaml"\n',
    ],
)
def test_config_files_that_the_crews_class_names_are_read(classic: Path, code: str) -> None:
    """As for CrewAI, which reads those; a template's may lie beside them."""
    put(
        classic,
        {
            "src/news/crew.py": code,
            "src/news/config/press.yaml": "scout:\n  role: of {paper}\n  goal: x\n  backstory: y\n",
            "src/news/config/tasks.yaml": "",
        },
    )
    assert needed(read_project(classic)) == {"paper": True}


def test_crew_in_another_encoding_is_left_to_python(classic: Path) -> None:
    before = needed(read_project(classic))
    put(classic, {"src/news/crew.py": b"# coding: latin-1\nname = '\xe9'\n"})
    assert needed(read_project(classic)) == before
