"""The owner's files: made when they are missing, and never changed but by `rename_example`.

A configuration that is not there is the mark of a first installation. It is written last, so that
one that was interrupted is a first one again. The password is the one thing that is seen to each
time: without it the daemon does not start.

All secrets are credentials: files that root alone can read, and that systemd hands to the service
(see `config/credentials.py`). So the configuration has none, and everybody may read it, as
the service's user has to, which exists only while the service does.
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
from smartlinkd.config import Settings, load
from smartlinkd.deploy.units import UNIT, ServicePaths
from smartlinkd.networks import Bind

PASSWORD_HASH = "auth.password_hash"  # noqa: S105 - the names of files
SYNC_KEY = "cookie.sync_key"
DEFAULT_BIND = Bind("127.0.0.1", 8787)

OLD_EXAMPLE = re.compile(r"""(["']-m["']\s*,\s*["'])daemon(?=\.crews\.deal_post["'])""")
"""The example crew's module by its name in 0.1, as the documents told to configure it."""

Say = Callable[[str], None]
Ask = Callable[[], str | None]
"""Asks for a password; None when there is nobody to ask, or when nobody wants to choose."""


def see_to(paths: ServicePaths, bind: Bind, ask: Ask, say: Say) -> None:
    """Make what is missing of the configuration and of its secrets."""
    config = paths.configuration
    config.parent.mkdir(mode=0o755, exist_ok=True)
    paths.credentials.mkdir(mode=0o700, exist_ok=True)
    first = not config.exists()
    if not _given(paths, PASSWORD_HASH):
        password = ask()
        if password is None:
            password = secrets.token_urlsafe(12)
            say(f"the password, which is shown this once: {password}")
        _write(paths.credentials / PASSWORD_HASH, hash_password(password), 0o600)
    if first:
        if not _given(paths, SYNC_KEY):
            _write(paths.credentials / SYNC_KEY, secrets.token_urlsafe(32), 0o600)
        _write(config, _fresh(paths, bind), 0o644)
        say(f"wrote {config}")


def read(paths: ServicePaths) -> Settings:
    """The settings that the service will have. Raises `ConfigError`."""
    return load(paths.configuration, {}, by_hand=True)


def with_old_example(paths: ServicePaths) -> list[Path]:
    """Return the configurations, of all instances, that run the example crew by its old name.

    Raises:
        OSError: if one cannot be read.
    """
    folders = (paths.root / "etc" / UNIT, *sorted((paths.root / "etc").glob(f"{UNIT}@*")))
    found = [folder / "config.toml" for folder in folders]
    return [each for each in found if each.exists() and OLD_EXAMPLE.search(_text(each))]


def rename_example(config: Path) -> Path:
    """Give the example crew its new name, and return the copy of the file as it was.

    The copy lies beside it (`config.toml.before-0.2`), with the same owner and mode.

    Raises:
        OSError: if a file cannot be written. The configuration is unchanged then.
    """
    text, copy = _text(config), config.with_name(f"{config.name}.before-0.2")
    _replace(copy, text, like=config)
    _replace(config.resolve(), OLD_EXAMPLE.sub(r"\1smartlinkd", text), like=config)
    return copy


def restore(copy: Path) -> None:
    """Put a configuration back as it was before `rename_example`, and remove the copy.

    Raises:
        OSError: if a file cannot be written.
    """
    _replace(copy.with_name("config.toml").resolve(), _text(copy), like=copy)
    copy.unlink()


def _text(path: Path) -> str:
    return path.read_bytes().decode(errors="surrogateescape")


def _replace(path: Path, text: str, *, like: Path) -> None:
    """Write a file at once, with the owner and the mode of the file `like`."""
    fresh, status = path.with_name(f".{path.name}.new"), like.stat()
    fresh.unlink(missing_ok=True)
    with fresh.open("xb") as file:
        os.fchown(file.fileno(), status.st_uid, status.st_gid)
        os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
        file.write(text.encode(errors="surrogateescape"))
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(path)


def _given(paths: ServicePaths, key: str) -> bool:
    """Whether the owner has given this secret, in whichever way."""
    if (paths.credentials / key).exists() or (paths.encrypted / key).exists():
        return True
    section, _, name = key.partition(".")
    try:
        table = tomllib.loads(paths.configuration.read_text()).get(section, {})
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        return True  # it may be, and what is wrong is told where it is read
    return isinstance(table, dict) and bool(table.get(name) or table.get(f"{name}_file"))


def _fresh(paths: ServicePaths, bind: Bind) -> str:
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


def _write(path: Path, text: str, mode: int) -> None:
    """Make a file that is not there, whole from the start."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "w") as file:
        os.fchmod(descriptor, mode)
        file.write(text if text.endswith("\n") else f"{text}\n")
        file.flush()
        os.fsync(descriptor)
    fresh.rename(path)
