"""API keys: how they are made, looked up and saved.

A key is `slk_` and 256 random bits. `api-keys.json` holds its SHA-256 digest, never the key: a
plain digest of so many random bits cannot be guessed backwards. Unknown fields and scopes of the
file are kept, so that an upgrade can be taken back. The times of use are kept in memory and saved
with the next change, or by `save_uses`.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
)

from smartlinkd.errors import Invalid, NotAllowed, NotFound
from smartlinkd.state_files import load_model, replace_file, saving
from smartlinkd.threads import on_thread

KEYS_FILE: Final = "api-keys.json"
MAX_FILE: Final = 256 * 1024
"""Bytes read of the file; 50 keys take some 25 KiB."""
PREFIX: Final = "slk_"
MAX_KEYS: Final = 50
MAX_NAME: Final = 60
MAX_DAYS: Final = 3650
HINT: Final = 4
"""Last characters of a key that are kept, so that people can tell keys apart."""

Scope: TypeAlias = Literal[
    "convert", "cookie:write", "cookie:read", "history", "status", "account", "metrics", "crews"
]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)


def _check_name(name: str) -> str:
    name = name.strip()
    if not 1 <= len(name) <= MAX_NAME or not name.isprintable():
        raise ValueError(f"must be 1 to {MAX_NAME} printable characters")
    return name


KeyName = Annotated[
    str,
    AfterValidator(_check_name),
    Field(json_schema_extra={"minLength": 1, "maxLength": MAX_NAME}),
]
KeyScopes = Annotated[list[Scope], Field(min_length=1, max_length=len(SCOPES))]
KeyDays = Annotated[int, Field(ge=1, le=MAX_DAYS)]


class WrongKey(NotAllowed):
    """The API key does not exist, has expired, or was revoked."""

    def __init__(self) -> None:
        super().__init__(
            "the API key is wrong, has expired or was revoked; make a new one on the page under "
            "Security, or with `smartlinkd keys create`"
        )


@dataclass(frozen=True)
class KeySpec:
    """The wanted properties of a new key. The values have passed the types above."""

    name: str
    scopes: Sequence[Scope]
    expires_in_days: int | None


class ApiKey(BaseModel):
    """A key's entry in the file. Times are Unix seconds."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="allow", hide_input_in_errors=True, defer_build=True
    )

    id: str
    name: str
    scopes: tuple[str, ...]
    created_at: float
    expires_at: float | None
    last_used_at: float | None
    hint: str
    digest: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")] = Field(repr=False)


class SavedKeys(BaseModel):
    """The content of `api-keys.json`."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="allow", hide_input_in_errors=True, defer_build=True
    )

    version: Literal[1] = 1
    keys: tuple[ApiKey, ...] = ()


@dataclass(frozen=True)
class NewKey:
    """A new key. No other object has `key` itself."""

    key: SecretStr
    entry: ApiKey


class KeyRing:
    """The keys that are in force.

    The caller makes one change at a time. A change that could not be saved has no effect.
    """

    def __init__(self, directory: Path, saved: SavedKeys) -> None:
        self._directory = directory
        self._saved = saved
        self._uses: dict[str, float] = {}  # by id

    def list_keys(self) -> tuple[ApiKey, ...]:
        """Return all keys, oldest first, including expired ones."""
        return tuple(
            key.model_copy(update={"last_used_at": self._uses[key.id]})
            if key.id in self._uses
            else key
            for key in self._saved.keys
        )

    def use(self, given: str, *, now: float) -> ApiKey:
        """Return the entry of a client's key, and note its use. Raises `WrongKey`."""
        digest = _digest(given)
        found = None
        for key in self._saved.keys:  # compare all: the time must not depend on which one matches
            if hmac.compare_digest(key.digest, digest):
                found = key
        if found is None or (found.expires_at is not None and now >= found.expires_at):
            raise WrongKey
        self._uses[found.id] = now
        return found

    def check_capacity(self) -> None:
        """Raise `Invalid` if there are `MAX_KEYS` keys."""
        if len(self._saved.keys) >= MAX_KEYS:
            raise Invalid(f"there are {MAX_KEYS} API keys already; revoke one that is not needed")

    async def add(self, wanted: KeySpec, *, now: float) -> NewKey:
        """Make a key. Raises `Invalid` if there are too many, `Unavailable` if it was not saved."""
        self.check_capacity()
        key = PREFIX + secrets.token_urlsafe(32)
        days = wanted.expires_in_days
        entry = ApiKey(
            id=secrets.token_hex(8),
            name=wanted.name,
            scopes=tuple(scope for scope in SCOPES if scope in wanted.scopes),
            created_at=now,
            expires_at=None if days is None else now + days * 86_400,
            last_used_at=None,
            hint=key[-HINT:],
            digest=_digest(key),
        )
        await self._save((*self.list_keys(), entry))
        return NewKey(SecretStr(key), entry)

    async def remove(self, key_id: str) -> ApiKey:
        """Delete a key and return it. Raises `NotFound`, or `Unavailable` if it was not saved."""
        found = next((key for key in self._saved.keys if key.id == key_id), None)
        if found is None:
            raise NotFound("there is no API key of that id; GET /api/keys lists those there are")
        await self._save(tuple(key for key in self.list_keys() if key.id != key_id))
        self._uses.pop(key_id, None)
        return found

    async def clear(self) -> int:
        """Delete all keys, and return how many. Raises `Unavailable` if it was not saved."""
        count = len(self._saved.keys)
        if count:
            await self._save(())
        return count

    async def save_uses(self) -> None:
        """Save when keys were last used. Raises `Unavailable` if it was not saved."""
        keys = self.list_keys()
        if keys != self._saved.keys:
            await self._save(keys)

    async def _save(self, keys: tuple[ApiKey, ...]) -> None:
        saved = self._saved.model_copy(update={"keys": keys})
        with saving():
            # This can be cancelled before the thread starts, never after.
            await on_thread(save_keys, self._directory, saved)
        self._saved = saved


def load_keys(directory: Path) -> SavedKeys:
    """Return the saved keys; no keys if there is no file. Blocks. Raises `StateUnusable`."""
    path, parse = directory / KEYS_FILE, SavedKeys.model_validate_json
    return load_model(path, parse, most=MAX_FILE, loss="ends every API key") or SavedKeys()


def save_keys(directory: Path, saved: SavedKeys) -> None:
    """Replace the file. Blocks. Raises `NotSaved`, or `OSError` as `replace_file` does."""
    replace_file(directory / KEYS_FILE, saved.model_dump_json().encode() + b"\n")


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
