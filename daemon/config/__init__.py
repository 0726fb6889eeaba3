"""The configuration: the only part that reads files and the environment.

`load` is for the daemon, `build` for settings made by a program (the demo, tests). Both give
`Settings`, frozen and checked, or raise `ConfigError` with every problem at once.
"""

from __future__ import annotations

from daemon.config.loading import build, load
from daemon.config.problems import ConfigError, Problem
from daemon.config.settings import Settings
from daemon.config.values import Bind, Network

__all__ = ["Bind", "ConfigError", "Network", "Problem", "Settings", "build", "load"]
