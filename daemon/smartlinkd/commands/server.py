"""Which daemon a client command calls, and with which key.

The address is `--server`, else `SMARTLINKD_URL`, else the kept login's. The key is in `--key-file`,
else `SMARTLINKD_KEY`, else `SMARTLINKD_KEY_FILE`, else in the kept login (`login.json`) if it has
that address. A key is never an argument: every user of the machine could read it.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import BaseModel, SecretStr, field_serializer

from smartlinkd.client import ClientError, Smartlinkd
from smartlinkd.commands.codes import say
from smartlinkd.state_files import StateUnusable, load_model, replace_file

MAX_KEY_FILE: Final = 4096
"""Bytes that are read of a key's file."""
MAX_LOGIN_FILE: Final = 16 * 1024


class KeptLogin(BaseModel):
    """The login that `smartlinkd login` keeps, with mode 0600."""

    url: str
    key: SecretStr
    key_name: str
    allow_http: bool = False

    @field_serializer("key")
    def _reveal(self, key: SecretStr) -> str:
        return key.get_secret_value()


@dataclass(frozen=True)
class Server:
    """A daemon's address and the key for it.

    Attributes:
        source: where the address is from, for a message.
    """

    url: str
    source: str
    key: SecretStr | None
    allow_http: bool

    def open(self) -> Smartlinkd:
        """Return a client. Raises `ClientError`."""
        if self.key is None:
            raise ClientError(
                f"there is no key for {self.url}; run `smartlinkd login --server {self.url}`, "
                "or give --key-file, SMARTLINKD_KEY or SMARTLINKD_KEY_FILE"
            )
        return Smartlinkd(self.url, self.key, allow_http=self.allow_http, on_wait=say_wait)

    def open_without_key(self) -> Smartlinkd:
        """Return a client that logs in with the password. Raises `ClientError`."""
        return Smartlinkd(self.url, allow_http=self.allow_http, on_wait=say_wait)


def say_wait(seconds: float, reason: str) -> None:
    """Tell a person why the command waits."""
    say(f"waiting {seconds:g} s: {reason}")


def find_server(chosen: argparse.Namespace) -> Server | None:
    """Return the daemon that the options, the environment or the kept login name; None if none.

    Raises:
        ClientError: the key's file or the kept login cannot be read.
    """
    kept = load_login()
    if chosen.server:
        url, source = chosen.server, "--server"
    elif os.environ.get("SMARTLINKD_URL"):
        url, source = os.environ["SMARTLINKD_URL"], "SMARTLINKD_URL"
    elif kept is not None:
        url, source = kept.url, "kept login"
    else:
        return None
    is_kept = kept is not None and kept.url == url.rstrip("/")
    key = _given_key(chosen)
    if key is None and kept is not None and is_kept:
        key = kept.key
    allow_http = bool(
        chosen.allow_http
        or os.environ.get("SMARTLINKD_ALLOW_HTTP") == "1"
        or (kept is not None and is_kept and kept.allow_http)
    )
    return Server(url.rstrip("/"), source, key, allow_http)


def require_server(chosen: argparse.Namespace) -> Server:
    """Return the daemon to call. Raises `ClientError` if none is named."""
    server = find_server(chosen)
    if server is None:
        raise ClientError(
            "no daemon is named; run `smartlinkd login --server URL` once, "
            "or give --server or SMARTLINKD_URL"
        )
    return server


def login_path() -> Path:
    """Return the kept login's file, below the user's configuration folder."""
    home = os.environ.get("HOME", "/")
    return Path(os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config", "smartlinkd", "login.json")


def load_login() -> KeptLogin | None:
    """Return the kept login; None if there is none.

    Raises:
        ClientError: the file is damaged, cannot be read, or is open to other users.
    """
    parse, loss = KeptLogin.model_validate_json, "makes you run `smartlinkd login` again"
    try:
        return load_model(login_path(), parse, most=MAX_LOGIN_FILE, loss=loss)
    except StateUnusable as why:
        raise ClientError(str(why)) from None


def keep_login(login: KeptLogin) -> Path:
    """Write the login with mode 0600 and return its file. Raises `NotSaved`, `OSError`."""
    path = login_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(path, login.model_dump_json().encode())
    return path


def _given_key(chosen: argparse.Namespace) -> SecretStr | None:
    """Return the key of the options or the environment. Raises `ClientError`."""
    if chosen.key_file:
        return _read_key(Path(chosen.key_file), "--key-file")
    if os.environ.get("SMARTLINKD_KEY"):
        return SecretStr(os.environ["SMARTLINKD_KEY"].strip())
    if os.environ.get("SMARTLINKD_KEY_FILE"):
        return _read_key(Path(os.environ["SMARTLINKD_KEY_FILE"]), "SMARTLINKD_KEY_FILE")
    return None


def _read_key(path: Path, source: str) -> SecretStr:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_KEY_FILE)
        return SecretStr(content.decode().strip())
    except UnicodeDecodeError:
        raise ClientError(f"{source}: {path} holds no key") from None
    except OSError as error:
        raise ClientError(f"{source}: {path}: {error.strerror}") from None
