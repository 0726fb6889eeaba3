"""How an execution ended, and which one it was: what is recorded and told of it, as pure rules.

The problem: a worker's end (`ends.py`) is not yet its execution's, which may have no worker at all,
or be cut short. And all who record an end or tell of it (the journal, the log, webhooks) have to
mean the same by it.

The choice: whatever ends an execution is an `Ending`, made here. Nothing here knows who is told.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from pydantic import JsonValue
from pydantic_core import from_json

from smartlinkd.crews.ends import WorkerEnd
from smartlinkd.crews.protocol import Result
from smartlinkd.store.model import Status, WebhookTarget


@dataclass(frozen=True)
class About:
    """The execution that is told of, and the webhook targets that are in force."""

    execution_id: str
    meta: JsonValue = field(repr=False)
    webhooks: tuple[WebhookTarget, ...] = field(repr=False)


@dataclass(frozen=True)
class Ending:
    """How an execution ended. `result` is None for a bad end, `error` for a good one."""

    status: Status
    result: str | None = field(repr=False)
    result_json: JsonValue = field(repr=False)
    error: str | None
    token_usage: dict[str, JsonValue] | None


def failure(status: Status, error: str) -> Ending:
    """The end of an execution that has no result."""
    return Ending(status=status, result=None, result_json=None, error=error, token_usage=None)


def success(result: Result) -> Ending:
    """The good end. `result_json` is an object or nothing (contract, section 2): clients declare
    it as one. A text that is a JSON object counts as one."""
    usage, parsed = result.token_usage, result.output_json
    return Ending(
        status=Status.COMPLETED,
        result=result.output,
        result_json=parsed if isinstance(parsed, dict) else _object(result.output),
        error=None,
        token_usage=None if usage is None else usage.model_dump(),
    )


def ending_of(end: WorkerEnd) -> Ending:
    """What the end of a worker that was not cut short makes of its execution."""
    return success(end) if isinstance(end, Result) else failure(Status.ERROR, end.error)


def _object(text: str) -> JsonValue:
    """The JSON object that a text is, else None."""
    try:
        value: JsonValue = from_json(text, allow_inf_nan=False, cache_strings="keys")
        json.dumps(value, allow_nan=False)  # 1e400 is read as infinity
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
