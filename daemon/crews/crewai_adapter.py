"""Run a CrewAI project as a worker: `PYTHON crewai_adapter.py PROJECT`.

The problem: CrewAI needs asyncio, more than a hundred packages and its own versions of some that
the daemon has, too. So a crew has an interpreter of its own, in which nothing of the daemon is, and
nobody in it knows the worker protocol (`docs/crew-workers.md`).

The choice: this one file, which that interpreter runs. It imports the standard library alone until
it knows its inputs, then `crewai`, and nothing of the daemon ever; it runs on Python 3.10. It loads
the project as `crewai run` does, tells of its progress, and answers for the human. What is known of
CrewAI here was read in its source, 1.15; what is used of it is there since 1.11.

How the progress is seen: by standing in front of the event bus's `emit`. Rejected: handlers on the
bus (a pool of ten threads runs them, so they are told of a task's end before its beginning), and
the step callback (it is not called in a run without tools).

Everything that crews say is cut to bounds, visibly, and never refused for its size; steps give way
first, so that the ends of tasks and the result always have room.
"""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import importlib
import itertools
import json
import os
import queue
import re
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import IO, Any, NoReturn, cast

# The bounds of the protocol; a test holds them to the daemon's.
MAX_LINE = 1024 * 1024
MAX_WAITING_CALLS = 16
MAX_ID = 200
# Bytes, so at most as many characters as the protocol allows.
NAME = 1000
TEXT = 64 * 1024
ERROR = 4 * 1024
# What an execution may say (10 000 messages, 16 MiB) is shared out: steps and logs end at the first
# pair, calls of tools at the second. What is left is for the ends of tasks, questions to a human,
# and the result.
STEPS_UNTIL = (8_000, 8 * 1024 * 1024)
CALLS_UNTIL = (9_500, 12 * 1024 * 1024)
# Bytes of one output of a task, and what they come down to when there is little room left.
OUTPUT = 256 * 1024
SHORT_OUTPUT = 2 * 1024
STEP_TEXT = 32 * 1024
# Levels. The protocol has some 200, and an output is a few levels deep in its message.
NESTING = 100
# A shorter value in the environment is no secret, and would be found in ordinary words.
SHORTEST_SECRET = 8

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


class Unusable(Exception):  # noqa: N818 - says what is so, as its text does
    """The project cannot be run. The text is for its owner, and whole."""


class ToolFailed(Exception):  # noqa: N818 - the same; a project catches it by this name
    """A tool of smartlinkd's did not do its work. The text says why."""


# Words and bounds: pure


def cut(text: str, limit: int) -> str:
    """`text`, or its beginning and how long it was, in at most `limit` bytes of JSON."""
    if len(text) <= limit and _size(text) <= limit:
        return text
    rest = f"… (cut: {len(text)} characters in all)"
    room = limit - _size(rest)
    kept = text[:room]
    while (size := _size(kept)) > room:
        kept = kept[: len(kept) * room // size - 1]
    return kept + rest


def _size(text: str) -> int:
    return len(json.dumps(text, ensure_ascii=False).encode("utf-8", "replace"))


def encode(message: Mapping[str, Any]) -> bytes:
    """A line. What is None is left out; half a surrogate pair, which UTF-8 has not, becomes `?`."""
    said = {name: value for name, value in message.items() if value is not None}
    text = json.dumps(said, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "replace") + b"\n"


def plain(value: Any) -> Any:
    """`value` as JSON has it, a pydantic model as its fields; None for what cannot be told so."""
    try:
        text = json.dumps(value, default=_fields, allow_nan=False)
        return json.loads(text) if _depth(json.loads(text)) <= NESTING else None
    except (TypeError, ValueError, RecursionError):
        return None


def _fields(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else str(value)


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_depth, inner), default=0) if isinstance(value, (dict, list)) else 0


def thought_of(text: str) -> str | None:
    """What an agent that is asked for `Thought: … Action: …` or `… Final Answer: …` thought."""
    marker = re.search("^(Action|Final Answer):", text, re.MULTILINE)
    return (
        text[: marker.start()].strip().removeprefix("Thought:").strip() or None if marker else None
    )


