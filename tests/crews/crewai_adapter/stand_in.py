"""A stand-in for CrewAI.

It has the shape of what the adapter uses of it and does nothing by itself: the crew of each test
says what happens. The real one is in `tests/crewai`.
"""

from __future__ import annotations

import textwrap
from pathlib import Path

from smartlinkd.crews.protocol import FromWorker, Step

STAND_IN = {
    "dotenv.py": """
        def load_dotenv(path):
            pass
        """,
    "crewai/__init__.py": """
        from types import SimpleNamespace as Thing
        import itertools

        numbers = itertools.count(1)

        class Crew:
            usage_metrics = None

            def __init__(self, *tasks, kickoff=lambda crew, inputs: "done"):
                self.tasks, self._kickoff = list(tasks), kickoff
                self.process, self.manager_agent, self.agents = "sequential", None, []

            def kickoff(self, inputs):
                self._interpolate_inputs(inputs)
                return self._kickoff(self, inputs)

            def _interpolate_inputs(self, inputs):
                for task in self.tasks:
                    for name, value in inputs.items():
                        if task.output_file is not None:
                            filled = task.output_file.replace("{" + name + "}", str(value))
                            task.output_file = filled

        def task(name, role="writer\\n", **more):
            fields = dict(id=next(numbers), name=name, description="d\\n", expected_output="e\\n",
                          agent=Thing(role=role), output_file=None, output=None,
                          human_input=False)
            return Thing(**{**fields, **more})

        def output(raw, value=None, tokens=None):
            usage = tokens and Thing(total_tokens=sum(tokens), prompt_tokens=tokens[0],
                                     completion_tokens=tokens[1])
            return Thing(raw=raw, json_dict=value, pydantic=None, token_usage=usage)

        def tell(source, type, **fields):
            from crewai.events import crewai_event_bus
            return crewai_event_bus.emit(source, event=Thing(type=type, **fields))

        def used(task, tool, result="r", **given):
            tell(task, "tool_usage_finished", task_id=task.id, agent_role=task.agent.role,
                 tool_name=tool, tool_args=given, output=result)

        def answered(task, text, prompt="p"):
            tell(task, "llm_call_completed", task_id=task.id, agent_role=task.agent.role,
                 response=text, messages=[{"role": "user", "content": prompt}])
        """,
    "crewai/events/__init__.py": """
        class Bus:
            def emit(self, source, event):
                return event.type

        crewai_event_bus = Bus()
        """,
    "crewai/events/listeners/__init__.py": "",
    "crewai/events/listeners/tracing/__init__.py": "",
    "crewai/events/listeners/tracing/utils.py": """
        def should_enable_tracing():
            return False

        def set_tracing_enabled(enabled):
            pass
        """,
    "crewai/hooks.py": """
        class HookAborted(Exception):
            pass

        class ToolCallHookContext:
            def __init__(self, tool_name, tool_input, task, tool_result=None):
                self.tool_name, self.tool_input, self.task = tool_name, tool_input, task
                self.tool_result = tool_result

        class LLMCallHookContext:
            def __init__(self, messages, task, response=None):
                self.messages, self.task, self.response = messages, task, response
        """,
    "crewai/core/__init__.py": "",
    "crewai/core/providers/__init__.py": "",
    "crewai/core/providers/human_input.py": """
        def set_provider(provider):
            global human
            human = provider
        """,
    "crewai/tools.py": """
        from pydantic import BaseModel

        class BaseTool(BaseModel):
            name: str
            description: str
            args_schema: type = BaseModel

            def model_post_init(self, context):
                pass
        """,
}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    return folder


def steps(messages: list[FromWorker]) -> list[Step]:
    return [message for message in messages if isinstance(message, Step)]
