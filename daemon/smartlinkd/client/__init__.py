"""A Python client of the HTTP API: `Smartlinkd(url, key)`. docs/clients.md has examples.

Answers are the API's own models. A failure is a `ClientError`, whose text says what to do.
"""

from smartlinkd.client.client import Smartlinkd
from smartlinkd.client.crews import CrewClient
from smartlinkd.client.errors import ApiFailure, ClientError, Unreachable

__all__ = ["ApiFailure", "ClientError", "CrewClient", "Smartlinkd", "Unreachable"]
