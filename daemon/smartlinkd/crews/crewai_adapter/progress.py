"""The crew's progress: CrewAI's events become the daemon's messages.

Events are taken in front of the event bus's `emit`: its handlers run in a pool of threads and may
hear of a task's end before its beginning (docs/decisions/074-crewai-adapter.md).
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from typing import Any

from .connection import DaemonConnection
from .texts import (
    MAX_ID,
    NAME,
    STEP_TEXT,
    TEXT,
    Unusable,
    cut,
    describe,
    encode,
    thought_of,
    to_json,
)

Who = tuple[str | None, str | None]
"""CrewAI's id of a task, and an agent's role."""


class CrewProgress:
    """Turns events into messages. A task of CrewAI's own, such as a planner's, has only steps."""

    def __init__(self, daemon: DaemonConnection, tasks: list[Any]) -> None:
        self._daemon = daemon
        self._numbers = {str(task.id): number for number, task in enumerate(tasks, start=1)}
        self._names: dict[str, str] = {}  # CrewAI's id of a task → the task_id of its last start
        self._used: set[str] = set()  # every task_id so far
        self._open: dict[str, Any] = {}  # CrewAI's id → the task
        # By (CrewAI's id of the task, agent): the model's last (question, answer) that is no step
        # yet, and the agent's prompt.
        self._pending: dict[Who, tuple[str | None, str]] = {}
        self._prompts: dict[Who, str] = {}
        self._handlers: dict[str, Callable[[Any, Any], None]] = {
            "task_started": lambda task, _event: self.begin(task),
            "task_completed": lambda task, event: self.end(str(task.id), event.output),
            "agent_execution_started": self._agent_started,
            "agent_execution_completed": self._agent_completed,
            "agent_execution_error": lambda _, event: self._failed(_who(event)[1], event),
            "llm_call_completed": self._model_answered,
            "llm_call_failed": lambda _, event: self._failed(event.model or "the model", event),
            "llm_guardrail_completed": self._guardrail_completed,
            "tool_usage_finished": lambda _, event: self._tool(event, str(event.output)),
            "tool_usage_error": self._tool_failed,
            "tool_validate_input_error": self._tool_failed,
            "tool_selection_error": self._tool_failed,
        }

    def listen(self, bus: Any) -> None:
        """Handle every event from now on, in the thread that emits it, before all handlers."""
        emit = bus.emit

        def handled(source: Any, event: Any) -> Any:
            try:
                if (handle := self._handlers.get(event.type)) is not None:
                    with self._daemon.lock:
                        handle(source, event)
            except Exception as error:  # noqa: BLE001 - a lost step harms no crew
                print(f"crewai_adapter: {event.type}: {describe(error)}", file=sys.stderr)
            return emit(source, event)

        bus.emit = handled

    def begin(self, task: Any) -> None:
        """Send a task's start. A task that starts again gets another `task_id`."""
        key = str(task.id)
        if key not in self._numbers or key in self._open:
            return
        self._open[key] = task
        self._names[key] = task_id = self._choose_id(key, task)
        self._daemon.send(
            "task_started",
            task_id=task_id,
            name=cut(task.name, NAME) if task.name else None,
            agent=agent_of(task.agent),
            description=cut(task.description.strip(), min(TEXT, self._daemon.room())),
            expected_output=cut(task.expected_output.strip(), min(TEXT, self._daemon.room())),
        )

    def end(self, key: str, output: Any) -> None:
        """Send a task's end. `output` is its TaskOutput, or None without one."""
        if self._open.pop(key, None) is None:
            return
        text = self._daemon.output(str(getattr(output, "raw", None) or ""))
        value = value_of(output)
        room = self._daemon.room()
        if value is not None and len(encode({"output": text, "output_json": value})) > room:
            value = None
        self._daemon.send(
            "task_completed", task_id=self._names[key], output=text, output_json=value
        )

    def end_all(self) -> None:
        """Send the ends of all open tasks: the crew is done."""
        with self._daemon.lock:
            for key, task in list(self._open.items()):
                self.end(key, task.output)

    def flush(self) -> None:
        """Send the pending answers of models as steps."""
        with self._daemon.lock:
            for who in list(self._pending):
                self._report_pending(who)

    def ask(self, task: Any, output: str, prompt: str | None = None) -> tuple[bool, str]:
        """Ask a human about `output`. Without a prompt: whether it is a good answer to `task`.

        Raises `Unusable` if the task is not the crew's own and the open tasks are none or several.
        """
        with self._daemon.asking:
            with self._daemon.lock:
                key = str(getattr(task, "id", None))
                if key not in self._numbers:
                    # Its agent works for the open task. Of several open ones any could end before
                    # the human has answered, which the protocol does not allow.
                    if len(self._open) != 1:
                        raise Unusable("it is not clear for which task a human is asked")
                    [(key, task)] = self._open.items()
                self.begin(task)
                name = self._names[key]
            if prompt is None:
                prompt = (
                    f"Is this a good answer to the task {name}? Approve it, or say what to change."
                )
            return self._daemon.ask(name, prompt, output)

    def _choose_id(self, key: str, task: Any) -> str:
        """Return an unused `task_id`: the task's name if it is fit for one."""
        name = " ".join(str(task.name or "").split())
        if not name or len(name) > MAX_ID // 2 or not name.isprintable():
            name = f"task-{self._numbers[key]}"
        free = itertools.chain([name], (f"{name}-{again}" for again in itertools.count(2)))
        task_id = next(each for each in free if each not in self._used)
        self._used.add(task_id)
        return task_id

    # Events, by their type

    def _agent_started(self, _source: Any, event: Any) -> None:
        self._prompts[_who(event)] = event.task_prompt

    def _agent_completed(self, _source: Any, event: Any) -> None:
        who = _who(event)
        prompt, said = self._prompts.pop(who, None), self._pending.pop(who, (None, ""))[1]
        output = str(event.output)
        # Of an output that is a pydantic model the event has the repr.
        result = said if _is_json(said) and not _is_json(output) else output
        self._step(who, prompt=prompt, thought=thought_of(said), result=result)

    def _model_answered(self, _source: Any, event: Any) -> None:
        """Keep the answer for the step that it leads to: a tool, or the agent's end."""
        who = _who(event)
        self._report_pending(who)
        if isinstance(event.response, str) and event.response:
            self._pending[who] = last_text(event.messages), event.response

    def _report_pending(self, who: Who) -> None:
        prompt, said = self._pending.pop(who, (None, ""))
        if said:
            self._step(who, prompt=prompt, result=said)

    def _failed(self, what: str | None, event: Any) -> None:
        self._daemon.log("warning", f"{what}: {event.error}")

    def _guardrail_completed(self, _source: Any, event: Any) -> None:
        if not event.success:
            self._daemon.log("info", f"a guardrail refused an answer: {event.error}")

    def _tool_failed(self, _source: Any, event: Any) -> None:
        self._tool(event, f"failed: {event.error}")

    def _tool(self, event: Any, result: str) -> None:
        who = _who(event)
        prompt, said = self._pending.pop(who, (None, ""))
        given = to_json(event.tool_args)
        if len(encode({"tool_input": given})) > STEP_TEXT:
            given = cut(json.dumps(given, ensure_ascii=False), STEP_TEXT)
        self._step(
            who,
            prompt=prompt,
            thought=thought_of(said),
            tool=cut(event.tool_name, NAME),
            tool_input=given,
            result=result,
        )

    def _step(self, who: Who, **fields: Any) -> None:
        for name in ("prompt", "thought", "result"):
            if (text := fields.get(name)) is not None:
                fields[name] = cut(text, STEP_TEXT)
        key, agent = who
        self._daemon.send_if_room("step", task_id=self._names.get(key or ""), agent=agent, **fields)


