"""The sandbox's own endpoints under `/_sandbox/`: what goes wrong, how slowly, and what was seen.

POST   /_sandbox/faults  {"fault": name, "times": n | null, "account": "…" | null}
DELETE /_sandbox/faults
GET    /_sandbox/faults  every fault there is, with its magic numbers, and what is switched on
POST   /_sandbox/delay   {"submit_ms": n, "product_ms": n}   what is not named stays
GET    /_sandbox/log     ?last=n   counters, submits per account, the last n submits
POST   /_sandbox/reset
"""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field
from quart import Response, request

from smartlinkd.http_server import GuardedQuart
from smartlinkd.sandbox.faults import FAULTS
from smartlinkd.sandbox.state import SUBMITS_KEPT, State, Submit
from smartlinkd.sandbox.web import as_json, body_as

LONGEST_DELAY: Final = 600_000
"""Milliseconds: longer than any deadline there is to be tested."""

LAST: Final = 100
"""Submits in the log's answer when the request does not say."""


class FaultBody(BaseModel):
    """Which fault to switch on."""

    model_config = ConfigDict(extra="forbid")
    fault: str
    times: int | None = Field(default=None, ge=1)
    account: str | None = None


class DelayBody(BaseModel):
    """How long to think, in milliseconds."""

    model_config = ConfigDict(extra="forbid")
    submit_ms: int | None = Field(default=None, ge=0, le=LONGEST_DELAY)
    product_ms: int | None = Field(default=None, ge=0, le=LONGEST_DELAY)


def add_control(app: GuardedQuart, state: State) -> None:
    """Put the control endpoints on `app`."""

    @app.get("/_sandbox/faults")
    async def faults() -> Response:
        known = [
            {"fault": f.name, "shows": f.shows, "item": f.item, "account": f.account}
            for f in FAULTS
        ]
        return as_json({"ok": True, "faults": known, "armed": _armed(state)})

    @app.post("/_sandbox/faults")
    async def arm() -> Response:
        body = await body_as(FaultBody)
        state.faults.arm(body.fault, times=body.times, account=body.account)
        return as_json({"ok": True, "armed": _armed(state)})

    @app.delete("/_sandbox/faults")
    async def clear() -> Response:
        state.faults.clear()
        return as_json({"ok": True, "armed": []})

    @app.post("/_sandbox/delay")
    async def delay() -> Response:
        body = await body_as(DelayBody)
        if body.submit_ms is not None:
            state.delays.submit_ms = body.submit_ms
        if body.product_ms is not None:
            state.delays.product_ms = body.product_ms
        return as_json({"ok": True, **asdict(state.delays)})

    @app.get("/_sandbox/log")
    async def log() -> Response:
        last = min(request.args.get("last", LAST, type=int), SUBMITS_KEPT)
        return as_json(_log(state, max(last, 0)))

    @app.post("/_sandbox/reset")
    async def reset() -> Response:
        state.reset()
        return as_json({"ok": True})


def _armed(state: State) -> list[dict[str, Any]]:
    return [
        {"fault": armed.fault.name, "left": armed.left, "account": armed.account}
        for armed in state.faults.armed
    ]


def _log(state: State, last: int) -> dict[str, Any]:
    entries = state.submits.entries
    return {
        "ok": True,
        "counters": dict(sorted(state.counters.items())),
        "accounts": {
            account: {
                "submits": seen.submits,
                "links": seen.links,
                "overlapping_submits": seen.overlapping,
            }
            for account, seen in state.submits.accounts.items()
        },
        "submits": [_submit(entry) for entry in islice(entries, max(0, len(entries) - last), None)],
        "armed": _armed(state),
    }


def _submit(entry: Submit) -> dict[str, Any]:
    return {"links": len(entry.originals), **asdict(entry)}
