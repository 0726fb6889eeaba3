"""Limits on one client, and bounds on requests that hold a connection as long as they like.

These are followers (an event stream, a `?wait=`, a call over MCP) and bodies that are incomplete.
Without a bound one client could take every connection with them, and nobody else would be served.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import trio

from smartlinkd.errors import TooManyAtOnce, Unavailable

RETRY_FOLLOWING: Final = 5
RETRY_BODY: Final = 1
"""Seconds after which a client that was refused may try again."""


@dataclass(frozen=True)
class HttpLimits:
    """Limits of one server on its clients, in seconds and bytes."""

    connections: int = 512
    """At once, to all sockets of one server. The next one takes the place of the one that has been
    idle the longest, and gets 503 when none is idle. `connections` times `max_body` is the most
    memory that unread bodies take. `processes/process_limits.py` counts the descriptors left."""
    head_bytes: int = 16 * 1024
    """Request line and headers."""
    idle_seconds: float = 15.0
    """From the accept, or the end of an answer, to the end of the next request head. It is also
    what idle means above: a head that drips in makes nobody less idle."""
    send_seconds: float = 4.0
    """For 64 KiB of an answer; a client that takes less is cut off. It is also what such a client
    can delay a shutdown by."""
    linger_seconds: float = 1.0
    """A connection that the server has closed is read on for that long, so that its last answer
    arrives."""
    last_call_seconds: float = 0.5
    """After a stop, for requests that were on their way."""
    refusals: int = 64
    """Clients at once for which `linger_seconds` is kept while all connections are at work."""


DEFAULT_LIMITS: Final = HttpLimits()


class Places:
    """The places of one server, by who holds them.

    A follower takes one, and a body that is incomplete when it is read.
    """

    def __init__(self, connections: int) -> None:
        """Share out `connections`, the most that the server has open at a time."""
        self.most = max(1, connections * 6 // 8)
        """Places in all. The other connections are free for requests that are answered at once."""
        self.most_following = max(1, connections * 5 // 8)
        """Places for followers. The rest of `most` is always left for bodies."""
        self.most_of_one_token = max(1, connections * 2 // 8)
        self._followers: Counter[str] = Counter()
        self._bodies: dict[trio.CancelScope, str] = {}  # the sender of each, oldest first

    @property
    def taken(self) -> int:
        """The number of places that are taken."""
        return self._followers.total() + len(self._bodies)

    @contextmanager
    def follow(self, token: str) -> Iterator[None]:
        """Hold a follower's place for the length of the block.

        Raises:
            TooManyAtOnce: The token has as many places as one may have.
            Unavailable: Followers have as many places as they may have.
        """
        self._check_share(token)
        if self._followers.total() >= self.most_following:
            raise Unavailable(
                f"{self.most_following} event streams, waits and MCP calls are open, as many "
                "as there may be; ask /status without wait, or try again in a few seconds",
                retry_after=RETRY_FOLLOWING,
            )
        self._make_room()
        self._followers[token] += 1
        try:
            yield
        finally:
            self._followers -= Counter([token])

    @contextmanager
    def receive(self, sender: str, *, is_token: bool) -> Iterator[None]:
        """Hold a place for a body for the length of the block, which reads it.

        `sender` is the request's token, or without one the client's address. An address has no
        share of its own: many clients may be behind it.

        Raises:
            TooManyAtOnce: The token has as many places as one may have.
            Unavailable: The body was cancelled in favour of a newcomer.
        """
        if is_token:
            self._check_share(sender)
        self._make_room()
        arriving = trio.CancelScope()
        self._bodies[arriving] = sender
        try:
            with arriving:
                yield
        finally:
            self._bodies.pop(arriving, None)  # one that was cancelled has been removed already
        if arriving.cancelled_caught:
            raise Unavailable(
                "the body was still incomplete when its place was needed for another request; "
                "send it again, faster",
                retry_after=RETRY_BODY,
            )

    def _check_share(self, token: str) -> None:
        held = self._followers[token] + Counter(self._bodies.values())[token]
        if held >= self.most_of_one_token:
            raise TooManyAtOnce(
                f"this token has {held} event streams, waits, MCP calls and unfinished bodies "
                "open, which is as many as one may have; close some, or try again in a few seconds",
                retry_after=RETRY_FOLLOWING,
            )

    def _make_room(self) -> None:
        """Cancel the oldest body of the sender who has the most, when no place is free."""
        if self.taken >= self.most and self._bodies:
            ((most, _),) = Counter(self._bodies.values()).most_common(1)
            oldest = next(body for body, sender in self._bodies.items() if sender == most)
            oldest.cancel()
            del self._bodies[oldest]
