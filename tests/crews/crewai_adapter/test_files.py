"""The files of a run."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from smartlinkd.crews.crewai_adapter.runner import redirect_files
from smartlinkd.crews.protocol import Failed, Result, Started
from tests.crews.scripts import Begin, whole


def test_files_of_a_crew_are_in_the_runs_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As CrewAI has it: without `create_directory`, a folder is one that is there."""
    results = ModuleType("crewai.utilities.tool_result_artifacts")
    vars(results)["_TOOL_RESULT_TEMP_DIR"] = Path("/tmp")
    monkeypatch.setitem(sys.modules, results.__name__, results)
    relative = SimpleNamespace(output_file="reports/post.md", create_directory=False)
    absolute = SimpleNamespace(output_file="/srv/{topic}.md", create_directory=False)
    none = SimpleNamespace(output_file=None, create_directory=False)
    log = SimpleNamespace(_path="logs/crew.txt")
    kept = [SimpleNamespace(location="./.checkpoints") for _ in range(4)]
    of_crew, of_agent, of_manager, of_task = kept
    there = SimpleNamespace(checkpoint=SimpleNamespace(location="/srv/press.db"))
    relative.agent = SimpleNamespace(checkpoint=of_task)
    absolute.agent, none.agent = there, None
    crew = SimpleNamespace(
        tasks=[relative, absolute, none],
        agents=[SimpleNamespace(checkpoint=of_agent), SimpleNamespace(checkpoint=True), there],
        manager_agent=SimpleNamespace(checkpoint=of_manager),
        checkpoint=of_crew,
        _file_handler=log,
    )
    redirect_files(crew, tmp_path)
    assert (relative.output_file, relative.create_directory) == (
        str(tmp_path / "reports/post.md"),
        True,
    )
    assert (absolute.output_file, absolute.create_directory) == ("/srv/{topic}.md", False)
    assert (none.output_file, none.create_directory) == (None, False)
    assert vars(log)["_path"] == str(tmp_path / "logs/crew.txt")
    assert (tmp_path / "logs").is_dir()
    assert [each.location for each in kept] == [str(tmp_path / ".checkpoints")] * 4
    assert there.checkpoint.location == "/srv/press.db"
    assert vars(results)["_TOOL_RESULT_TEMP_DIR"] == tmp_path


@pytest.mark.parametrize(
    ("template", "topic", "strays"),
    [
        ("reports/{topic}.md", "tea", False),
        ("reports/{topic}.md", "/etc/tea", False),
        ("{topic}", "/etc/tea", False),
        ("reports/{topic}.md", "../../tea", True),
        ("reports/{topic}.md", "green/../tea", True),
        ("{topic}/../tea", "..", True),
        ("reports/.{dot}/tea", "", True),
        ("/srv/{topic}.md", "green/tea", False),
        ("/srv/{topic}.md", "../tea", True),
    ],
)
async def test_input_that_leads_an_output_file_elsewhere_is_refused(
    crew: Begin, template: str, topic: str, strays: bool
) -> None:
    code = f"""
        from crewai import Crew, task

        press = Crew(
            task("post", output_file={template!r}),
            kickoff=lambda crew, inputs: inputs["topic"],
        )
        fill_in = press._interpolate_inputs
        press._interpolate_inputs = lambda inputs: fill_in({{**inputs, "dot": "."}})  # as a hook
        """
    messages, end = await whole(crew(code, inputs={"topic": topic}))
    assert messages == [Started(total_tasks=1)]
    if strays:
        assert isinstance(end, Failed)
        assert end.error.startswith("the inputs lead the output_file of a task elsewhere: /")
    else:
        assert end == Result(output=topic)
