"""Crews: other people's programs that clients start, follow and stop; no execution is ever lost."""