def hide(text: str, environment: Mapping[str, str]) -> str:
    """`text` without the values of variables that are named as secrets are."""
    secrets = [
        (value, name)
        for name, value in environment.items()
        if len(value) >= SHORTEST_SECRET
        and re.search("KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", name.upper())
    ]
    for value, name in sorted(secrets, key=lambda pair: len(pair[0]), reverse=True):
        text = text.replace(value, f"[{name}]")
    return text


def describe(error: BaseException) -> str:
    """One line about it, without secrets."""
    text = " ".join(hide(str(error), os.environ).split())
    if not isinstance(error, Unusable):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return cut(text, ERROR)


# The line to the daemon


class Line:
    """The conversation with the daemon. Any thread may speak; one listens."""

    def __init__(self, connection: socket.socket) -> None:
        # Held by whoever decides and then says: what is said is in the order of the decisions.
        self.lock = threading.RLock()
        self._connection = connection
        self._inputs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._feedback: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._results: dict[str, queue.SimpleQueue[Any]] = {}
        self._calling = threading.Semaphore(MAX_WAITING_CALLS)
        self._asking = threading.Lock()
        self._messages = self._bytes = self._calls = 0
        self._started = self._ended = self._left_out = False
        threading.Thread(target=self._listen, name="smartlinkd", daemon=True).start()

    def inputs(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The crew's inputs, and the names of the tools that it may use."""
        message = self._inputs.get()
        return message["inputs"], tuple(message["tools"])

    def start(self, total_tasks: int | None = None) -> None:
        """Say that the crew runs. Whoever says something before it does so, too."""
        with self.lock:
            if not self._started:
                self._started = True
                self.say("started", total_tasks=total_tasks)

    def say(self, kind: str, **fields: Any) -> None:
        """Say it, unless all has been said."""
        with self.lock:
            self.start()
            if self._ended:
                return
            line = encode({"type": kind, **fields})
            self._messages += 1
            self._bytes += len(line)
            try:
                self._connection.sendall(line)
            except OSError:
                os._exit(1)  # there is nobody any more to work for

    def mention(self, kind: str, **fields: Any) -> None:
        """Say what may be left out, if there is room."""
        with self.lock:
            if self._has_room(STEPS_UNTIL):
                self.say(kind, **fields)
            elif not self._left_out:
                self._left_out = True
                text = "this execution has said so much that further steps are left out"
                self.say("log", level="warning", text=text)

    def log(self, level: str, text: str) -> None:
        self.mention("log", level=level, text=cut(hide(text, os.environ), TEXT))

    def output(self, text: str) -> str:
        """The output of a task, cut to what there is room for."""
        return cut(text, self.room())

    def room(self) -> int:
        """Bytes that there are for the end of a task."""
        return OUTPUT if self._has_room(CALLS_UNTIL) else SHORT_OUTPUT

    def call(self, tool: str, arguments: Mapping[str, Any]) -> Any:
        """Have the daemon do it and wait for the result. Raises ToolFailed."""
        wanted = plain(arguments)
        if not isinstance(wanted, dict) or len(encode(wanted)) > OUTPUT:
            raise ToolFailed(f"{tool}: its arguments are no JSON object, or over {OUTPUT} bytes")
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        with self._calling:
            with self.lock:
                if self._ended or not self._has_room(CALLS_UNTIL):
                    raise ToolFailed(f"{tool}: this execution has had all the calls it may have")
                self._calls += 1
                call_id = str(self._calls)
                self._results[call_id] = answer
                self.say("tool_call", call_id=call_id, tool=tool, arguments=wanted)
            message = answer.get()
        if message["error"] is not None:
            raise ToolFailed(message["error"])
        return message["result"]

    def ask(self, task_id: str, prompt: str, output: str) -> tuple[bool, str]:
        """Ask a human about an open task, and wait: approved, and what else was said."""
        with self._asking:
            text = cut(prompt, TEXT)
            self.say("human_input", task_id=task_id, prompt=text, output=self.output(output))
            message = self._feedback.get()
        return message["approved"], message["feedback"]

    def result(self, output: str, output_json: Any, token_usage: Mapping[str, int] | None) -> None:
        """The good end."""
        said = {"output": output, "output_json": output_json, "token_usage": token_usage}
        if len(encode(said)) > MAX_LINE - NAME and output_json is not None:
            self.log("warning", "output_json is left out: with it the result would be too long")
            said["output_json"] = None
        said["output"] = cut(output, MAX_LINE - NAME)
        self._finish("result", **said)

    def fail(self, error: str) -> None:
        """The other end."""
        self._finish("failed", error=error)

    def _finish(self, kind: str, **fields: Any) -> None:
        with self.lock:
            self.say(kind, **fields)
            self._ended = True

    def _has_room(self, until: tuple[int, int]) -> bool:
        messages, size = until
        return self._messages < messages and self._bytes < size

    def _listen(self) -> None:
        try:
            for line in self._connection.makefile("rb"):
                message = json.loads(line)
                match message["type"]:
                    case "inputs":
                        self._inputs.put(message)
                    case "tool_result":
                        self._results.pop(message["call_id"]).put(message)
                    case "human_feedback":
                        self._feedback.put(message)
                    case "stop":
                        os._exit(0)  # no cleaning up: there is no telling how long that takes
        finally:
            with self.lock:  # the daemon closes its end as soon as it has heard the last message
                if not self._ended:  # there is nobody any more to work for
                    os._exit(1)


# What the crew does


class Progress:
    """Its events as messages. Tasks that are not the crew's own, such as a planner's, are none."""

    def __init__(self, line: Line, tasks: list[Any]) -> None:
        self._line = line
        self._numbers = {str(task.id): number for number, task in enumerate(tasks, start=1)}
        self._names: dict[str, str] = {}  # CrewAI's id of a task → our task_id, of its last start
        self._used: set[str] = set()  # every task_id so far
        self._open: dict[str, Any] = {}  # CrewAI's id → the task
        # What the model has said last to whom in which task: (what it was asked, its answer).
        self._said: dict[tuple[str | None, str | None], tuple[str | None, str]] = {}
        self._told: dict[tuple[str | None, str | None], str] = {}  # … as a step of its own
        self._prompts: dict[tuple[str | None, str | None], str] = {}
        self._hears: dict[str, Callable[[Any, Any], None]] = {
            "task_started": lambda task, _event: self.begin(task),
            "task_completed": self._task_completed,
            "agent_execution_started": self._agent_started,
            "agent_execution_completed": self._agent_completed,
            "agent_execution_error": self._agent_failed,
            "llm_call_completed": self._model_answered,
            "llm_call_failed": self._model_failed,
            "llm_guardrail_completed": self._guardrail_completed,
            "tool_usage_finished": self._tool_finished,
            "tool_usage_error": self._tool_failed,
            "tool_validate_input_error": self._tool_failed,
            "tool_selection_error": self._tool_failed,
        }

    def listen(self, bus: Any) -> None:
        """Hear of every event from now on, in its own thread and before anybody else does."""
        emit = bus.emit

        def heard(source: Any, event: Any) -> Any:
            try:
                if (hear := self._hears.get(event.type)) is not None:
                    with self._line.lock:
                        hear(source, event)
            except Exception as error:  # noqa: BLE001 - a step that is not told harms no crew
                print(f"crewai_adapter: {event.type}: {describe(error)}", file=sys.stderr)
            return emit(source, event)

        bus.emit = heard

    def begin(self, task: Any) -> None:
        """A task has started. One that has run before is another task to the daemon."""
        key = str(task.id)
        if key not in self._numbers or key in self._open:
            return
        self._open[key] = task
        self._names[key] = task_id = self._choose_id(key, task)
        self._line.say(
            "task_started",
            task_id=task_id,
            name=cut(task.name, NAME) if task.name else None,
            agent=_agent(task.agent),
            description=cut(task.description.strip(), min(TEXT, self._line.room())),
            expected_output=cut(task.expected_output.strip(), min(TEXT, self._line.room())),
        )

    def end(self, key: str, output: Any) -> None:
        """A task is done; `output` is its TaskOutput, or None when it left none."""
        if self._open.pop(key, None) is None:
            return
        text = self._line.output(str(getattr(output, "raw", None) or ""))
        value = _value_of(output)
        room = self._line.room()
        if value is not None and len(encode({"output": text, "output_json": value})) > room:
            value = None
        self._line.say("task_completed", task_id=self._names[key], output=text, output_json=value)

    def end_all(self) -> None:
        """The crew is done, so all its tasks are."""
        with self._line.lock:
            for key, task in list(self._open.items()):
                self.end(key, task.output)

    def tell_rest(self) -> None:
        """Nothing more comes: what models have said last, of which nothing has come, are steps."""
        with self._line.lock:
            for who in list(self._said):
                self._tell_said(who)

    def ask(self, task: Any, output: str, prompt: str | None = None) -> tuple[bool, str]:
        """Ask a human about `output`; without a prompt, whether it is a good answer to `task`."""
        with self._line.lock:
            key = str(task.id)
            self._numbers.setdefault(key, len(self._numbers) + 1)
            self.begin(task)
            name = self._names[key]
            if prompt is None:
                for who in [who for who in self._said if who[0] == key]:
                    self._tell_said(who)
                prompt = (
                    f"Is this a good answer to the task {name}? Approve it, or say what to change."
                )
        return self._line.ask(name, prompt, output)

    def _choose_id(self, key: str, task: Any) -> str:
        """A `task_id` that is not used yet: the task's name where it has one that will do."""
        name = " ".join(str(task.name or "").split())
        if not name or len(name) > MAX_ID // 2 or not name.isprintable():
            name = f"task-{self._numbers[key]}"
        free = itertools.chain([name], (f"{name}-{again}" for again in itertools.count(2)))
        task_id = next(each for each in free if each not in self._used)
        self._used.add(task_id)
        return task_id

    # Events, by their type

    def _task_completed(self, task: Any, event: Any) -> None:
        self.end(str(task.id), event.output)

    def _agent_started(self, _source: Any, event: Any) -> None:
        self._prompts[_who(event)] = event.task_prompt

    def _agent_completed(self, _source: Any, event: Any) -> None:
        who = _who(event)
        prompt, said = self._prompts.pop(who, None), self._said.pop(who, (None, ""))[1]
        told = self._told.pop(who, "")
        # Of an output that is a model, the event has what Python prints of it.
        result = next(filter(_is_json, (said, told)), str(event.output))
        if said or result != told:  # else a human was shown it
            self._step(who, prompt=prompt, thought=thought_of(said), result=result)

    def _agent_failed(self, _source: Any, event: Any) -> None:
        self._tell_said(_who(event))
        self._line.log("warning", f"{_who(event)[1]}: {event.error}")

    def _model_answered(self, _source: Any, event: Any) -> None:
        """The answer waits for what comes of it: a tool, the agent's end, or another question."""
        if isinstance(event.response, str) and event.response:
            who = _who(event)
            self._tell_said(who)
            self._said[who] = _last_words(event.messages), event.response

    def _tell_said(self, who: tuple[str | None, str | None]) -> None:
        prompt, said = self._said.pop(who, (None, ""))
        if said:
            self._told[who] = said
            self._step(who, prompt=prompt, result=said)

    def _model_failed(self, _source: Any, event: Any) -> None:
        self._line.log("warning", f"{event.model or 'the model'}: {event.error}")

    def _guardrail_completed(self, _source: Any, event: Any) -> None:
        if not event.success:
            self._line.log("info", f"a guardrail refused an answer: {event.error}")

    def _tool_finished(self, _source: Any, event: Any) -> None:
        self._tool(event, str(event.output))

    def _tool_failed(self, _source: Any, event: Any) -> None:
        self._tool(event, f"failed: {event.error}")

    def _tool(self, event: Any, result: str) -> None:
        who = _who(event)
        prompt, said = self._said.pop(who, (None, ""))
        self._told.pop(who, None)  # so it was not yet the answer
        given = plain(event.tool_args)
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

    def _step(self, who: tuple[str | None, str | None], **fields: Any) -> None:
        for name in ("prompt", "thought", "result"):
            if (text := fields.get(name)) is not None:
                fields[name] = cut(text, STEP_TEXT)
        key, agent = who
        self._line.mention("step", task_id=self._names.get(key or ""), agent=agent, **fields)


def _is_json(text: str) -> bool:
    """Whether it is an object or a list."""
    try:
        return isinstance(json.loads(text), (dict, list))
    except (ValueError, RecursionError):
        return False


def _value_of(output: Any) -> Any:
    """The JSON of an output of CrewAI's, which of an `Agent.kickoff()` has no `json_dict`."""
    return plain(getattr(output, "json_dict", None) or getattr(output, "pydantic", None))


def _who(event: Any) -> tuple[str | None, str | None]:
    """(CrewAI's id of the task, role of the agent) of an event."""
    key = getattr(event, "task_id", None) or getattr(getattr(event, "task", None), "id", None)
    role = getattr(event, "agent_role", None)
    return str(key) if key else None, _name(role) if role else _agent(getattr(event, "agent", None))


def _agent(agent: Any) -> str | None:
    role = getattr(agent, "role", None)
    return _name(role) if role else None


def _name(role: Any) -> str:
    """In YAML a role is a block of text as a rule, and ends in a newline."""
    return cut(str(role).strip(), NAME)


def _last_words(messages: Any) -> str | None:
    """What a model was asked last: of a list of messages the last one that has a text."""
    if isinstance(messages, str):
        return messages
    texts = [each.get("content") for each in messages or () if isinstance(each, dict)]
    return next((text for text in reversed(texts) if isinstance(text, str)), None)


class Human:
    """CrewAI's provider of human input: the human is asked through the daemon."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def setup_messages(self, _context: Any) -> bool:
        return False

    def post_setup_messages(self, _context: Any) -> None:
        pass

    def handle_feedback(self, formatted_answer: Any, context: Any) -> Any:
        """The answer that the human approves of in the end."""
        answer = formatted_answer
        while (wish := self._wish(answer, context)) is not None:
            context.messages.append(context._format_feedback_message(wish))
            answer = context._invoke_loop()
        return answer

    async def handle_feedback_async(self, formatted_answer: Any, context: Any) -> Any:
        """The same for a crew that is run in an event loop."""
        answer = formatted_answer
        while (wish := await asyncio.to_thread(self._wish, answer, context)) is not None:
            context.messages.append(context._format_feedback_message(wish))
            answer = await context._ainvoke_loop()
        return answer

    def _wish(self, answer: Any, context: Any) -> str | None:
        """What the human wants changed; None when the answer is approved."""
        text = answer.output if isinstance(answer.output, str) else _fields_text(answer.output)
        approved, feedback = self._progress.ask(context.task, text)
        if approved:
            context.ask_for_human_input = False
            return None
        return feedback.strip() or "This is not good enough yet. Improve it."


def _fields_text(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False)


def ask_for_hooks(hooks: Any, progress: Progress) -> None:
    """Have the human whom a hook asks for (`context.request_human_input`) asked through the daemon.

    CrewAI would read its standard input, which is empty, and go on as if the human had agreed: of
    what a hook raises it heeds `HookAborted` alone.
    """
    refused = getattr(hooks, "HookAborted", SystemExit)  # an older CrewAI heeds no exception at all

    def request(context: Any, prompt: str, default_message: str = "") -> str:
        """What the human says to it. Raises HookAborted when they refuse, or cannot be asked."""
        if context.task is None:
            raise refused("a human can be asked within a task alone")
        question = "\n".join(filter(None, (prompt, default_message)))
        approved, text = progress.ask(context.task, _asked_about(context), question)
        if not approved:
            raise refused(text.strip() or "a human refused")
        return text.strip()

    for name in ("ToolCallHookContext", "LLMCallHookContext"):
        if (kind := getattr(hooks, name, None)) is not None:
            kind.request_human_input = request


def _asked_about(context: Any) -> str:
    """What a hook stands before or after: the use of a tool, or a call of a model."""
    if (tool := getattr(context, "tool_name", None)) is None:
        return str(context.response or _last_words(context.messages) or "")
    use = f"{tool} {_fields_text(context.tool_input)}"
    return use if context.tool_result is None else f"{use}\n{context.tool_result}"


# What a project can use of smartlinkd's

CONVERT_LINKS = "convert_links"
TOOLS = (CONVERT_LINKS,)


def offer_tools(line: Line, allowed: tuple[str, ...]) -> ModuleType:
    """The module `smartlinkd_crew`: `call`, `ToolFailed`, a class for each tool, and `tools`,
    an instance of each that this crew may use."""

    def call(tool: str, **arguments: Any) -> Any:
        """Have smartlinkd do `tool` with these arguments, and return its result, plain JSON.

        Raises ToolFailed.
        """
        return line.call(tool, arguments)

    module = ModuleType("smartlinkd_crew", "What smartlinkd does for the crews that it runs.")
    classes = {CONVERT_LINKS: _convert_links(call, CONVERT_LINKS in allowed)}
    for made in classes.values():
        setattr(module, made.__name__, made)
    module.__dict__.update(
        call=call,
        ToolFailed=ToolFailed,
        tools=[classes[name]() for name in TOOLS if name in allowed],
    )
    return module


def _convert_links(call: Callable[..., Any], allowed: bool) -> type[Any]:
    base: Any = importlib.import_module("crewai.tools").BaseTool
    pydantic = importlib.import_module("pydantic")

    def run(_self: Any, **arguments: Any) -> str:
        given = {name: value for name, value in arguments.items() if value is not None}
        return json.dumps(call(CONVERT_LINKS, **given), ensure_ascii=False)

    def check(self: Any, context: Any) -> None:
        if not allowed:
            raise Unusable(
                f"this crew may not use {CONVERT_LINKS}; if it should, add it to `tools` of the "
                "crew in smartlinkd's configuration"
            )
        base.model_post_init(self, context)

    made: type[Any] = pydantic.create_model(
        "ConvertLinks",
        __base__=type("ConvertLinks", (base,), {"_run": run, "model_post_init": check}),
        __module__="smartlinkd_crew",
        name=(str, CONVERT_LINKS),
        description=(
            str,
            "Turns links to products of the marketplace into affiliate links. The answer is JSON: "
            "for each link its shortLink and longLink and the product's data (name, price, "
            "commission and more), or a failCode.",
        ),
        args_schema=(
            type[Any],
            pydantic.create_model(
                "ConvertLinksArguments",
                links=(
                    list[str],
                    pydantic.Field(description="1 to 15 links to products, or short links"),
                ),
                subIds=(
                    list[str] | None,
                    pydantic.Field(None, description="up to 5 tracking ids, letters and digits"),
                ),
            ),
        ),
    )
    return made


# The project


def find(project: Path) -> Path | str:
    """The definition of a JSON crew, or the name of a classic project's module.

    The rules are those of `crewai run`, and that a `crew.json` need not be named in the
    pyproject.toml; a classic project's module is `src/<package>/crew.py`. Nothing is run. Raises
    Unusable, with a text of the form `what is wrong; what to do`.
    """
    if not project.is_dir():
        raise Unusable(f"there is no folder {project}; name the one that `crewai create` made")
    settings = _read_toml(project / "pyproject.toml")
    crewai = _table(settings, "tool", "crewai")
    if (kind := crewai.get("type", "crew")) != "crew":
        raise Unusable(
            f"this project is a {kind} ([tool.crewai] type in pyproject.toml), and smartlinkd runs "
            "crews; give the crew a project of its own"
        )
    if "definition" in crewai:
        return _definition(project, str(crewai["definition"]))
    if module := _module(project, settings):
        return module
    for name in ("crew.jsonc", "crew.json"):
        if (project / name).is_file():
            return project / name
    raise Unusable(
        f"there is no crew in {project}: no src/<package>/crew.py, no crew.jsonc and no crew.json; "
        "name the folder that `crewai create` made"
    )


def _read_toml(path: Path) -> dict[str, Any]:
    name = "tomllib" if sys.version_info >= (3, 11) else "tomli"
    try:
        settings: dict[str, Any] = importlib.import_module(name).loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as fault:
        raise Unusable(f"{path.name} cannot be read ({fault}); mend that file") from fault
    return settings


def _table(settings: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """The table of that name, empty where there is none."""
    table: Any = settings
    for name in names:
        table = table.get(name)
        if not isinstance(table, dict):
            return {}
    return cast("Mapping[str, Any]", table)


def _definition(project: Path, name: str) -> Path:
    root = project.resolve()
    try:
        path = (root / name).resolve()
        if path.is_relative_to(root) and path.is_file():
            return path
    except (OSError, ValueError):
        pass  # it is no file either
    raise Unusable(
        f"[tool.crewai] definition in pyproject.toml, {name!r}, is no file in the project; name "
        "its crew.jsonc"
    )


def _module(project: Path, settings: Mapping[str, Any]) -> str | None:
    """`<package>.crew`; of several packages the one that the pyproject.toml means."""
    found = sorted(path.parent.name for path in project.glob("src/*/crew.py"))
    meant = (
        str(_table(settings, "project", "scripts").get("run_crew", "")).split(".")[0],
        str(_table(settings, "project").get("name", "")).replace("-", "_"),
    )
    name = next((name for name in meant if name in found), None)
    if name is None and len(found) > 1:
        raise Unusable(
            f"several packages in {project / 'src'} have a crew.py ({', '.join(found)}); name one "
            "in pyproject.toml as run_crew in [project.scripts]"
        )
    return f"{name or found[0]}.crew" if found else None


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


# The run


def run(line: Line, project: Path, inputs: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    """Load the crew and run it, up to its result. Raises Unusable, and what the crew raises."""
    home = Path.home()
    source = find(project)
    for name, value in {**SWITCHED_OFF, "CREWAI_STORAGE_DIR": str(home / "crewai")}.items():
        os.environ.setdefault(name, value)
    os.chdir(project)  # knowledge and the like are found from there
    # Not from the folder of this file: modules in it are named like a project's own, `tools` say.
    ours = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != ours]
    sys.path[:0] = [str(project / "src"), str(project)]
    sys.dont_write_bytecode = True  # the project stays as it is
    with told_as(f"CrewAI 1.11 or later is needed in {sys.executable}"):
        importlib.import_module("dotenv").load_dotenv(project / ".env")
        human_input = importlib.import_module("crewai.core.providers.human_input")
        events = importlib.import_module("crewai.events")
        hooks = importlib.import_module("crewai.hooks")
        tracing = importlib.import_module("crewai.events.listeners.tracing.utils")
    share_locks(home)
    sys.modules["smartlinkd_crew"] = offer_tools(line, allowed)
    crew, defaults = load(source)
    crew.stream = False  # a stream is an iterator, and the crew runs while somebody iterates
    if not tracing.should_enable_tracing():
        crew.tracing = False  # what the code says does not count
        tracing.set_tracing_enabled(False)
    keep_apart(crew, home)
    guard_files(crew, home)
    line.start(len(crew.tasks))
    give_time(crew, line)
    progress = Progress(line, crew.tasks)
    progress.listen(events.crewai_event_bus)
    human_input.set_provider(Human(progress))
    ask_for_hooks(hooks, progress)
    try:
        output = crew.kickoff(inputs={**defaults, **inputs})
    finally:
        progress.tell_rest()
    progress.end_all()
    line.result(*told(output), usage_of(crew, output))


def share_locks(home: Path) -> None:
    """Have runs wait for one another where they share CREWAI_STORAGE_DIR: CrewAI's own locks are
    files in TMPDIR, of which each run has its own."""
    storage = Path(os.environ["CREWAI_STORAGE_DIR"])
    if not storage.is_absolute() or storage.is_relative_to(home):
        return  # nobody shares it
    try:
        store = importlib.import_module("crewai_core.lock_store")
    except ImportError:  # an older CrewAI
        return

    @contextmanager
    def held(name: str, *, timeout: float) -> Iterator[None]:
        """Raises TimeoutError. What is the run's own leaves nothing in the storage."""
        is_own = str(home) in name or str(home.resolve()) in name
        folder = (home if is_own else storage) / ".locks"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / hashlib.sha256(os.fsencode(name)).hexdigest()).open("a") as file:
            _lock(file, name, timeout)
            yield  # to close the file is to let go

    if (replace := getattr(store, "set_lock_backend", None)) is not None:
        replace(held)


