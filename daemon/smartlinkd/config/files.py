"""The files of the configuration: the TOML file itself, files that hold one secret each, and files
of environment variables for crews.

A file is opened without waiting (a FIFO would hang the start), has to be a regular one, and has a
greatest size. Secrets that group or others can read are used, with a warning at every start: a
backup job or a second service reads them by accident. What lies in `$CREDENTIALS_DIRECTORY` (see
`credentials.py`) is not warned of: systemd guards that folder itself, and gives the service access
by an ACL, whose mask shows as group permission in the mode.
"""

from __future__ import annotations

import codecs
import os
import stat
import tomllib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from smartlinkd.config import credentials, env_file
from smartlinkd.config.credentials import Credentials
from smartlinkd.config.crews import CrewDraft, drafts
from smartlinkd.config.draft import Draft, secret_keys
from smartlinkd.config.problems import MANY, Problem
from smartlinkd.config.values import optional_path
from smartlinkd.paths import mode_of
from smartlinkd.validation import BadValue

LONGEST_FILE = 1024 * 1024  # bytes; a configuration of some hundred tables fits
LONGEST_SECRET = 4096  # bytes; a secret is one line
LONGEST_ENVIRONMENT = 256 * 1024  # bytes; as many as a crew's variables may come to


def read_tables(draft: Draft, path: Path) -> dict[str, Any] | None:
    """What the TOML file says, at its top level; None, and a problem, when it cannot be told."""
    try:
        content, mode = read_file(path, LONGEST_FILE)
        found = tomllib.loads(content)
    except BadValue as fault:
        draft.problems.append(Problem(str(path), fault.fault, fault.remedy))
        return None
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        draft.problems.append(
            Problem(str(path), f"is not TOML: {why}", "compare it with config.example.toml")
        )
        return None
    if mode & stat.S_IROTH:
        _warn_of_open_secrets(draft, found, path)
    return found


def read_secrets(draft: Draft, given: Sequence[Credentials]) -> None:
    """Put the content of each secret's file, or of its credential, into the secret's own key."""
    for each in given:
        if not each.guarded and not each.encrypted:
            _warn_of_open_folder(draft, each.folder)
    # The first of them last, since it goes before the others.
    found = {place: path for each in reversed(given) for place, path in each.find(draft).items()}
    encrypted = [each.folder for each in given if each.encrypted]
    for section, key in secret_keys():
        try:
            named = optional_path(draft.value(section, f"{key}_file"))
        except BadValue:
            continue  # the section's own check reports it
        # Each way in which it is given, as the operator calls it.
        ways = {
            draft.name(section, key): bool(draft.value(section, key)),
            draft.name(section, f"{key}_file"): named is not None,
            credentials.called(section, key): (section, key) in found,
        }
        *others, name = [way for way, is_given in ways.items() if is_given] or [""]
        path = found.get((section, key), named)
        if path is None:
            continue
        if others:
            fault = f"stands beside {' and '.join(others)}"
            draft.problems.append(Problem(name, fault, "keep one of them"))
            continue
        draft.files[section, key] = name
        if path.parent in encrypted:
            draft.put(section, key, credentials.stand_in(section, key))
            continue
        _warn_if_passed_over(draft, name, path, given)
        try:
            draft.put(section, key, _read_secret(draft, name, path, given))
        except BadValue as fault:
            draft.problems.append(Problem(name, fault.fault, fault.remedy))


def read_environments(draft: Draft, given: Sequence[Credentials]) -> None:
    """Give each crew the variables in its `environment_file`. Its faults are that crew's."""
    for crew in draft.crews:
        try:
            path = optional_path(crew.given.get("environment_file"))
        except BadValue:
            continue  # the crew's own check reports it
        if path is not None:
            _read_environment(draft, crew, path, given)


def _read_environment(
    draft: Draft, crew: CrewDraft, path: Path, given: Sequence[Credentials]
) -> None:
    name = crew.key("environment_file")
    crew.again = partial(_read_again, crew, path, given)
    try:
        source = _source(path, given)
        if any(each.encrypted and source.parent == each.folder for each in given):
            return  # what is in it, the service alone is shown
        content, mode = read_file(source, LONGEST_ENVIRONMENT)
        crew.variables = env_file.parse(content)
    except BadValue as fault:
        crew.add("environment_file", fault.fault, fault.remedy)
        return
    _warn_if_passed_over(draft, name, source, given)
    _warn_if_open(draft, name, source, mode, given)


