"""The daemon with a leak: 400 kB are left of every conversion. For the test of the soak itself."""

from __future__ import annotations

import sys
from typing import Final

from smartlinkd.conversion.schemas import ConversionRequest, LinkResult
from smartlinkd.conversion.service import ConversionService
from tests.soak import observed

LEAK: Final = 400_000
"""Bytes: more than a daemon takes for a conversion that is just warming up."""

_kept: list[bytes] = []
_convert = ConversionService.convert


async def _leak(conversion: ConversionService, order: ConversionRequest) -> dict[str, LinkResult]:
    _kept.append(b"x" * LEAK)
    return await _convert(conversion, order)


if __name__ == "__main__":
    ConversionService.convert = _leak  # type: ignore[assignment, method-assign]
    sys.exit(observed.main(sys.argv[1:]))