def _lock(file: IO[str], name: str, timeout: float) -> None:
    until = time.monotonic() + timeout
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise TimeoutError(f"the lock {name} was not free within {timeout:g} s") from None
        time.sleep(0.05)


def keep_apart(crew: Any, home: Path) -> None:
    """Have the files that it writes in its folder, apart from other runs': the project may be
    read-only. One with an absolute path stays where it is."""
    for task in crew.tasks:
        if task.output_file and not Path(task.output_file).is_absolute():
            task.output_file = str(home / task.output_file)
            task.create_directory = True  # those that are there are in the project
    log = getattr(crew, "_file_handler", None)  # of `output_log_file`
    if log is not None and not Path(log._path).is_absolute():
        (home / log._path).parent.mkdir(parents=True, exist_ok=True)
        log._path = str(home / log._path)
    for owner in (crew, *crew.agents):
        checkpoint = getattr(owner, "checkpoint", None)
        if (location := getattr(checkpoint, "location", None)) is not None:
            checkpoint.location = str(home / location)  # one that is absolute stays
    with suppress(ImportError):  # an older CrewAI keeps no long results of tools
        kept = importlib.import_module("crewai.utilities.tool_result_artifacts")
        if hasattr(kept, "_TOOL_RESULT_TEMP_DIR"):
            kept._TOOL_RESULT_TEMP_DIR = home  # in /tmp they would stay when a run is stopped


