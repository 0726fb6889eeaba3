"""`PYTHON …/crewai_adapter/__main__.py PROJECT`: one execution."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

PACKAGE = "_smartlinkd_crewai"


def load() -> ModuleType:
    """Return the module `runner` of this package, which gets a name that no project has.

    Python looks for modules in a script's folder first: a project with a `connection.py` of its own
    would get ours. So the folder is taken out of `sys.path`.
    """
    folder = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != folder]
    package = sys.modules[PACKAGE] = ModuleType(PACKAGE)
    package.__path__ = [str(folder)]
    return importlib.import_module(f"{PACKAGE}.runner")


if __name__ == "__main__":  # and not where multiprocessing imports this again, in a new process
    sys.dont_write_bytecode = True  # this folder and the project stay as they are
    load().main()
