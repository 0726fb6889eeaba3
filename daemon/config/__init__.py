"""The configuration: its file, the variables over it and the files of its secrets are read here.

`load` is for the daemon, `build` for settings that a test makes. Both give `Settings`, frozen and
checked, or raise `ConfigError` with every problem at once.
"""

from __future__ import annotations

from daemon.config.loading import build, load
from daemon.config.problems import ConfigError, Problem
from daemon.config.settings import Settings
from daemon.config.values import Bind, Network

__all__ = ["Bind", "ConfigError", "Network", "Problem", "Settings", "build", "load"]
