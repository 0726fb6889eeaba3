"""A run from its inputs to its result."""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, NoReturn

from .apart import guard_files, keep_apart, share_locks
from .connection import DaemonConnection
from .finding import find
from .human import Human, ask_for_hooks, give_time
from .progress import Progress, value_of
from .words import Unusable, describe, hide, plain

# What calls somebody, or asks a person at a terminal, unless it is told not to. The crew's
# `environment` may say otherwise; the project's own .env comes too late for it. OTEL_SDK_DISABLED
# is not here: it would switch off what a project sends to its owner's own OpenTelemetry, too.
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
    """Load the crew and run it, up to its result. Raises Unusable, and what the crew raises."""
    home = Path.home()
    source = find(project)
    for name, value in {**SWITCHED_OFF, "CREWAI_STORAGE_DIR": str(home / "crewai")}.items():
        os.environ.setdefault(name, value)
    os.chdir(project)  # knowledge and the like are found from there
    sys.path[:0] = [str(project / "src"), str(project)]
    with told_as(f"CrewAI 1.11 or later is needed in {sys.executable}"):
        importlib.import_module("dotenv").load_dotenv(project / ".env")
        human_input = importlib.import_module("crewai.core.providers.human_input")
        events = importlib.import_module("crewai.events")
        hooks = importlib.import_module("crewai.hooks")
        tracing = importlib.import_module("crewai.events.listeners.tracing.utils")
        smartlinkd_crew = importlib.import_module(".smartlinkd_crew", __package__)
    share_locks(home)
    smartlinkd_crew.offer(daemon, allowed)
    crew, defaults = load(source)
    crew.stream = False  # a stream is an iterator, and the crew runs while somebody iterates
    if not tracing.should_enable_tracing():
        crew.tracing = False  # what the code says does not count
        tracing.set_tracing_enabled(False)
    keep_apart(crew, home)
    guard_files(crew, home)
    daemon.start(len(crew.tasks))
    give_time(crew, daemon)
    progress = Progress(daemon, crew.tasks)
    progress.listen(events.crewai_event_bus)
    human_input.set_provider(Human(progress))
    ask_for_hooks(hooks, progress, daemon)
    try:
        output = crew.kickoff(inputs={**defaults, **inputs})
    finally:
        progress.tell_rest()
    progress.end_all()
    daemon.result(*told(output), usage_of(crew, output))


def load(source: Path | str) -> tuple[Any, dict[str, Any]]:
    """The crew, and the inputs that it has by itself."""
    if isinstance(source, Path):
        with told_as(f"{source.name} could not be loaded"):
            crew, defaults = importlib.import_module("crewai.project.crew_loader").load_crew(source)
        return crew, dict(defaults or {})
    with told_as(f"the module {source} could not be imported"):
        module = importlib.import_module(source)
    found = _crews(module)
    if len(found) != 1:
        names = ", ".join(found) or "none"
        raise Unusable(f"{source} must have one crew (a class marked @CrewBase): it has {names}")
    [(name, crew)] = found.items()
    with told_as(f"the crew {name} could not be made"):
        return (crew().crew() if isinstance(crew, type) else crew), {}


def _crews(module: ModuleType) -> dict[str, Any]:
    """A module's crews by their names: its own @CrewBase classes, else its Crew objects."""
    crew_type = importlib.import_module("crewai").Crew
    things = vars(module)
    classes = {
        thing.__name__: thing
        for thing in things.values()
        if isinstance(thing, type)  # an object of such a class answers as the class does
        and getattr(thing, "is_crew_class", False)
        and thing.__module__ == module.__name__
    }
    # One may have several names.
    crews = {id(crew): (name, crew) for name, crew in things.items() if isinstance(crew, crew_type)}
    return classes or dict(crews.values())


@contextmanager
def told_as(what: str) -> Iterator[None]:
    """Whatever is raised in here becomes an Unusable that begins with `what`."""
    try:
        yield
    except (Exception, SystemExit) as error:  # the project's own code may do anything
        raise Unusable(f"{what}: {describe(error)}") from error


def told(output: Any) -> tuple[str, Any]:
    """The text and the JSON of what a kickoff returned. A project's own callback may return it."""
    if isinstance(output, str):
        return output, None
    raw = getattr(output, "raw", None)
    if isinstance(raw, str):
        return raw, value_of(output)
    return json.dumps(plain(output), ensure_ascii=False), plain(output)


def usage_of(crew: Any, output: Any) -> dict[str, int] | None:
    """The tokens that a kickoff took, as CrewAI counts them, whatever it returned."""
    usage = crew.usage_metrics or getattr(output, "token_usage", None)
    names = ("total_tokens", "prompt_tokens", "completion_tokens")
    return {name: max(0, int(getattr(usage, name, 0))) for name in names} if usage else None


def main() -> NoReturn:
    if len(sys.argv) != 2 or "SMARTLINKD_FD" not in os.environ:
        sys.exit("smartlinkd starts this, to run a CrewAI project: crewai_adapter PROJECT")
    connection = socket.socket(fileno=int(os.environ.pop("SMARTLINKD_FD")))
    connection.set_inheritable(False)
    daemon = DaemonConnection(connection)
    inputs, allowed = daemon.inputs()
    try:
        run(daemon, Path(sys.argv[1]).resolve(), inputs, allowed)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the daemon is told
        print(hide(traceback.format_exc(), os.environ), file=sys.stderr)
        daemon.fail(describe(error))
        sys.exit(1)
    sys.exit(0)
