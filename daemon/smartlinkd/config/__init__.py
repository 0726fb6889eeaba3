"""The configuration: its file, variables over it, and files of secrets. All of it is read here.

`load` is for the daemon, `build` for settings that a test makes, and `state_directory` for commands
that only reach the running daemon.
"""

from __future__ import annotations

from smartlinkd.config.loading import ConfigError, build, load, state_directory
from smartlinkd.config.problems import Problem
from smartlinkd.config.settings import Settings

__all__ = [
    "ConfigError",
    "Problem",
    "Settings",
    "build",
    "load",
    "state_directory",
]
