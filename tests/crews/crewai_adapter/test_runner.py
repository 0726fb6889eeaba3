"""A run from its beginning to its end, good or not."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from smartlinkd.crews.catalog.catalog import ADAPTER
from smartlinkd.crews.protocol import Failed, Result, Started
from tests.crews.crewai_adapter.stand_in import STAND_IN, write
from tests.crews.scripts import Begin, to_end, whole


@pytest.mark.parametrize(
    ("returned", "output", "output_json"),
    [
        ("output('a')", "a", None),
        ("output('{\"a\": 1}')", '{"a": 1}', None),
        ("output('a', {'a': 1})", "a", {"a": 1}),
        ("output('a', {'n': float('nan')})", "a", None),
        ("Thing(raw='a', pydantic={'a': 1})", "a", {"a": 1}),  # of an agent's own kickoff
        ("'text'", "text", None),
        ("{'a': [1]}", '{"a": [1]}', {"a": [1]}),
        ("None", "null", None),
    ],
)
async def test_return_value_of_a_kickoff_becomes_the_result(
    crew: Begin, returned: str, output: str, output_json: Any
) -> None:
    code = f"""
        from crewai import Crew, Thing, output
        press = Crew(kickoff=lambda crew, inputs: {returned})
        """
    _, end = await whole(crew(code))
    assert end == Result(output=output, output_json=output_json)


async def test_error_is_one_line_without_secrets(crew: Begin) -> None:
    code = """
        import os
        from crewai import Crew

        def kickoff(crew, inputs):
            raise KeyError("no\\n  luck with {MODEL_API_KEY} in {MODE}".format_map(os.environ))

        press = Crew(kickoff=kickoff)
        """
    async with crew(code, MODEL_API_KEY="sk-0123456789", MODE="live") as worker:
        _, end = await to_end(worker)
        assert "Traceback" in worker.stderr_tail
    assert end == Failed(error=r"KeyError: 'no\n luck with [MODEL_API_KEY] in live'")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (
            "import not_there",
            "the module press.crew could not be imported: "
            "ModuleNotFoundError: No module named 'not_there'",
        ),
        ("raise SystemExit(3)", "the module press.crew could not be imported: SystemExit: 3"),
        ("x = (", "the module press.crew could not be imported: SyntaxError: "),
        (
            "from crewai import Crew",
            "press.crew must have one crew (a class marked @CrewBase): it has none",
        ),
        (
            "from crewai import Crew\na, b = Crew(), Crew()",
            "press.crew must have one crew (a class marked @CrewBase): it has a, b",
        ),
        (
            "class A:\n    is_crew_class = True",
            "the crew A could not be made: AttributeError: 'A' object has no attribute 'crew'",
        ),
    ],
)
async def test_project_without_a_working_crew_fails_with_the_reason(
    crew: Begin, code: str, error: str
) -> None:
    messages, end = await whole(crew(code))
    assert messages == [Started()]
    assert isinstance(end, Failed)
    assert end.error.startswith(error)


async def test_interpreter_without_crewai_fails_with_the_reason(
    begin: Begin, tmp_path: Path
) -> None:
    project = write(tmp_path, {"src/press/crew.py": ""})
    command = (sys.executable, "-I", str(ADAPTER), str(project))
    _, end = await whole(begin(*command))
    assert isinstance(end, Failed)
    assert end.error.startswith(f"CrewAI 1.11 or later is needed in {sys.executable}: Module")


def modules_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*.py*"))


async def test_project_may_have_modules_named_as_the_adapters(begin: Begin, tmp_path: Path) -> None:
    """Also those that are named as ours are. Neither folder is left with what is compiled of it."""
    adapter = tmp_path / "adapter"
    shutil.copytree(ADAPTER.parent, adapter, ignore=shutil.ignore_patterns("__pycache__"))
    ours = modules_in(adapter)
    offered = {"__init__", "__main__", "smartlinkd_crew"}
    names = [name for name in (each.removesuffix(".py") for each in ours) if name not in offered]
    code = f"""
        from crewai import Crew
        import {", ".join(names)}
        press = Crew(kickoff=lambda crew, inputs: [{", ".join(f"{name}.MINE" for name in names)}])
        """
    own = {f"src/{name}.py": f"MINE = {name!r}" for name in names[::2]}
    project = write(tmp_path / "project", {"src/press/crew.py": code, **own})
    theirs = modules_in(project)
    packages = {f"{name}.py": f"MINE = {name!r}" for name in names[1::2]}
    environment = {"PYTHONPATH": str(write(tmp_path / "packages", {**STAND_IN, **packages}))}
    command = (sys.executable, str(adapter / "__main__.py"), str(project))
    _, end = await whole(begin(*command, environment=environment))
    assert isinstance(end, Result), end
    assert end.output_json == names
    assert (modules_in(adapter), modules_in(project)) == (ours, theirs)
