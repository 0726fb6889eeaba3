"""Crews: programs of somebody else's that are kicked off, followed, stopped, and never lost."""
