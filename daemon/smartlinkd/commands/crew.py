"""`smartlinkd crew run`, `follow`, `stop` and `executions`: a crew, by its daemon's API.

Standard output has the result alone, or what `--json` asks for. What happens meanwhile goes to
standard error.
"""

from __future__ import annotations

import argparse
import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pydantic import JsonValue
from rich.console import Console
from rich.text import Text

from smartlinkd.api.crews.schemas import StatusResponse
from smartlinkd.client import ClientError, CrewClient
from smartlinkd.client.crews import CrewEvent
from smartlinkd.commands.codes import FAILED, GOOD, say
from smartlinkd.commands.server import require_server
from smartlinkd.commands.table import table
from smartlinkd.untrusted import blank_unprintable, escape_unprintable

MAX_INPUT_FILE: Final = 1024 * 1024
"""Bytes of a file of inputs; by default the daemon takes no larger body."""


def run(chosen: argparse.Namespace) -> int:
    """Start an execution. Print its id, or with `--follow` or `--wait` its result."""
    inputs = read_inputs(chosen.inputs)
    with require_server(chosen).open() as daemon:
        crew = daemon.crew(chosen.name)
        kickoff_id = crew.kickoff(inputs)
        if not (chosen.follow or chosen.wait):
            print(json.dumps({"kickoff_id": kickoff_id}) if chosen.json else kickoff_id)
            return GOOD
        say(f"execution {kickoff_id}")
        return _until_ended(crew, kickoff_id, is_followed=chosen.follow, as_json=chosen.json)


def follow(chosen: argparse.Namespace) -> int:
    """Show what an execution has done and does, and print its result."""
    with require_server(chosen).open() as daemon:
        crew = daemon.crew(chosen.name)
        return _until_ended(crew, chosen.id, is_followed=True, as_json=chosen.json)


def stop(chosen: argparse.Namespace) -> int:
    """Stop an execution."""
    with require_server(chosen).open() as daemon:
        daemon.crew(chosen.name).stop(chosen.id)
    if chosen.json:
        print(json.dumps({"kickoff_id": chosen.id, "status": "stopped"}))
    else:
        say(f"execution {chosen.id} is stopped")
    return GOOD


def executions(chosen: argparse.Namespace) -> int:
    """List a crew's executions, the newest first."""
    with require_server(chosen).open() as daemon:
        page = daemon.crew(chosen.name).executions(state=chosen.state, limit=chosen.limit)
    rows = [each.model_dump(mode="json") for each in page.executions]
    if chosen.json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        shown = ("kickoff_id", "status", "created_at", "execution_time", "error")
        cells = [{name: row[name] for name in shown} for row in rows]
        print(table({"executions": cells}))
    return GOOD


def read_inputs(given: Sequence[str]) -> dict[str, JsonValue]:
    """Return the inputs of `-i` options: `name=text`, `name:=JSON`, or `@FILE` with a JSON object.

    A later option replaces an earlier one of the same name.

    Raises:
        ClientError: one is none of these, or its file cannot be read.
    """
    inputs: dict[str, JsonValue] = {}
    for option in given:
        if option.startswith("@"):
            inputs |= _read_file(Path(option[1:]))
            continue
        name, sign, value = option.partition("=")
        if not sign or not name.rstrip(":"):
            raise ClientError(
                f"-i {escape_unprintable(option)[:100]}: write name=text, name:=JSON or @FILE"
            )
        if not name.endswith(":"):
            inputs[name] = value
            continue
        try:
            inputs[name[:-1]] = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ClientError(
                f"-i {name}=: its value is no JSON ({error}); for a text write {name[:-1]}=…"
            ) from None
    return inputs


def _read_file(path: Path) -> dict[str, JsonValue]:
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(MAX_INPUT_FILE + 1))
    except OSError as error:
        raise ClientError(f"-i @{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ClientError(f"-i @{path}: it is no JSON of at most 1 MiB: {error}") from None
    if not isinstance(content, dict):
        raise ClientError(f"-i @{path}: it has to be a JSON object of the inputs by name")
    return content


def _until_ended(crew: CrewClient, kickoff_id: str, *, is_followed: bool, as_json: bool) -> int:
    """Wait for the end, and print the result. Ctrl-C ends the waiting alone."""
    try:
        if is_followed:
            console = Console(stderr=True, highlight=False, soft_wrap=True)
            for event in crew.events(kickoff_id):
                if line := describe(event):
                    console.print(line)
        status = crew.wait(kickoff_id)
    except KeyboardInterrupt:
        say(
            f"the execution goes on; `smartlinkd crew follow {crew.name} {kickoff_id}` shows it, "
            f"and `smartlinkd crew stop {crew.name} {kickoff_id}` ends it"
        )
        return 128 + signal.SIGINT
    return _print_end(status, as_json=as_json)


def _print_end(status: StatusResponse, *, as_json: bool) -> int:
    is_good = status.state == "SUCCESS"
    if as_json:
        print(status.model_dump_json(indent=2))
    elif is_good:
        result = status.result if isinstance(status.result, str) else ""
        print(result)
    else:
        why = escape_unprintable(status.error or "it gave no reason")
        say(f"execution {status.kickoff_id} failed ({status.status}): {why}")
    return GOOD if is_good else FAILED


def describe(event: CrewEvent) -> Text | None:
    """Return the line that shows an event to a person; None for those that say nothing new."""
    data = event.data

    def text(name: str) -> str:
        return blank_unprintable(str(data.get(name) or ""))

    match event.type:
        case "task_started":
            return Text.assemble((f"{text('agent')}: ", "bold"), text("name"))
        case "agent_step":
            return Text(f"  {text('thought')}")
        case "log":
            return Text(f"  {text('text')}", style="dim")
        case "tool_usage_finished":
            return Text(f"  {text('tool')}: {text('error') or 'done'}", style="cyan")
        case "human_input_requested":
            return Text(f"  waits for a person: {text('prompt')}", style="yellow")
        case _:
            return None
