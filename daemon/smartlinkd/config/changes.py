"""What a changed configuration changes, and which of that a running daemon can take up. Pure.

What is in `LIVE` is asked for anew with each request, execution or round. Everything else went into
something that was made at the start (a socket, a browser, a key), and waits for the next one. Where
a secret is concerned that is on purpose too: a signing secret that changed under a running daemon
would end every session by a slip of the editor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from smartlinkd.config.checks import warnings
from smartlinkd.config.section import Section
from smartlinkd.config.settings import SECTIONS, Settings

LIVE: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "server": ("trusted_proxies", "public_hosts", "max_body"),
        "auth": ("password_hash", "password_hash_file"),
        "cookie": ("open_to", "extension_origins"),
        "journal": ("retention_days", "retention_count"),
        "history": ("retention_days", "retention_count", "max_bytes"),
        "logging": ("level",),
    }
)
"""The keys that can change without a restart, by section; all `[[crews]]` can, but their `bind`."""


@dataclass(frozen=True)
class Changes:
    """`settings` are the old ones with all that can be taken up now, whose keys are `taken`.
    `waiting` are the keys that need a restart."""

    settings: Settings
    taken: tuple[str, ...]
    waiting: tuple[str, ...]

    def after(self, before: Changes) -> Changes:
        """These, and what was read before and is not taken up as a whole yet. (What needs a restart
        is compared with what the daemon was started with, so these have all of it.)"""
        return replace(self, taken=tuple(dict.fromkeys((*before.taken, *self.taken))))


def changes(old: Settings, new: Settings) -> Changes:
    """Compare what is in force with what was read just now."""
    taken: list[str] = []
    waiting: list[str] = []
    sections: dict[str, Section] = {}
    for name in SECTIONS:
        before, after = getattr(old, name), getattr(new, name)
        live = LIVE.get(name, ())
        differing = [key for key in type(before).model_fields if _differ(before, after, key)]
        taken += [f"{name}.{key}" for key in differing if key in live]
        waiting += [f"{name}.{key}" for key in differing if key not in live]
        sections[name] = before.model_copy(update={key: getattr(after, key) for key in live})
    if old.crews != new.crews:
        taken.append("crews")
    # SECTIONS pairs the names with what they are of.
    settings = replace(old, **sections, crews=new.crews)  # type: ignore[arg-type]
    # What comes of the two together, which is in neither.
    mixed = warnings(settings)
    told = tuple(dict.fromkeys((*new.warnings, *mixed)))
    return Changes(replace(settings, warnings=told), tuple(taken), tuple(waiting))


def _differ(one: Section, other: Section, key: str) -> bool:
    return bool(getattr(one, key) != getattr(other, key))
