"""The auth actor: who may in. This is the handle that the rest of the daemon holds.

The state of one instance is a `AuthState`; the handle and its mailbox outlive it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio
from pydantic import SecretStr

from smartlinkd.auth.files import (
    begin_with_password,
    load,
    load_logouts,
    load_signing_secret,
    parse_signing_secret,
)
from smartlinkd.auth.keys import ApiKey, NewKey, WantedKey, load_keys
from smartlinkd.auth.state import (
    AT_ONCE,
    AuthState,
    KeyMade,
    LoggedIn,
    SecondStep,
    Session,
)
from smartlinkd.auth.tokens import password_digest
from smartlinkd.auth.totp import Setup
from smartlinkd.nurseries import background
from smartlinkd.supervision.actor import Mailbox
from smartlinkd.threads import on_thread

__all__ = ["ApiKey", "Auth", "LoggedIn", "NewKey", "SecondStep", "Session", "Setup", "WantedKey"]

QUEUE: Final = 1024
"""Questions that may wait: while it is restarted, one of each request to a protected endpoint."""


class Auth:
    """What others hold. Beside the errors named, each call may raise those of `Mailbox.ask`."""

    def __init__(
        self,
        directory: Path,
        *,
        password_hash: SecretStr,
        signing_secret: SecretStr,
        wall_clock: Callable[[], float] = time.time,
        key_made: KeyMade = lambda _: None,
    ) -> None:
        """`directory` exists and is writable. `signing_secret` is 64 hexadecimal digits; when
        it is empty, the daemon keeps its own in the directory. `wall_clock` gives Unix seconds.
        `key_made` is called with each new API key.

        Raises `ValueError` for a secret that is no good. The hash has passed `check_hash`: its
        trial run takes as long as a login, so it is not done again.
        """
        self.mailbox = Mailbox[AuthState]("auth", size=QUEUE)
        self._directory = directory
        self._password_hash = password_hash
        self._signing_secret = parse_signing_secret(signing_secret) if signing_secret else None
        self._wall_clock = wall_clock
        self._key_made = key_made
        self._serving = trio.CancelScope()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """One instance: reads what is saved, then answers.

        Throttling and logins half done are forgotten with it. Raises `StateUnusable` or
        `NotSaved` when the state directory is not in order.
        """
        saved = await on_thread(load, self._directory)
        secret = self._signing_secret
        if secret is None:
            secret = await on_thread(load_signing_secret, self._directory)
        digest = password_digest(secret, self._password_hash)
        saved = await on_thread(begin_with_password, self._directory, saved, digest)
        state = AuthState(
            self._directory,
            saved,
            secret,
            self._password_hash,
            self._wall_clock,
            keys=await on_thread(load_keys, self._directory),
            logouts=await on_thread(load_logouts, self._directory),
            key_made=self._key_made,
        )
        async with background(state.keep_uses):
            with trio.CancelScope() as self._serving:
                task_status.started()
                await self.mailbox.serve(state, at_once=AT_ONCE)
            await state.save_uses()

    def stop(self) -> None:
        """Have `run` return once it has written down when keys were last used."""
        self._serving.cancel()

    async def take_password(self, password_hash: SecretStr) -> None:
        """Have another password from now on, which ends every session and every login half done.

        The hash has passed `check_hash`. Raises `Unavailable` when it could not be saved that they
        have ended: it is in force all the same, but with the old hash they would be back.
        """
        self._password_hash = password_hash  # also for the next instance
        await self.mailbox.ask(AuthState.take_password, password_hash)

    async def login(self, password: str, address: str) -> LoggedIn | SecondStep:
        """Check the password. `address` is the client's, as text.

        Raises `Invalid`, `WrongCredential`, `TooManyTries`, `Unavailable`.
        """
        return await self.mailbox.ask(AuthState.login, password, address)

    async def verify_mfa(self, temp_token: str, code: str, address: str) -> str:
        """Finish a login; returns the session token.

        Raises `Invalid` (no 6 digits), `NotAllowed` (the token), `WrongCredential` (the code),
        `TooManyTries`, `Unavailable`. When saving failed, token and code can be sent again.
        """
        return await self.mailbox.ask(AuthState.verify_mfa, temp_token, code, address)

    async def check_session(self, token: str | None) -> Session:
        """Whose request this is; None stands for a request without a token.

        Raises `NotAllowed`. Never waits behind logins or the disk.
        """
        return await self.mailbox.peek(AuthState.check_session, token)

    async def cookie_name(self) -> str:
        """Return the name of the page's session cookie.

        Cookies ignore ports, so it differs between daemons on one host: it is derived from the
        signing secret.
        """
        return await self.mailbox.peek(AuthState.cookie_name)

    async def logout(self, session: Session) -> None:
        """End a session. Raises `Unavailable`."""
        await self.mailbox.ask(AuthState.logout, session)

    async def second_factor_enabled(self) -> bool:
        """Whether a login needs a code."""
        return await self.mailbox.ask(AuthState.second_factor_enabled)

    async def begin_setup(self) -> Setup:
        """A new secret, in place of any handed out before.

        Raises `Invalid` while enabled, and `Unavailable`.
        """
        return await self.mailbox.ask(AuthState.begin_setup)

    async def enable(self, session: Session, secret: str, code: str, address: str) -> None:
        """Switch the second factor on, and end all sessions but this one. Uses the code up.

        Raises `Invalid` (code, secret, or enabled already), `NotAllowed` (the session has ended),
        `WrongCredential`, `TooManyTries`, `Unavailable`.
        """
        await self.mailbox.ask(AuthState.enable, session, secret, code, address)

    async def disable(self, session: Session, code: str, address: str) -> None:
        """Switch the second factor off with a current code.

        Raises `Invalid` (code, or disabled already), `NotAllowed` (the session has ended),
        `WrongCredential`, `TooManyTries`, `Unavailable`.
        """
        await self.mailbox.ask(AuthState.disable, session, code, address)

    async def second_factor_off(self) -> None:
        """Switch it off without a code: for the operator, when the phone is lost.

        Raises `Unavailable`.
        """
        await self.mailbox.ask(AuthState.second_factor_off)

    async def revoke_all(self, *, with_keys: bool = False) -> None:
        """End every session and every login half done; `with_keys` also every API key.

        Raises `Unavailable`.
        """
        await self.mailbox.ask(AuthState.revoke_all, with_keys=with_keys)

    async def check_key(self, key: str) -> ApiKey:
        """Return what an API key is for. Never waits behind logins or the disk.

        Raises `WrongKey`.
        """
        return await self.mailbox.peek(AuthState.check_key, key)

    async def keys(self) -> tuple[ApiKey, ...]:
        """Return all API keys, oldest first."""
        return await self.mailbox.ask(AuthState.keys)

    async def create_key(
        self, wanted: WantedKey, session: Session, code: str | None, address: str
    ) -> NewKey:
        """Make an API key. With the second factor on, `code` is checked, and used up; else None.

        Raises `Invalid` (code, or too many keys), `NotAllowed` (the session has ended),
        `WrongCredential`, `TooManyTries`, `Unavailable`.
        """
        return await self.mailbox.ask(AuthState.create_key, wanted, session, code, address)

    async def create_key_in_shell(self, wanted: WantedKey) -> NewKey:
        """Make an API key without a code, for the owner's shell.

        Raises `Invalid` when there are too many, and `Unavailable`.
        """
        return await self.mailbox.ask(AuthState.create_key_in_shell, wanted)

    async def revoke_key(self, key_id: str) -> None:
        """End an API key. Raises `NotFound`, and `Unavailable`."""
        await self.mailbox.ask(AuthState.revoke_key, key_id)
