"""No certificates, for tests in which nobody speaks TLS: to read those of the system and Mozilla's
takes longer than a daemon's start.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import httpx

if TYPE_CHECKING:
    import pytest


class _Empty(ssl.SSLContext):
    """It trusts nobody."""

    def load_default_certs(self, *_: object) -> None:
        """Not needed."""


def without_certificates(patch: pytest.MonkeyPatch) -> None:
    """Whoever asks httpx for a context gets one that has read nothing."""
    patch.setattr(httpx, "create_ssl_context", lambda **_: _Empty(ssl.PROTOCOL_TLS_CLIENT))
