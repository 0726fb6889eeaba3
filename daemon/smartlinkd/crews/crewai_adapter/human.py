"""What a crew asks a human, asked by the daemon: about its answers, and what its hooks ask."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any, NoReturn

from .connection import DaemonConnection
from .progress import Progress, agent_of, last_words
from .words import Unusable, describe, plain


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


def ask_for_hooks(hooks: Any, progress: Progress, daemon: DaemonConnection) -> None:
    """Have the human whom a hook asks for (`context.request_human_input`) asked through the daemon.

    CrewAI would read its standard input, which is empty, and go on as if the human had agreed: of
    what a hook raises it heeds `HookAborted` alone.
    """

    def refuse(why: str) -> NoReturn:
        """Raises HookAborted."""
        if (aborted := getattr(hooks, "HookAborted", None)) is not None:
            raise aborted(why)
        # An older CrewAI heeds no exception at all, and a task beside others is on a thread whose
        # end nobody sees: only the end of the program is sure to stop what was refused.
        progress.tell_rest()
        daemon.fail(describe(Unusable(f"a hook of the crew was refused: {why}")))
        os._exit(1)

    def request(context: Any, prompt: str, default_message: str = "") -> str:
        """What the human says to it. Raises HookAborted when they refuse, or cannot be asked."""
        if context.task is None:
            refuse("a human can be asked within a task alone")
        try:
            question = "\n".join(filter(None, (prompt, default_message)))
            approved, text = progress.ask(context.task, _asked_about(context), question)
        except Exception as error:  # noqa: BLE001 - whatever it is, nobody has agreed
            refuse(f"no human could be asked: {describe(error)}")
        if not approved:
            refuse(text.strip() or "a human refused")
        return text.strip()

    for name in ("ToolCallHookContext", "LLMCallHookContext"):
        if (kind := getattr(hooks, name, None)) is not None:
            kind.request_human_input = request


def _asked_about(context: Any) -> str:
    """What a hook stands before or after: the use of a tool, or a call of a model."""
    if (tool := getattr(context, "tool_name", None)) is None:
        return str(context.response or last_words(context.messages) or "")
    use = f"{tool} {_fields_text(context.tool_input)}"
    return use if context.tool_result is None else f"{use}\n{context.tool_result}"


def give_time(crew: Any, daemon: DaemonConnection) -> None:
    """Have agents about whose answers a human is asked wait for the human: CrewAI counts that time
    into their `max_execution_time`, and throws away what was approved too late."""
    for task in crew.tasks:
        agent = crew.manager_agent if crew.process == "hierarchical" else task.agent
        if task.human_input and getattr(agent, "max_execution_time", None) is not None:
            agent.max_execution_time = None
            why = "a human is asked about its answers, whose time would count"
            daemon.log(
                "warning", f"{agent_of(agent)}: its max_execution_time is left out, since {why}"
            )
