"""Find what a project is by its files, running none of them. The daemon uses this, too."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from .texts import Unusable


def find(project: Path) -> Path | str:
    """Return a JSON crew's definition, or the module name of a classic project's `crew.py`.

    The rules are those of `crewai run`, but that a `crew.json` need not be named in pyproject.toml.
    Raises `Unusable`, with a text of the form `what is wrong; what to do`. A circle of links, a NUL
    in a path or TOML that is nested too deeply raises OSError, ValueError or RuntimeError.
    """
    settings = _read_toml(project / "pyproject.toml")
    crewai = _table(settings, "tool", "crewai")
    if (kind := crewai.get("type", "crew")) != "crew":
        raise Unusable(
            f"this project is a {kind} ([tool.crewai] type in pyproject.toml), and smartlinkd runs "
            "crews; give the crew a project of its own"
        )
    if "definition" in crewai:
        return _definition(project, str(crewai["definition"]))
    if module := _module(project, settings):
        return module
    for name in ("crew.jsonc", "crew.json"):
        if (project / name).is_file():
            return project / name
    raise Unusable(
        f"there is no crew in {project}: no src/<package>/crew.py, no crew.jsonc and no crew.json; "
        "name the folder that `crewai create` made"
    )


def _read_toml(path: Path) -> dict[str, Any]:
    name = "tomllib" if sys.version_info >= (3, 11) else "tomli"
    try:
        settings: dict[str, Any] = importlib.import_module(name).loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as fault:
        raise Unusable(f"{path.name} cannot be read ({fault}); mend that file") from fault
    return settings


def _table(settings: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return a nested table; an empty one if it is missing."""
    table: Any = settings
    for name in names:
        table = table.get(name)
        if not isinstance(table, dict):
            return {}
    return cast("Mapping[str, Any]", table)


def _definition(project: Path, name: str) -> Path:
    root = project.resolve()
    path = (root / name).resolve()
    if path.is_relative_to(root) and path.is_file():
        return path
    raise Unusable(
        f"[tool.crewai] definition in pyproject.toml, {name!r}, is no file in the project; name "
        "its crew.jsonc"
    )


def _module(project: Path, settings: Mapping[str, Any]) -> str | None:
    """Return `<package>.crew`; of several packages the one that pyproject.toml means."""
    found = sorted(path.parent.name for path in project.glob("src/*/crew.py"))
    meant = (
        str(_table(settings, "project", "scripts").get("run_crew", "")).split(".")[0],
        str(_table(settings, "project").get("name", "")).replace("-", "_"),
    )
    name = next((name for name in meant if name in found), None)
    if name is None and len(found) > 1:
        raise Unusable(
            f"several packages in {project / 'src'} have a crew.py ({', '.join(found)}); name one "
            "in pyproject.toml as run_crew in [project.scripts]"
        )
    return f"{name or found[0]}.crew" if found else None