def guard_files(crew: Any, home: Path) -> None:
    """Have the run end before its first task where an input would lead an `output_file` elsewhere.

    CrewAI lets no `..` into it, but for what comes in with the inputs. To be called when those that
    were relative are below `home`.
    """
    templates = [task.output_file for task in crew.tasks if "{" in (task.output_file or "")]

    def check(inputs: dict[str, Any]) -> dict[str, Any]:
        """Raises Unusable."""
        fill_in = importlib.import_module("crewai.utilities.string_utils").interpolate_only
        for template in templates:
            path = Path(fill_in(input_string=template, inputs=inputs))
            if Path(template).is_relative_to(home):
                strays = not path.resolve().is_relative_to(home.resolve())
            else:
                strays = ".." in path.parts
            if strays:
                raise Unusable(f"the inputs lead the output_file of a task elsewhere: {path}")
        return inputs

    if templates:
        crew.before_kickoff_callbacks.append(check)  # the project's own may change the inputs


def give_time(crew: Any, line: Line) -> None:
    """Have agents about whose answers a human is asked wait for the human: CrewAI counts that time
    into their `max_execution_time`, and throws away what was approved too late."""
    for task in crew.tasks:
        agent = crew.manager_agent if crew.process == "hierarchical" else task.agent
        if task.human_input and getattr(agent, "max_execution_time", None) is not None:
            agent.max_execution_time = None
            why = "a human is asked about its answers, whose time would count"
            line.log("warning", f"{_agent(agent)}: its max_execution_time is left out, since {why}")


