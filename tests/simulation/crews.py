"""The crews of the simulated daemon, and the scripts of their workers."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smartlinkd.sandbox.products import product_link, product_of
from tests.fakes.network import ORIGINS
from tests.fakes.puppets import Step

LONGEST = 60.0 + 45.0 + 10.0
"""The most seconds of a run: its deadline, the deadline for human input, its grace and a margin."""
MOST_WAIT = 12
"""The most executions of a crew that wait."""

CREWS: Mapping[str, Mapping[str, Any]] = {
    "brisk": {"max_running": 2, "queue": 4, "deadline": 40.0, "grace": 2.0, "users": ["anna"]},
    "again": {
        "max_running": 3,
        "queue": MOST_WAIT,
        "deadline": 60.0,
        "grace": 3.0,
        "on_restart": "rerun",
        "tools": ["convert_links"],
    },
    "human": {
        "max_running": 2,
        "queue": 6,
        "deadline": 60.0,
        "human_deadline": 45.0,
        "grace": 1.0,
    },
}


def tables_of_crews(program: Path) -> list[dict[str, Any]]:
    """The `[[crews]]` tables. The crew's name is an argument of its workers' command."""
    return [
        {"name": name, "runner": "command", "command": [str(program), name], **table}
        for name, table in CREWS.items()
    ]


@dataclass(frozen=True)
class Script:
    """The steps of a worker. `result` is None for a script that fails. `items` are converted."""

    steps: Sequence[Step]
    result: str | None
    items: frozenset[int] = frozenset()
    asks: bool = False


FAILING_STEPS: Sequence[Sequence[Step]] = (
    ("exit 3",),
    ("words out of luck", "exit 1"),
    ("signal 9",),
    ("signal 11",),
    ("raw {}",),
    ("raw no json",),
    ("hang",),
    ("deaf", "hang"),
    ("close", "hang"),
    ("failed no luck",),
    ("flood 2", "exit 2"),
    ("endless",),
    ("fork", "exit 4"),
    ("stray", "hang"),
    ("fill",),
    ("exit 0",),
    ("part half a line", "exit 0"),
)


def successful_script(crew: str, number: int, chance: random.Random, next_item: int) -> Script:
    """Return a script that ends with a result."""
    result = f"result of {number}"
    pause: Step = f"sleep {chance.uniform(0.0, 12.0):.2f}"
    steps: list[Step] = ["started", "task a", "note thought", pause]
    items: frozenset[int] = frozenset()
    asks = crew == "human" and chance.random() < 0.6
    if crew == "again" and chance.random() < 0.4:
        link = product_link(product_of(next_item), ORIGINS.shop)
        call = {"type": "tool_call", "call_id": "1", "tool": "convert_links"}
        steps += [{**call, "arguments": {"links": [link]}}, "hear"]
        items = frozenset([next_item])
    if asks:
        steps += ["ask a", "hear"]
    steps += ["done a"]
    if chance.random() < 0.3:
        steps += ["task b", "log half of it", f"sleep {chance.uniform(0.0, 5.0):.2f}", "done b"]
    if chance.random() < 0.1:
        steps += ["stray"]
    return Script([*steps, f"result {result}"], result, items, asks)


def failing_script(chance: random.Random) -> Script:
    """Return a script that ends without a result."""
    return Script(
        ["started", f"sleep {chance.uniform(0.0, 5.0):.2f}", *chance.choice(FAILING_STEPS)], None
    )
