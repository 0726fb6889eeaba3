"""The format of times, and what errors of bodies show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import ValidationError

from smartlinkd.wire import Body, timestamp

NOON = datetime(2026, 11, 21, 12, 0, 0, 123_999, tzinfo=UTC)


@pytest.mark.parametrize("hours", [0, 7, -3.5])
def test_timestamp_is_utc_with_milliseconds(hours: float) -> None:
    moment = NOON.astimezone(timezone(timedelta(hours=hours)))
    assert timestamp(moment) == "2026-11-21T12:00:00.123Z"
    assert timestamp(moment.replace(microsecond=0)) == "2026-11-21T12:00:00.000Z"


def test_no_type_is_taken_for_another_and_no_error_shows_the_value() -> None:
    class Parcel(Body):
        weight: int

    with pytest.raises(ValidationError) as refused:
        Parcel.model_validate_json('{"weight": "271828"}')
    assert "271828" not in str(refused.value)
