"""What is wrong with a path, a query or a header, without the value that is wrong."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import Field

from smartlinkd.api import parameters
from smartlinkd.api.parameters import In, Parameters
from smartlinkd.errors import Invalid
from smartlinkd.http_server import GuardedQuart


class Asked(Parameters):
    limit: Annotated[int, In("query"), Field(le=100)] = 100


async def test_what_is_right_is_read() -> None:
    async with GuardedQuart().test_request_context("/?limit=7&limit=8&new=x"):
        assert parameters.read(Asked) == Asked(limit=7)


async def test_a_wrong_value_is_nowhere_in_the_error() -> None:
    """Nor in what hangs on to it, which a traceback would show."""
    async with GuardedQuart().test_request_context("/?limit=hunter2"):
        with pytest.raises(Invalid, match=r"^limit: ") as refused:
            parameters.read(Asked)
    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None
