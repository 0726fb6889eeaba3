"""How an execution ended: pure rules. What is recorded of it is in `test_store_entries.py`."""

from __future__ import annotations

from typing import Any

import pytest

from smartlinkd.crews.outcome import outcome_of
from smartlinkd.crews.protocol import Result


@pytest.mark.parametrize(
    ("output", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        (' {"a": 1}\n', {"a": 1}),
        ("{}", {}),
        ("[]", None),
        ('"text"', None),
        ("null", None),
        ('{"a": Infinity}', None),
        ('{"a": 1e400}', None),
        ('{"a": ' + "9" * 5000 + "}", None),
        ('{"a":' * 300 + "1" + "}" * 300, None),
        ("plain text", None),
    ],
    ids=lambda value: str(value)[:12],
)
def test_result_text_that_is_a_json_object_is_parsed(output: str, value: Any) -> None:
    assert outcome_of(Result(output=output)).result_json == value