def _read_again(crew: CrewDraft, path: Path, given: Sequence[Credentials]) -> CrewDraft:
    again = CrewDraft(crew.place, crew.given)
    _read_environment(Draft(), again, path, given)  # its warnings are for the next start or reload
    return again


def _source(path: Path, given: Sequence[Credentials]) -> Path:
    """Where to read what the service sees at this path. Raises `BadValue` for a credential that is
    not there: what its owner made at that path, the next start would not leave there."""
    places = [place for each in given if (place := each.behind(path))]
    for place in places:
        try:
            if mode_of(place) is not None:
                return place
        except OSError:
            return place  # why, is told by who opens it
    if places:
        name = path.name.removeprefix(credentials.PREFIX)
        remedy = f"put {name} among the credentials, and restart: a reload sees no new ones"
        raise BadValue("names a credential that is not there", remedy)
    return path


def _warn_if_open(
    draft: Draft, name: str, path: Path, mode: int, given: Sequence[Credentials]
) -> None:
    guarded = any(each.guards(path) for each in given) or path.is_relative_to(credentials.SHOWN)
    if mode & (stat.S_IRWXG | stat.S_IRWXO) and not guarded:
        fault = f"is open to other users (mode {mode:04o})"
        remedy = f"chmod 600 {path}"
        if not any(path.is_relative_to(each.folder) for each in given):
            # What is root's alone a service could not read: its user is another one.
            remedy += " if the daemon's user owns it, else make it a credential"
        draft.warnings.append(Problem(name, fault, remedy))


def _warn_of_open_folder(draft: Draft, folder: Path) -> None:
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        fault = f"is open to other users (mode {mode:04o})"
        draft.warnings.append(Problem(str(folder), fault, f"chmod 700 {folder}"))


def _warn_if_passed_over(draft: Draft, name: str, path: Path, given: Sequence[Credentials]) -> None:
    """Of a plain credential beside encrypted ones, which the service need not be given."""
    if not any(path.parent == each.folder for each in given):
        return
    for each in given:
        if each.encrypted and each.in_use():
            fault = f"is a plain file, which a service that is given {each.folder} never sees"
            remedy = f"encrypt it there, too (docs/operating.md), and remove {path}"
            draft.warnings.append(Problem(name, fault, remedy))


def _read_secret(draft: Draft, name: str, path: Path, given: Sequence[Credentials]) -> str:
    content, mode = read_file(path, LONGEST_SECRET)
    if not content.strip():
        raise BadValue("has an empty file", "write the secret into it, one line")
    _warn_if_open(draft, name, path, mode, given)
    return content.strip()


def read_file(path: Path, longest: int) -> tuple[str, int]:
    """A regular file's text and its permission bits. Raises `BadValue`.

    Where nothing is at the path its text is not repeated: it may be a secret under a wrong key.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        raise BadValue("does not exist", "make that file, or correct the path") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "this is no path"
        raise BadValue(
            f"cannot be opened ({why})", "correct the path, or who may read it"
        ) from None
    try:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise BadValue("is not a regular file", f"{path} has to be one")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(longest + 1)
    except OSError as error:
        raise BadValue(f"cannot be read ({error.strerror})", f"see to {path}") from None
    finally:
        os.close(descriptor)
    if content.startswith(codecs.BOM_UTF8):
        # No editor shows it, and whoever reads the file next would complain of what it shows.
        raise BadValue("begins with a byte order mark", f"save {path} as UTF-8 without one")
    if len(content) > longest:
        raise BadValue(f"is longer than {longest} bytes", f"see whether {path} is the right file")
    try:
        return content.decode(), stat.S_IMODE(mode)
    except UnicodeDecodeError:
        raise BadValue("is not UTF-8 text", f"see whether {path} is the right file") from None


def _warn_of_open_secrets(draft: Draft, found: dict[str, Any], path: Path) -> None:
    keys = []
    for section, key in secret_keys():
        table = found.get(section)
        if isinstance(table, dict) and table.get(key):
            keys.append((f"{section}.{key}", key))
    for crew in drafts(found.get(MANY, [])):
        if crew.given.get("environment"):
            keys.append((crew.key("environment"), "environment"))
    for name, key in keys:
        draft.warnings.append(
            Problem(
                name,
                "stands in a file that every user can read",
                f"keep it as a credential or in a file of its own ({key}_file), "
                f"or chmod 600 {path} if the daemon's user owns that",
            )
        )
