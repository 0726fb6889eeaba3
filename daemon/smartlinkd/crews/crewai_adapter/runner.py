"""A run from its inputs to its result: loading the crew, its files, its human, and the kickoff."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, NoReturn

from .connection import DaemonConnection, open_connection
from .finding import find
from .progress import CrewProgress, agent_of, last_text, value_of
from .texts import Unusable, describe, redact, to_json

# Without these, CrewAI and its libraries call home, or ask a person at a terminal. The crew's
# `environment` wins over them, and they win over the project's .env. OTEL_SDK_DISABLED is not here:
# it would switch off a project's own OpenTelemetry, too.
SWITCHED_OFF: Mapping[str, str] = MappingProxyType(
    {
        "CREWAI_DISABLE_TELEMETRY": "true",
        "CREWAI_TRACING_ENABLED": "false",
        "CREWAI_DISABLE_VERSION_CHECK": "true",
        # In a new home every run is the first one, which collects traces and offers to share them.
        "CREWAI_TESTING": "true",
        "ANONYMIZED_TELEMETRY": "False",  # chromadb
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it is fetched at the import
    }
)


def run(
    daemon: DaemonConnection, project: Path, inputs: Mapping[str, Any], allowed: tuple[str, ...]
) -> None:
    """Load the crew and run it, up to its result. Raises `Unusable`, and what the crew raises."""
    home = Path.home().resolve()
    source = find(project)
    for name, value in {**SWITCHED_OFF, "CREWAI_STORAGE_DIR": str(home / "crewai")}.items():
        os.environ.setdefault(name, value)
    os.chdir(project)  # knowledge and the like are found from there
    sys.path[:0] = [str(project / "src"), str(project)]
    with as_unusable(f"CrewAI 1.11 or later is needed in {sys.executable}"):
        importlib.import_module("dotenv").load_dotenv(project / ".env")
        human_input = importlib.import_module("crewai.core.providers.human_input")
        events = importlib.import_module("crewai.events")
        hooks = importlib.import_module("crewai.hooks")
        tracing = importlib.import_module("crewai.events.listeners.tracing.utils")
        smartlinkd_crew = importlib.import_module(".smartlinkd_crew", __package__)
    smartlinkd_crew.install(daemon, allowed)
    crew, defaults = load(source)
    crew.stream = False  # a stream is an iterator, and the crew runs while somebody iterates
    if not tracing.should_enable_tracing():
        crew.tracing = False  # what the code says does not count
        tracing.set_tracing_enabled(False)
    redirect_files(crew, home)
    guard_files(crew)
    daemon.start(len(crew.tasks))
    lift_time_limits(crew, daemon)
    progress = CrewProgress(daemon, crew.tasks)
    progress.listen(events.crewai_event_bus)
    human_input.set_provider(Human(progress))
    ask_for_hooks(hooks, progress, daemon)
    try:
        output = crew.kickoff(inputs={**defaults, **inputs})
    finally:
        progress.flush()
    progress.end_all()
    daemon.result(*output_of(output), usage_of(crew, output))


def load(source: Path | str) -> tuple[Any, dict[str, Any]]:
    """Return the crew, and the defaults that it has for its inputs."""
    if isinstance(source, Path):
        with as_unusable(f"{source.name} could not be loaded"):
            crew, defaults = importlib.import_module("crewai.project.crew_loader").load_crew(source)
        return crew, dict(defaults or {})
    with as_unusable(f"the module {source} could not be imported"):
        module = importlib.import_module(source)
    found = _crews(module)
    if len(found) != 1:
        names = ", ".join(found) or "none"
        raise Unusable(f"{source} must have one crew (a class marked @CrewBase): it has {names}")
    [(name, crew)] = found.items()
    with as_unusable(f"the crew {name} could not be made"):
        return (crew().crew() if isinstance(crew, type) else crew), {}


def _crews(module: ModuleType) -> dict[str, Any]:
    """Return a module's crews by their names: its own @CrewBase classes, else its Crew objects."""
    crew_type = importlib.import_module("crewai").Crew
    things = vars(module)
    classes = {
        thing.__name__: thing
        for thing in things.values()
        if isinstance(thing, type)  # an object of such a class answers as the class does
        and getattr(thing, "is_crew_class", False)
        and thing.__module__ == module.__name__
    }
    # A crew may have several names.
    crews = {id(crew): (name, crew) for name, crew in things.items() if isinstance(crew, crew_type)}
    return classes or dict(crews.values())