def _is_json(text: str) -> bool:
    """Return True if the text is a JSON object or list."""
    try:
        return isinstance(json.loads(text), (dict, list))
    except (ValueError, RecursionError):
        return False


def value_of(output: Any) -> Any:
    """Return an output's JSON. The output of an `Agent.kickoff()` has no `json_dict`."""
    return to_json(getattr(output, "json_dict", None) or getattr(output, "pydantic", None))


def _who(event: Any) -> Who:
    """Return an event's task, by CrewAI's id, and its agent's role."""
    key = getattr(event, "task_id", None) or getattr(getattr(event, "task", None), "id", None)
    role = getattr(event, "agent_role", None)
    return str(key) if key else None, _name(role) if role else agent_of(
        getattr(event, "agent", None)
    )


def agent_of(agent: Any) -> str | None:
    """Return the agent's role; None without an agent."""
    role = getattr(agent, "role", None)
    return _name(role) if role else None


def _name(role: Any) -> str:
    # In YAML a role is a block of text as a rule, and ends in a newline.
    return cut(str(role).strip(), NAME)


def last_text(messages: Any) -> str | None:
    """Return the text that a model was sent last: that of the last message with one."""
    if isinstance(messages, str):
        return messages
    texts = [each.get("content") for each in messages or () if isinstance(each, dict)]
    return next((text for text in reversed(texts) if isinstance(text, str)), None)
