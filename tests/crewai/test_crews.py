"""Whole crews of the real CrewAI: the messages to the daemon."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from smartlinkd.crews.protocol import (
    Result,
    Started,
    Step,
    TaskCompleted,
    TaskStarted,
    TokenUsage,
)
from tests.crewai.conftest import one_task

if TYPE_CHECKING:
    from tests.crewai.conftest import Project, Run

CLASSIC = {
    "pyproject.toml": '[project]\nname = "press"\n[tool.crewai]\ntype = "crew"\n',
    "src/press/config/agents.yaml": """
        scout:
          role: >
            {topic} scout
          goal: >
            Find {topic}
          backstory: >
            You look everywhere.
        writer:
          role: >
            Writer
          goal: >
            Write
          backstory: >
            You write.
        """,
    "src/press/config/tasks.yaml": """
        research:
          description: >
            Find what is new in {topic}
          expected_output: >
            A list
          agent: scout
        report:
          description: >
            Write about it
          expected_output: >
            A report
          agent: writer
        """,
    "src/press/crew.py": """
        from crewai import Agent, Crew, Process, Task
        from crewai.project import CrewBase, agent, crew, task

        @CrewBase
        class Press:
            @agent
            def scout(self) -> Agent:
                return Agent(config=self.agents_config["scout"], verbose=True)

            @agent
            def writer(self) -> Agent:
                return Agent(config=self.agents_config["writer"], verbose=True)

            @task
            def research(self) -> Task:
                return Task(config=self.tasks_config["research"])

            @task
            def report(self) -> Task:
                return Task(config=self.tasks_config["report"], output_file="out/report.md")

            @crew
            def crew(self) -> Crew:
                return Crew(
                    agents=self.agents, tasks=self.tasks, process=Process.sequential, verbose=True
                )
        """,
}


async def test_a_classic_project(run: Run, project: Project, model: Any) -> None:
    model.answers("two things", "Two things are new.")
    folder = project(CLASSIC)
    messages, end = await run(folder, inputs={"topic": "tea"})
    assert [message for message in messages if not isinstance(message, Step)] == [
        Started(total_tasks=2),
        TaskStarted(
            task_id="research",
            name="research",
            agent="tea scout",
            description="Find what is new in tea",
            expected_output="A list",
        ),
        TaskCompleted(task_id="research", output="two things"),
        TaskStarted(
            task_id="report",
            name="report",
            agent="Writer",
            description="Write about it",
            expected_output="A report",
        ),
        TaskCompleted(task_id="report", output="Two things are new."),
    ]
    assert end == Result(
        output="Two things are new.",
        token_usage=TokenUsage(total_tokens=30, prompt_tokens=20, completion_tokens=10),
    )
    steps = [message for message in messages if isinstance(message, Step)]
    assert [(step.task_id, step.agent, step.result) for step in steps] == [
        ("research", "tea scout", "two things"),
        ("report", "Writer", "Two things are new."),
    ]
    assert "Find what is new in tea" in (steps[0].prompt or "")


async def test_a_run_leaves_nothing_in_the_project(run: Run, project: Project, model: Any) -> None:
    model.answers("two things", "Two things are new.")
    files = dict(CLASSIC)
    files["src/press/crew.py"] = files["src/press/crew.py"].replace(
        "tasks=self.tasks,", "tasks=self.tasks, checkpoint=True,"
    )
    folder = project(files)
    before = sorted(path for path in folder.rglob("*"))
    await run(folder, inputs={"topic": "tea"}, PYTHONDONTWRITEBYTECODE="1")
    assert sorted(path for path in folder.rglob("*")) == before


async def test_pydantic_outputs_are_json(run: Run, project: Project, model: Any) -> None:
    model.answers('{"title": "Tea", "lines": 2}')
    files = one_task(
        imports="from crewai import LLM\n            import models",
        agent=', llm=LLM("openai/gpt-4o-mini")',
        task=", output_pydantic=models.Post",
    )
    files["src/models.py"] = """
        from pydantic import BaseModel

        class Post(BaseModel):
            title: str
            lines: int
        """
    messages, end = await run(project(files))
    assert isinstance(end, Result)
    assert end.output_json == {"title": "Tea", "lines": 2}
    (done,) = [message for message in messages if isinstance(message, TaskCompleted)]
    assert done.output_json == {"title": "Tea", "lines": 2}
    (step,) = [message for message in messages if isinstance(message, Step)]
    assert json.loads(step.result or "") == {"title": "Tea", "lines": 2}


async def test_result_of_a_callback_with_its_own_agent_is_the_output(
    run: Run, project: Project, model: Any
) -> None:
    model.answers("A post.", "A better post.")
    editor = "Agent(role='Editor', goal='Edit', backstory='b')"
    messages, end = await run(
        project(
            one_task(
                crew=f", after_kickoff_callbacks=[lambda output: {editor}.kickoff(output.raw)]",
            )
        )
    )
    usage = TokenUsage(total_tokens=15, prompt_tokens=10, completion_tokens=5)
    assert end == Result(output="A better post.", token_usage=usage)
    steps = [message for message in messages if isinstance(message, Step)]
    assert [(step.agent, step.result) for step in steps] == [
        ("Writer", "A post."),
        ("Editor", "A better post."),
    ]


async def test_streams_come_out_whole(run: Run, project: Project, model: Any) -> None:
    model.answers("A streamed post.")
    files = one_task(
        imports="from crewai import LLM",
        agent=', llm=LLM("openai/gpt-4o-mini", stream=True)',
        crew=", stream=True",
    )
    _, end = await run(project(files))
    assert model.requests[0]["stream"] is True
    assert isinstance(end, Result)
    assert end.output == "A streamed post."
    assert end.token_usage == TokenUsage(total_tokens=15, prompt_tokens=10, completion_tokens=5)


async def test_tasks_beside_each_other_keep_their_own_steps(
    run: Run, project: Project, model: Any
) -> None:
    model.answers("all the same")
    folder = project(
        {
            "src/press/crew.py": """
                from crewai import Agent, Crew, Task

                def task(name, beside):
                    agent = Agent(role=f"{name} writer", goal="Write", backstory="b")
                    return Task(name=name, description=name, expected_output="x", agent=agent,
                                async_execution=beside)

                tasks = [*(task(f"side {n}", True) for n in range(4)), task("end", False)]
                press = Crew(agents=[task.agent for task in tasks], tasks=tasks)
                """
        }
    )
    messages, end = await run(folder)
    assert isinstance(end, Result), end
    steps = [message for message in messages if isinstance(message, Step)]
    assert sorted(f"{step.task_id} by {step.agent}" for step in steps) == [
        "end by end writer",
        *(f"side {n} by side {n} writer" for n in range(4)),
    ]


async def test_planner_of_crewai_is_no_task_of_the_crew(
    run: Run, project: Project, model: Any
) -> None:
    plan = {"list_of_plans_per_task": [{"task_number": 1, "task": "post", "plan": "Just write"}]}
    model.answers(json.dumps(plan), "A planned post.")
    messages, end = await run(project(one_task(crew=', planning=True, planning_llm="gpt-4o-mini"')))
    assert isinstance(end, Result), end
    assert [m.task_id for m in messages if isinstance(m, TaskStarted)] == ["post"]
    assert "Just write" in model.request_text(-1)


async def test_files_of_the_project_are_found_from_its_folder(
    run: Run, project: Project, model: Any
) -> None:
    model.answers("ok")
    files = one_task(
        imports="""
            from pathlib import Path
            from dotenv import dotenv_values
            import os

            assert Path("knowledge/tea.txt").read_text() == "green"
            assert os.environ["FROM_FILE"] == "1"
            assert os.environ["OPENAI_MODEL_NAME"] == "gpt-4o-mini"
            """
    )
    files |= {"knowledge/tea.txt": "green", ".env": "FROM_FILE=1\nOPENAI_MODEL_NAME=other\n"}
    _, end = await run(project(files))
    assert isinstance(end, Result), end


async def test_tracing_of_a_project_is_ignored(run: Run, project: Project, model: Any) -> None:
    """The fixture `foreign_calls` fails if another host was called."""
    model.answers("ok")
    files = one_task(crew=", tracing=True, verbose=True") | {".env": "CREWAI_TRACING_ENABLED=true"}
    _, end = await run(project(files))
    assert isinstance(end, Result), end
