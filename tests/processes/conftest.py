"""For anything that starts processes."""

from tests.hygiene.at_once import nothing_left, until

__all__ = ["nothing_left", "until"]  # fixtures
