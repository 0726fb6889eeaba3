"""Receivers to post to."""

from __future__ import annotations

from tests.net.receivers import behave, open_receiver, receiver

__all__ = ["behave", "open_receiver", "receiver"]  # fixtures