@contextmanager
def as_unusable(what: str) -> Iterator[None]:
    """Turn whatever the block raises into an `Unusable` that begins with `what`."""
    try:
        yield
    except (Exception, SystemExit) as error:  # the project's own code may do anything
        raise Unusable(f"{what}: {describe(error)}") from error


def output_of(output: Any) -> tuple[str, Any]:
    """Return the text and the JSON of a kickoff's output, which a project's callback may make."""
    if isinstance(output, str):
        return output, None
    raw = getattr(output, "raw", None)
    if isinstance(raw, str):
        return raw, value_of(output)
    return _fields_text(output), to_json(output)


def usage_of(crew: Any, output: Any) -> dict[str, int] | None:
    """Return the tokens that a kickoff took, as CrewAI counts them; None if it does not."""
    usage = crew.usage_metrics or getattr(output, "token_usage", None)
    names = ("total_tokens", "prompt_tokens", "completion_tokens")
    return {name: max(0, int(getattr(usage, name, 0))) for name in names} if usage else None


def redirect_files(crew: Any, home: Path) -> None:
    """Redirect the files that the crew writes to the run's folder: the project may be read-only.

    Absolute paths stay. (CrewAI cuts the leading `/` off an `output_file` without a placeholder.)
    """
    for task in crew.tasks:
        if task.output_file and not Path(task.output_file).is_absolute():
            task.output_file = str(home / task.output_file)
            task.create_directory = True
    log = getattr(crew, "_file_handler", None)  # of `output_log_file`
    if log is not None and not Path(log._path).is_absolute():
        (home / log._path).parent.mkdir(parents=True, exist_ok=True)
        log._path = str(home / log._path)
    agents = (crew.manager_agent, *crew.agents, *(task.agent for task in crew.tasks))
    for owner in (crew, *agents):  # some may be None, and some the same
        checkpoint: Any = getattr(owner, "checkpoint", None)
        if (location := getattr(checkpoint, "location", None)) is not None:
            checkpoint.location = str(home / location)  # one that is absolute stays
    with suppress(ImportError):  # an older CrewAI keeps no long results of tools
        kept: Any = importlib.import_module("crewai.utilities.tool_result_artifacts")
        if hasattr(kept, "_TOOL_RESULT_TEMP_DIR"):
            kept._TOOL_RESULT_TEMP_DIR = home  # in /tmp they would stay when a run is stopped


def guard_files(crew: Any) -> None:
    """End the run before its first task if an input brings a `..` into an `output_file`.

    CrewAI checks the project's own paths for `..`, and not those that inputs complete. Hooks may
    change inputs until CrewAI fills them in, so the check follows that.
    """
    fill_in = crew._interpolate_inputs

    def fill_in_and_check(inputs: dict[str, Any]) -> None:
        fill_in(inputs)
        for task in crew.tasks:
            path = Path(task.output_file or "")
            if ".." in path.parts:
                raise Unusable(f"the inputs lead the output_file of a task elsewhere: {path}")

    crew._interpolate_inputs = fill_in_and_check


