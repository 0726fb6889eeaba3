"""The message ids of events: they are unique and never change."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from uuid import UUID

from smartlinkd.logs import LogEvent

ALL = "ff581c9a07a5b1d82cac6b1f29c42e36c6cba25ec4df23ab7876913769ce4ad2"


def test_message_ids_are_different_random_uuids() -> None:
    assert len({event.message_id for event in LogEvent}) == len(LogEvent)
    for event in LogEvent:
        assert re.fullmatch("[0-9a-f]{32}", event.message_id)
        assert UUID(event.message_id).version == 4


def test_message_ids_never_change() -> None:
    """A changed id breaks searches and alarms. A new event is added at the end."""
    first = "".join(f"{event.name}={event.message_id}\n" for event in list(LogEvent)[:26])
    assert hashlib.sha256(first.encode()).hexdigest() == ALL


def test_message_ids_are_in_the_guide() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
    for event in LogEvent:
        row = f"| `{event.name.lower()}` | `{event.message_id}` | "
        assert row in guide, event
