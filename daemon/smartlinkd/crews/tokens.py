"""The crew tokens actor: it admits callers to crews, and shows and rotates tokens.

A crew has an organization token, and a user token for each of its `users`. A token is computed from
`crew-master-secret` and a version, and never stored. `crew-tokens.json` has the versions and is no
secret. Functions on files block. See docs/decisions/070-crew-tokens.md.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import trio
from pydantic import (
    ConfigDict,
    SecretBytes,
    SecretStr,
    StringConstraints,
    TypeAdapter,
)
from pydantic.dataclasses import dataclass as model

from smartlinkd.crews.model import CrewUser
from smartlinkd.errors import Invalid, NotFound, WrongToken
from smartlinkd.state_files import (
    load_model,
    load_secret,
    parse_secret,
    replace_file,
    saving,
)
from smartlinkd.supervision.actor import Mailbox
from smartlinkd.threads import on_thread

logger = logging.getLogger(__name__)

SECRET_FILE: Final = "crew-master-secret"  # noqa: S105 - a file's name
VERSIONS_FILE: Final = "crew-tokens.json"
MAX_FILE: Final = 1024 * 1024
"""Bytes of `crew-tokens.json`: some 10 000 rotated tokens."""

QUEUE: Final = 1024
"""Calls that may wait. While the actor restarts, each request to a crew makes one."""
MAX_TOKEN: Final = 256
"""Characters of a sent token that are read; a token has 47."""

_SECRET_NAME: Final = "the crews' master secret"  # noqa: S105 - for error texts

_Word = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]


def load_master_secret(directory: Path, configured: SecretStr) -> SecretBytes:
    """Return the configured secret (64 hexadecimal digits) as bytes, else that of the directory.

    Makes one if there is neither. Raises `ValueError` for a configured one of another form,
    `StateUnusable` for a damaged file, and `NotSaved` if a new one could not be saved.
    """
    if configured:
        return parse_secret(configured)
    path = directory / SECRET_FILE
    if not path.exists() and (directory / VERSIONS_FILE).exists():  # no first start, then
        logger.warning("%s was not there: with the new one every crew has new tokens", path)
    return load_secret(
        path,
        name=_SECRET_NAME,
        loss="gives every crew new tokens, and loses the credentials of webhooks not yet called",
    )


def derive(master: SecretBytes, use: str) -> SecretBytes:
    """Return the 32 bytes of a key for one use ("journal", say), by HMAC-SHA256."""
    return SecretBytes(hmac.digest(master.get_secret_value(), use.encode(), "sha256"))


@model(frozen=True, config=ConfigDict(extra="forbid", hide_input_in_errors=True))
class TokenVersions:
    """The content of `crew-tokens.json`.

    `first` is the version of each token that was never rotated. `rotated` has the others by crew
    and user, also of crews and users that have left the configuration. The organization is the
    user "".
    """

    version: Literal[1]
    first: _Word
    rotated: dict[str, dict[str, _Word]]

    def of(self, crew: str, user: str) -> str:
        """Return the version of a token."""
        return self.rotated.get(crew, {}).get(user, self.first)

    def with_new(self, crew: str, user: str) -> TokenVersions:
        """Return a copy with another version of one token."""
        of_crew = {**self.rotated.get(crew, {}), user: _new_word()}
        return TokenVersions(version=1, first=self.first, rotated={**self.rotated, crew: of_crew})


_VERSIONS = TypeAdapter(TokenVersions)


def load_versions(directory: Path) -> TokenVersions:
    """Return `crew-tokens.json`. Make one if there is none, which changes all tokens.

    Raises `StateUnusable`, or as `save_versions` does for a new one.
    """
    path, loss = directory / VERSIONS_FILE, "gives every crew new tokens"
    found = load_model(path, _VERSIONS.validate_json, most=MAX_FILE, loss=loss)
    if found is None:
        fresh = TokenVersions(version=1, first=_new_word(), rotated={})
        save_versions(directory, fresh)
        logger.info("%s was not there: made one; the tokens of all crews are new", path)
        return fresh
    return found


def save_versions(directory: Path, versions: TokenVersions) -> None:
    """Replace `crew-tokens.json`.

    Raises `Invalid` if there is too much of it, `NotSaved`, or `OSError` as `replace_file` does.
    """
    path = directory / VERSIONS_FILE
    content = _VERSIONS.dump_json(versions) + b"\n"
    if len(content) > MAX_FILE:
        raise Invalid(
            f"{path} would have more than {MAX_FILE} bytes; stop the daemon and delete the file, "
            "which gives every crew new tokens"
        )
    replace_file(path, content)


def _new_word() -> str:
    return secrets.token_hex(16)


class CrewTokens:
    """The actor's handle. Beside the errors named, each call may raise those of `Mailbox.ask`."""

    def __init__(
        self, directory: Path, master: SecretBytes, users: Mapping[str, tuple[str, ...]]
    ) -> None:
        """Make a handle. `master` has 32 bytes, and `users` has each crew's users, all slugs."""
        self.mailbox = Mailbox[_State]("crew tokens", size=QUEUE)
        self._directory = directory
        self._key = derive(master, "crew tokens")
        self._users = users

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Read the versions, then answer until cancelled.

        Raises `StateUnusable` or `NotSaved` if the state directory is not in order.
        """
        versions = await on_thread(load_versions, self._directory)
        state = _State(self._directory, self._key, self._users, versions)
        task_status.started()
        await self.mailbox.serve(state)

    async def set_users(self, users: Mapping[str, tuple[str, ...]]) -> None:
        """Replace the crews and users. Tokens of those that stay, stay."""
        self._users = users
        await self.mailbox.ask(_State.set_users, users)

    async def caller(self, crew: str, token: str | None) -> CrewUser:
        """Return the caller that `token` stands for; None is a request without a token.

        Waits only while the actor restarts. Raises `WrongToken`, with the same text and in the same
        time whether or not there is such a crew.
        """
        return await self.mailbox.peek(_State.caller, crew, token)

    def organization(self, crew: str) -> CrewUser:
        """Return the caller that the crew's organization token stands for.

        For somebody who was admitted otherwise. Raises `WrongToken` if there is no such crew.
        """
        if crew not in self._users:
            raise WrongToken("there is no crew of that name; GET /api/crews lists them")
        return CrewUser(crew)

    async def show(self, crew: str, user: str = "") -> SecretStr:
        """Return a user's token, or without a user the organization's.

        Raises `NotFound` for an unknown crew or user, with the known ones in its text.
        """
        return await self.mailbox.ask(_State.show, crew, user)

    async def rotate(self, crew: str, user: str = "") -> SecretStr:
        """Return a new token, valid from now on and over restarts, and end the one before.

        A caller that is cancelled or gets `ActorRestarting` finds with `show` which of the two is
        valid. Raises `NotFound`; `Unavailable` or `Invalid` if nothing was changed.
        """
        return await self.mailbox.ask(_State.rotate, crew, user)


class _State:
    """The state of one instance. It keeps keyed hashes of the tokens, and no token."""

    def __init__(
        self,
        directory: Path,
        key: SecretBytes,
        users: Mapping[str, tuple[str, ...]],
        versions: TokenVersions,
    ) -> None:
        self._directory = directory
        self._key = key
        self._users = users
        self._hash_key = SecretBytes(secrets.token_bytes(32))
        self._apply(versions)

    def caller(self, crew: str, token: str | None) -> CrewUser:
        if token is None:
            raise WrongToken(
                "a bearer token is needed: send the header Authorization: Bearer <token>"
            )
        holder = self._holders.get(self._hash(token))
        if holder is None or holder.crew != crew:
            raise WrongToken(
                "the bearer token is not valid here: it may be another crew's, or was rotated, or "
                "its crew or user is no longer in the configuration; the crew's owner has the "
                "current one"
            )
        return holder

    async def set_users(self, users: Mapping[str, tuple[str, ...]]) -> None:
        self._users = users
        self._apply(self._versions)

    async def show(self, crew: str, user: str) -> SecretStr:
        self._check_known(crew, user)
        return self._token(crew, user)

    async def rotate(self, crew: str, user: str) -> SecretStr:
        self._check_known(crew, user)
        versions = self._versions.with_new(crew, user)
        with saving():
            # Can be cancelled before the thread starts, never after.
            await on_thread(save_versions, self._directory, versions)
        self._apply(versions)
        whose = f"user {user}" if user else "organization"
        logger.info("rotated the token of crew %s, %s", crew, whose)
        return self._token(crew, user)

    def _apply(self, versions: TokenVersions) -> None:
        self._versions = versions
        self._holders = {
            self._hash(self._token(crew, user).get_secret_value()): CrewUser(crew, user)
            for crew, users in self._users.items()
            for user in ("", *users)
        }

    def _token(self, crew: str, user: str) -> SecretStr:
        kind = "user" if user else "organization"
        # No slug has a NUL, so no two tokens have the same message.
        message = "\0".join((kind, crew, user, self._versions.of(crew, user)))
        mac = hmac.digest(self._key.get_secret_value(), message.encode(), "sha256")
        # People and scanners for leaked secrets know it by its prefix.
        prefix = "slu_" if user else "slc_"
        return SecretStr(prefix + urlsafe_b64encode(mac).rstrip(b"=").decode("ascii"))

    def _hash(self, token: str) -> bytes:
        # A lone surrogate becomes a question mark, which no token has.
        sent = token[:MAX_TOKEN].encode(errors="replace")
        return hmac.digest(self._hash_key.get_secret_value(), sent, "sha256")

    def _check_known(self, crew: str, user: str) -> None:
        users = self._users.get(crew)
        if users is None:
            raise NotFound(f"there is no crew of that name; {_choice(self._users)}")
        if user and user not in users:
            raise NotFound(f"crew {crew} has no user of that name; {_choice(users)}")


def _choice(names: Mapping[str, object] | tuple[str, ...]) -> str:
    return f"choose from: {', '.join(names)}" if names else "the configuration has none"