class Human:
    """A provider of human input for CrewAI that asks through the daemon."""

    def __init__(self, progress: CrewProgress) -> None:
        self._progress = progress

    def setup_messages(self, _context: Any) -> bool:
        """Leave the messages to CrewAI."""
        return False

    def post_setup_messages(self, _context: Any) -> None:
        """Do nothing."""

    def handle_feedback(self, formatted_answer: Any, context: Any) -> Any:
        """Return the answer that the human approves in the end."""
        answer = formatted_answer
        while True:
            text = answer.output if isinstance(answer.output, str) else _fields_text(answer.output)
            approved, feedback = self._progress.ask(context.task, text)
            if approved:
                context.ask_for_human_input = False
                return answer
            wish = feedback.strip() or "This is not good enough yet. Improve it."
            context.messages.append(context._format_feedback_message(wish))
            answer = context._invoke_loop()

    async def handle_feedback_async(self, formatted_answer: Any, context: Any) -> Any:
        """Do the same for a crew that runs in an event loop."""
        return await asyncio.to_thread(self.handle_feedback, formatted_answer, context)


def _fields_text(value: Any) -> str:
    return json.dumps(to_json(value), ensure_ascii=False)


def ask_for_hooks(hooks: Any, progress: CrewProgress, daemon: DaemonConnection) -> None:
    """Have hooks ask humans (`context.request_human_input`) through the daemon.

    CrewAI would read the empty standard input and go on as if the human had agreed. Of a hook's
    exceptions it heeds `HookAborted` alone.
    """

    def refuse(why: str) -> NoReturn:
        if (aborted := getattr(hooks, "HookAborted", None)) is not None:
            raise aborted(why)
        # An older CrewAI heeds no exception at all, and sees no end of a parallel task's thread:
        # only the end of the program is sure to stop the refused step.
        daemon.fail(describe(Unusable(f"a hook of the crew was refused: {why}")))
        os._exit(1)

    def request(context: Any, prompt: str, default_message: str = "") -> str:
        """Return the human's text. Raises `HookAborted` if they refuse or cannot be asked."""
        try:
            question = "\n".join(filter(None, (prompt, default_message)))
            approved, text = progress.ask(context.task, _asked_about(context), question)
        except Exception as error:  # noqa: BLE001 - nobody has agreed then
            refuse(f"no human could be asked: {describe(error)}")
        if not approved:
            refuse(text.strip() or "a human refused")
        return text.strip()

    hooks.ToolCallHookContext.request_human_input = request
    hooks.LLMCallHookContext.request_human_input = request


def _asked_about(context: Any) -> str:
    """Return the tool's use or the model's words that a hook asks about."""
    if (tool := getattr(context, "tool_name", None)) is None:
        return str(context.response or last_text(context.messages) or "")
    use = f"{tool} {_fields_text(context.tool_input)}"
    return use if context.tool_result is None else f"{use}\n{context.tool_result}"


def lift_time_limits(crew: Any, daemon: DaemonConnection) -> None:
    """Drop `max_execution_time` of agents about whose answers a human is asked.

    CrewAI counts the human's time into it, and discards what was approved too late.
    """
    for task in crew.tasks:
        agent = crew.manager_agent if crew.process == "hierarchical" else task.agent
        if task.human_input and getattr(agent, "max_execution_time", None) is not None:
            agent.max_execution_time = None
            why = "a human is asked about its answers, whose time would count"
            daemon.log(
                "warning", f"{agent_of(agent)}: its max_execution_time is left out, since {why}"
            )


def main() -> NoReturn:
    """Run the project that the command line names, for the daemon at `SMARTLINKD_FD`."""
    if len(sys.argv) != 2 or "SMARTLINKD_FD" not in os.environ:
        sys.exit("smartlinkd starts this, to run a CrewAI project: crewai_adapter PROJECT")
    daemon = open_connection()
    inputs, allowed = daemon.inputs()
    try:
        run(daemon, Path(sys.argv[1]).resolve(), inputs, allowed)
    except BaseException as error:  # noqa: BLE001 - the daemon hears of every end
        print(redact(traceback.format_exc(), os.environ), file=sys.stderr)
        daemon.fail(describe(error))
        sys.exit(1)
    sys.exit(0)
