"""The soak's crew with its worker, and the receiver of its webhook calls."""

from __future__ import annotations

from collections import defaultdict
from enum import StrEnum
from typing import Any, Final

import trio

from tests.fakes.receiver import Call

NAME: Final = "soak"


class End(StrEnum):
    """The end of an execution."""

    RESULT = "result"
    LINKS = "links"  # a result, after a call of the tool convert_links
    FAILURE = "failure"
    HUMAN = "human"  # a result, after an answer to its question
    STOP = "stop"  # the worker waits to be stopped
    KILL = "kill"  # the worker tells its process id, and waits to be killed


_WORKER: Final = r"""
say() { printf '%s\n' "$1" >&3; }
given() { printf '%s' "$inputs" | sed -n "s/.*\"$1\":\"\([^\"\\\\]*\)\".*/\1/p"; }
give_up() { say "{\"type\": \"failed\", \"error\": \"$1\"}"; echo "$1" >&2; exit 3; }

IFS= read -r inputs <&3
say '{"type": "started", "total_tasks": 1}'
say "{\"type\": \"task_started\", \"task_id\": \"only\", \"name\": \"$$\", \"agent\": \"worker\"}"
case $(given end) in
result)
    say '{"type": "step", "task_id": "only", "thought": "It is done when it is done."}' ;;
links)
    links="[\"$(given link)\"]"
    tool='"call_id": "1", "tool": "convert_links"'
    say "{\"type\": \"tool_call\", $tool, \"arguments\": {\"links\": $links}}"
    IFS= read -r answer <&3
    case $answer in
    *'"failCode":0'*) ;;
    *) give_up "no link was made" ;;
    esac ;;
failure) give_up "it was to fail" ;;
human)
    say '{"type": "human_input", "task_id": "only", "prompt": "Good?", "output": "a draft"}'
    IFS= read -r answer <&3 ;;
*)
    IFS= read -r stop <&3
    exit 1 ;;
esac
say '{"type": "task_completed", "task_id": "only", "output": "done"}'
say '{"type": "result", "output": "done"}'
"""
CREW: Final[dict[str, Any]] = {
    "name": NAME,
    "runner": "command",
    "command": ["/bin/sh", "-c", _WORKER],
    "tools": ["convert_links"],
    "deadline": 120,
}


class EndReceiver:
    """Answers webhook calls, and refuses some at first. `url` is the receiver's address."""

    def __init__(self) -> None:
        self.url = ""
        self.refused_once: set[str] = set()
        """Ids of executions whose next call is refused."""
        self._ended = defaultdict[str, trio.Event](trio.Event)

    async def wait_for_end(self, execution: str) -> None:
        """Wait for the call to /end of an execution."""
        await self._ended[execution].wait()
        del self._ended[execution]

    async def answer(self, call: Call) -> int:
        """Return the HTTP status for a call."""
        await trio.lowlevel.checkpoint()
        body = call.body
        execution = body["events"][0]["execution_id"] if "events" in body else body["kickoff_id"]
        if execution in self.refused_once:
            self.refused_once.remove(execution)
            return 500
        if call.path == "/end":
            self._ended[execution].set()
        return 200