def told(output: Any) -> tuple[str, Any]:
    """The text and the JSON of what a kickoff returned. A project's own callback may return it."""
    if isinstance(output, str):
        return output, None
    raw = getattr(output, "raw", None)
    if isinstance(raw, str):
        return raw, _value_of(output)
    return json.dumps(plain(output), ensure_ascii=False), plain(output)


def usage_of(crew: Any, output: Any) -> dict[str, int] | None:
    """The tokens that a kickoff took, as CrewAI counts them, whatever it returned."""
    usage = crew.usage_metrics or getattr(output, "token_usage", None)
    names = ("total_tokens", "prompt_tokens", "completion_tokens")
    return {name: max(0, int(getattr(usage, name, 0))) for name in names} if usage else None


def main() -> NoReturn:
    if len(sys.argv) != 2 or "SMARTLINKD_FD" not in os.environ:
        sys.exit("smartlinkd starts this, to run a CrewAI project: crewai_adapter.py PROJECT")
    connection = socket.socket(fileno=int(os.environ.pop("SMARTLINKD_FD")))
    connection.set_inheritable(False)
    line = Line(connection)
    inputs, allowed = line.inputs()
    try:
        run(line, Path(sys.argv[1]).resolve(), inputs, allowed)
    except BaseException as error:  # noqa: BLE001 - whatever it is, the daemon is told
        print(hide(traceback.format_exc(), os.environ), file=sys.stderr)
        line.fail(describe(error))
        sys.exit(1)
    sys.exit(0)


if __name__ == "__main__":
    main()
