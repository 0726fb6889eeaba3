"""Receivers to post to."""

from __future__ import annotations

from tests.net.receivers import open_receiver, receiver

__all__ = ["open_receiver", "receiver"]  # fixtures
