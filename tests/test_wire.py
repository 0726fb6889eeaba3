"""The format of times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from smartlinkd.wire import timestamp

NOON = datetime(2026, 11, 21, 12, 0, 0, 123_999, tzinfo=UTC)


@pytest.mark.parametrize("hours", [0, 7, -3.5])
def test_timestamp_is_utc_with_milliseconds(hours: float) -> None:
    moment = NOON.astimezone(timezone(timedelta(hours=hours)))
    assert timestamp(moment) == "2026-11-21T12:00:00.123Z"
    assert timestamp(moment.replace(microsecond=0)) == "2026-11-21T12:00:00.000Z"
