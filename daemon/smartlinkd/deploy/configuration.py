"""The owner's files, made if they are missing. Only `rename_example` and `restore` change one.

The configuration is written last: an installation without one is a first one, also after an earlier
one was interrupted. Secrets are credentials (`config/secret_files.py`): files that only root can
read, and that systemd passes to the service. So the configuration has none and everybody can read
it: the service's user exists only while the service runs.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import tomllib
from collections.abc import Callable
from pathlib import Path

from smartlinkd.auth.passwords import hash_password
from smartlinkd.deploy.units import UNIT, ServicePaths
from smartlinkd.net.addresses import Bind

PASSWORD_HASH = "auth.password_hash"  # noqa: S105 - the names of files
SYNC_KEY = "cookie.sync_key"
DEFAULT_BIND = Bind("127.0.0.1", 8787)

OLD_EXAMPLE = re.compile(r"""(["']-m["']\s*,\s*["'])daemon(?=\.crews\.deal_post["'])""")
"""The example crew's module by its name in 0.1, as that version's documents had it."""

Ask = Callable[[], str | None]
"""Asks for a password. Returns None if nobody is there to ask, or wants to choose one."""


def create_missing(paths: ServicePaths, bind: Bind, ask: Ask) -> None:
    """Make the configuration and its secrets, as far as they are missing, and say so."""
    config = paths.configuration
    config.parent.mkdir(mode=0o755, exist_ok=True)
    paths.credentials.mkdir(mode=0o700, exist_ok=True)
    is_first = not config.exists()
    if not _is_set(paths, PASSWORD_HASH):
        password = ask()
        if password is None:
            password = secrets.token_urlsafe(12)
            print(f"the password, which is shown this once: {password}", flush=True)
        _write(paths.credentials / PASSWORD_HASH, f"{hash_password(password)}\n", 0o600)
    if is_first:
        if not _is_set(paths, SYNC_KEY):
            _write(paths.credentials / SYNC_KEY, f"{secrets.token_urlsafe(32)}\n", 0o600)
        _write(config, _new_configuration(paths, bind), 0o644)
        print(f"wrote {config}", flush=True)


def find_old_examples(paths: ServicePaths) -> list[Path]:
    """Return all instances' configurations that run the example crew by its old name.

    Raises `OSError` if one cannot be read.
    """
    folders = (paths.root / "etc" / UNIT, *sorted((paths.root / "etc").glob(f"{UNIT}@*")))
    found = [folder / "config.toml" for folder in folders]
    return [each for each in found if each.exists() and OLD_EXAMPLE.search(_text(each))]


def rename_example(config: Path) -> Path:
    """Give the example crew its new name, and return the copy of the file as it was.

    The copy lies beside it (`config.toml.before-0.2`), with the same owner and mode.

    Raises `OSError` if a file cannot be written. The configuration is unchanged then.
    """
    text, copy = _text(config), config.with_name(f"{config.name}.before-0.2")
    _replace(copy, text, like=config)
    _replace(config.resolve(), OLD_EXAMPLE.sub(r"\1smartlinkd", text), like=config)
    return copy


def restore(copy: Path) -> None:
    """Put a configuration back as it was before `rename_example`, and remove the copy.

    Raises `OSError` if a file cannot be written.
    """
    _replace(copy.with_name("config.toml").resolve(), _text(copy), like=copy)
    copy.unlink()


def _text(path: Path) -> str:
    return path.read_bytes().decode(errors="surrogateescape")


def _replace(path: Path, text: str, *, like: Path) -> None:
    """Replace a file atomically, with the owner and the mode of the file `like`."""
    status = like.stat()
    _write(path, text, stat.S_IMODE(status.st_mode), owner=(status.st_uid, status.st_gid))


def _is_set(paths: ServicePaths, key: str) -> bool:
    """True if the owner has set this secret, as a credential or in the configuration."""
    if (paths.credentials / key).exists() or (paths.encrypted / key).exists():
        return True
    section, _, name = key.partition(".")
    try:
        table = tomllib.loads(paths.configuration.read_text()).get(section, {})
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True  # perhaps; the check reports what is wrong with the file
    return isinstance(table, dict) and bool(table.get(name) or table.get(f"{name}_file"))


def _new_configuration(paths: ServicePaths, bind: Bind) -> str:
    return f"""\
# The configuration of {paths.service}. Every key there is, and what it means:
# {paths.current}/share/smartlinkd/config.example.toml
#
# Everybody may read this file. Secrets are files in {paths.credentials}, which only
# root can look into, named after their keys: {SYNC_KEY}, open_api.secret and so on.

[server]
# The same as in {paths.socket}: `sudo ./run install` sees to that.
bind = "{bind}"

[state]
directory = "{paths.state}"

[cookie]
# Nobody gets at the cookie without a session token or the sync key: a reverse proxy on this machine
# would make everybody look local.
open_to = []
"""


def _write(path: Path, text: str, mode: int, owner: tuple[int, int] = (-1, -1)) -> None:
    """Make or replace a file atomically. `owner` is a user and a group, by default our own."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchown(descriptor, *owner)
        os.fchmod(descriptor, mode)
        file.write(text.encode(errors="surrogateescape"))
        file.flush()
        os.fsync(descriptor)
    fresh.rename(path)
