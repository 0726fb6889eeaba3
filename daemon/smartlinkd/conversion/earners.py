"""Who earns by an account's links, as its own first ones tell.

The problem: the portal may make a link under another name than the account's. It pays somebody else
then, and nobody would see it.

The choice: only the long links tell by which name the portal knows an account. So the first that
are made with a cookie count, and one that names another later is not given out. Each cookie has its
own: of another one that came with a request, it is its own word that it names the same user.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from smartlinkd.conversion.sharing import whose
from smartlinkd.marketplace.answers import UNKNOWN_ROW, Row
from smartlinkd.marketplace.links import affiliate_id_in
from smartlinkd.vault.cookie import Cookie

logger = logging.getLogger(__name__)

MOST_EARNERS: Final = 16
"""Cookies of an account of which it is known who earns by their links."""


class Earners:
    """Who earns by the links of one account, for each of its cookies."""

    def __init__(self, shown: str) -> None:
        """`shown` is the account's name as logs may have it."""
        self._shown = shown
        self._names: dict[str, str] = {}

    def own(self, rows: Sequence[Row], cookie: Cookie | None) -> list[Row]:
        """`rows`, with an unknown error in the place of each that earns for somebody else.

        Of several names among the first links of a cookie the most frequent is its own.
        """
        names = [affiliate_id_in(row.long_link) if row.long_link else None for row in rows]
        known = self._names.pop(whose(cookie), None)
        own = known or max(filter(None, names), key=names.count, default=None)
        if own is not None:
            self._note(cookie, own)
        foreign = set(filter(None, names)) - {own}
        if foreign:
            logger.warning(
                "account %s: links that earn for %s, not for %s, are not given out; if both are "
                "the account's own, smartlinkd account clear has it seen anew",
                self._shown,
                ", ".join(sorted(foreign)),
                own,
            )
        return [
            UNKNOWN_ROW if name in foreign else row for name, row in zip(names, rows, strict=True)
        ]

    def inherit(self, cookie: Cookie, before: Cookie) -> None:
        """Who earns by the cookie that was stored `before` earns by this one: both are the owner's
        word."""
        own = self._names.get(whose(before))
        if own is not None and whose(cookie) not in self._names:
            self._note(cookie, own)

    def clear(self) -> None:
        """Forget all, and see it anew."""
        self._names.clear()

    def _note(self, cookie: Cookie | None, name: str) -> None:
        while len(self._names) >= MOST_EARNERS:
            del self._names[next(iter(self._names))]
        self._names[whose(cookie)] = name  # the last place: the most recently used
