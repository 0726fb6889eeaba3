"""The configuration: its file, the variables over it and the files of its secrets are read here.

`load` is for the daemon, `build` for settings that a test makes. Both give `Settings`, frozen and
checked, or raise `ConfigError` with every problem at once. `state_directory` is for those who only
want to speak to the daemon that runs.
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
