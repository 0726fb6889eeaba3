"""The daemon with full caches: `python -m bench.remembering NUMBER serve …`.

The caches of links and of products start with NUMBER entries, under keys that are never asked for,
because 100 000 conversions would take the portal an hour.
"""

from __future__ import annotations

import sys
from typing import TypeVar, cast

from smartlinkd import cli
from smartlinkd.conversion import product_data, service
from smartlinkd.conversion.cache import TTLCache

K = TypeVar("K")
V = TypeVar("V")


def main() -> int:
    """Run the daemon's command that follows the number."""
    number = int(sys.argv[1])

    class Filled(TTLCache[K, V]):
        def __init__(self, *, ttl_s: float, max_size: int) -> None:
            super().__init__(ttl_s=ttl_s, max_size=max_size)
            for place in range(number):
                texts = f"https://s.example/{place:010x}", f"https://shop.example/product/1/{place}"
                self.put(cast("K", ("nobody's", place, ("a", "b"))), cast("V", texts))

    for module in (service, product_data):
        module.TTLCache = Filled  # type: ignore[attr-defined]  # see the head
    return cli.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
