"""The daemon, in whose memory there is much: `python -m bench.remembering NUMBER serve …`.

To have it remember a hundred thousand links by converting them would take the portal an hour. So
its tables are filled before they are used, with keys that nobody asks for; they never expire.
"""

from __future__ import annotations

import sys
from math import inf
from typing import Any

from daemon import cli
from daemon.conversion import sharing


def main() -> int:
    """Run the daemon's command that stands behind the number."""
    number = int(sys.argv[1])
    empty = sharing.Remembered.__init__

    def filled(self: sharing.Remembered[Any, Any], *, seconds: float, limit: int) -> None:
        empty(self, seconds=seconds, limit=limit)
        for place in range(number):
            texts = (f"https://s.example/{place:010x}", f"https://shop.example/product/1/{place}")
            self._results["nobody's", place, ("a", "b")] = (inf, texts)

    sharing.Remembered.__init__ = filled  # type: ignore[method-assign]  # see the head
    return cli.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
