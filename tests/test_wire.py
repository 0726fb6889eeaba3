"""The format of bodies: names, times, and strict types."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from pydantic import ValidationError

from smartlinkd.wire import Body, Timestamp, timestamp

NOON = datetime(2026, 11, 21, 12, 0, 0, 123_999, tzinfo=UTC)


class Parcel(Body):
    """A body with a field of two words."""

    sent_at: Timestamp = NOON
    weight: int = 1


@pytest.mark.parametrize("hours", [0, 7, -3.5])
def test_timestamp_is_utc_with_milliseconds(hours: float) -> None:
    moment = NOON.astimezone(timezone(timedelta(hours=hours)))
    assert timestamp(moment) == "2026-11-21T12:00:00.123Z"


def test_timestamp_of_a_whole_second_has_milliseconds() -> None:
    assert timestamp(NOON.replace(microsecond=0)) == "2026-11-21T12:00:00.000Z"


def test_body_is_dumped_with_camel_case_names() -> None:
    assert Parcel().model_dump(mode="json") == {"sentAt": "2026-11-21T12:00:00.123Z", "weight": 1}


def test_unknown_field_of_a_body_is_ignored() -> None:
    assert Parcel.model_validate_json('{"weight": 2, "colour": "red"}').weight == 2


def test_no_type_is_taken_for_another_and_no_error_shows_the_value() -> None:
    with pytest.raises(ValidationError) as refused:
        Parcel.model_validate_json('{"weight": "271828"}')
    assert "271828" not in str(refused.value)
