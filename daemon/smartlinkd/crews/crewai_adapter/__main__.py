"""`PYTHON …/crewai_adapter/__main__.py PROJECT`: one execution.

Python looks for modules in the folder of a script first: a project with a `connection.py` or a
`words.py` of its own would be given ours. So that folder is taken out of there, and loaded as a
package under a name that no project has.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

PACKAGE = "_smartlinkd_crewai"


def load() -> ModuleType:
    """The module `running` of the package."""
    folder = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != folder]
    package = sys.modules[PACKAGE] = ModuleType(PACKAGE)
    package.__path__ = [str(folder)]
    return importlib.import_module(f"{PACKAGE}.running")


if __name__ == "__main__":  # and not where multiprocessing imports this again, in a new process
    sys.dont_write_bytecode = True  # this folder and the project stay as they are
    load().main()
