"""The HTTP server: Quart-Trio on hypercorn's classes, inside our own nursery.

Each class that is at fault is subclassed here, and nothing upstream is replaced in place. Every
guard, and the fault that it is for: docs/decisions/075-http-server.md.
"""

from __future__ import annotations

from smartlinkd.http_server.app import GuardedQuart, has_whole_body, hold_until_answered
from smartlinkd.http_server.places import HttpLimits
from smartlinkd.http_server.server import ServedApp, serve
from smartlinkd.http_server.sockets import bind

__all__ = [
    "GuardedQuart",
    "HttpLimits",
    "ServedApp",
    "bind",
    "has_whole_body",
    "hold_until_answered",
    "serve",
]
