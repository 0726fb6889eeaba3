"""The crew tokens actor: who may call which crew.

Each crew has an organization token, and a user token for each of its `users`. The page and
the owner's shell can show any of them at any time, and each is rotated alone.

The problem: to be shown, tokens have to be kept, and a file of valid tokens is what an attacker
wants most. The choice: a token is computed, never stored. It is HMAC-SHA256 over its kind, crew,
user and generation, under a key derived from the crews' master secret (`secret.py`);
`crew-tokens.json` has the generations (`generations.py`) and is no secret. In text it is a prefix,
`slc_` for an organization and `slu_` for a user, so that people and scanners for leaked secrets can
tell what they have found, and the 32 bytes in base64url.

Checking one gives nothing away by its time. What a caller sends is hashed under a key of this
instance's, and the hash is looked up among those of all tokens of all crews. So a wrong token, a
crew that there is not and another crew's token take the same steps, whatever the number of crews
and users; and as nobody else can know a hash, how far a comparison of two of them got says nothing.
Rejected: comparing with each token of the named crew, by `hmac.compare_digest`, which tells how
many users a crew has, and whether there is such a crew.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import trio
from pydantic import SecretBytes, SecretStr

from smartlinkd.crews.access.generations import Generations, load, save
from smartlinkd.crews.access.secret import derive
from smartlinkd.crews.model import CrewUser
from smartlinkd.errors import NotFound, WrongCredential
from smartlinkd.slots import slot
from smartlinkd.state_files import saving
from smartlinkd.supervision.actor import Mailbox
from smartlinkd.threads import on_thread

logger = logging.getLogger(__name__)

QUEUE: Final = 1024
"""Questions that may wait: each request to a crew asks one, in whatever burst."""

ROTATIONS_AT_ONCE: Final = 16
"""Being saved or waiting for it. They come from the owner alone, by hand."""

AT_ONCE: Final = ROTATIONS_AT_ONCE + 1
"""One hand is always left for what needs no disk."""

MAX_TOKEN: Final = 256
"""Characters that are looked at; a token has 47, so a longer one is wrong already."""


class CrewTokens:
    """What others hold. Beside the errors named, each call may raise those of `Mailbox.ask`."""

    def __init__(
        self, directory: Path, master: SecretBytes, users: Mapping[str, tuple[str, ...]]
    ) -> None:
        """`directory` exists and is writable. `master` has 32 bytes. `users` has the names of each
        crew's users, by the crew's name; names are slugs.
        """
        self.mailbox = Mailbox[_Book]("crew tokens", size=QUEUE)
        self._directory = directory
        self._key = derive(master, "crew tokens")
        self._users = users

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """One instance: reads the generations, then answers.

        Raises `StateUnusable` or `NotSaved` when the state directory is not in order.
        """
        generations = await on_thread(load, self._directory)
        book = _Book(self._directory, self._key, self._users, generations)
        task_status.started()
        await self.mailbox.serve(book, at_once=AT_ONCE)

    async def take(self, users: Mapping[str, tuple[str, ...]]) -> None:
        """Have these crews and users from now on. Tokens of those that stay, stay."""
        self._users = users
        await self.mailbox.ask(_Book.take, users)

    async def caller(self, crew: str, token: str | None) -> CrewUser:
        """Who calls `crew` with `token`; None stands for a request without one.

        Raises `WrongCredential`: the same when there is no such crew, in the same time. Never
        waits behind the disk.
        """
        return await self.mailbox.peek(_Book.caller, crew, token)

    async def organization(self, crew: str) -> CrewUser:
        """Return the caller that the crew's organization token stands for.

        For somebody who was admitted otherwise. Raises `WrongCredential` when there is no such
        crew.
        """
        return await self.mailbox.peek(_Book.organization, crew)

    async def show(self, crew: str, user: str = "") -> SecretStr:
        """A user's token, or without a user the organization's.

        Raises `NotFound` for an unknown crew or user; the text says which are known.
        """
        return await self.mailbox.ask(_Book.show, crew, user)

    async def rotate(self, crew: str, user: str = "") -> SecretStr:
        """A new token, from now on and over restarts; the one before is wrong from now on.

        Raises `NotFound`; `Unavailable` or `Invalid` when nothing was changed. An asker that gives
        up, or that gets `ActorRestarting`, finds with `show()` which one it is.
        """
        return await self.mailbox.ask(_Book.rotate, crew, user)


class _Book:
    """The state of one instance. `caller` and `show` have no await: they are never in between.

    It keeps no token, only what tells one.
    """

    def __init__(
        self,
        directory: Path,
        key: SecretBytes,
        users: Mapping[str, tuple[str, ...]],
        generations: Generations,
    ) -> None:
        self._directory = directory
        self._key = key
        self._users = users
        self._hash_key = SecretBytes(secrets.token_bytes(32))
        self._rotations = trio.Semaphore(ROTATIONS_AT_ONCE)
        self._rotating = trio.Lock()
        self._put_in_force(generations)

    def caller(self, crew: str, token: str | None) -> CrewUser:
        if token is None:
            raise WrongCredential(
                "a bearer token is needed: send the header Authorization: Bearer <token>"
            )
        holder = self._holders.get(self._hash(token))
        if holder is None or holder.crew != crew:
            raise WrongCredential(
                "the bearer token is not valid here: it may be another crew's, or was rotated, or "
                "its crew or user is no longer in the configuration; the crew's owner has the "
                "current one"
            )
        return holder

    def organization(self, crew: str) -> CrewUser:
        if crew not in self._users:
            raise WrongCredential("there is no crew of that name; GET /api/crews lists them")
        return CrewUser(crew, "")

    async def take(self, users: Mapping[str, tuple[str, ...]]) -> None:
        self._users = users
        self._put_in_force(self._generations)

    async def show(self, crew: str, user: str) -> SecretStr:
        self._check_known(crew, user)
        return self._token(crew, user)

    async def rotate(self, crew: str, user: str) -> SecretStr:
        self._check_known(crew, user)
        with slot(self._rotations, "tokens are being rotated"):
            async with self._rotating:
                generations = self._generations.with_new(crew, user)
                with saving():
                    # Can be cancelled before the thread starts, never after.
                    await on_thread(save, self._directory, generations)
                self._put_in_force(generations)
                whose = f"user {user}" if user else "organization"
                logger.info("rotated the token of crew %s, %s", crew, whose)
                return self._token(crew, user)

    def _put_in_force(self, generations: Generations) -> None:
        self._generations = generations
        self._holders = {
            self._hash(self._token(crew, user).get_secret_value()): CrewUser(crew, user)
            for crew, users in self._users.items()
            for user in ("", *users)
        }

    def _token(self, crew: str, user: str) -> SecretStr:
        kind = "user" if user else "organization"
        # No slug has a NUL, so no two tokens have the same message.
        message = "\0".join((kind, crew, user, self._generations.of(crew, user)))
        mac = hmac.digest(self._key.get_secret_value(), message.encode(), "sha256")
        prefix = "slu_" if user else "slc_"
        return SecretStr(prefix + urlsafe_b64encode(mac).rstrip(b"=").decode("ascii"))

    def _hash(self, token: str) -> bytes:
        # What cannot be encoded becomes a question mark, which no token has.
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
