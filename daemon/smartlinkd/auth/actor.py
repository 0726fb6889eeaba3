"""The auth actor's handle, which the rest of the daemon holds.

The handle and its mailbox outlive restarts. The state of one instance is an `AuthState`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio
from pydantic import SecretStr

from smartlinkd.auth.files import (
    adopt_password,
    load,
    load_logouts,
    load_signing_secret,
)
from smartlinkd.auth.keys import ApiKey, KeySpec, NewKey, load_keys
from smartlinkd.auth.state import (
    SLOTS,
    AuthState,
    LoggedIn,
    OnKeyCreated,
    SecondStep,
)
from smartlinkd.auth.tokens import Claims, password_digest
from smartlinkd.auth.totp import Setup
from smartlinkd.nurseries import background
from smartlinkd.supervision.actor import Mailbox
from smartlinkd.threads import on_thread

__all__ = ["ApiKey", "Auth", "Claims", "KeySpec", "LoggedIn", "NewKey", "SecondStep", "Setup"]

QUEUE: Final = 1024
"""Calls that may wait. While the actor restarts, each request to a protected endpoint adds one."""


class Auth:
    """Handle of the auth actor.

    Each method may also raise the errors of `Mailbox.ask`. One that changes something raises
    `Unavailable` if that could not be saved.
    """

    def __init__(
        self,
        directory: Path,
        *,
        password_hash: SecretStr,
        signing_secret: SecretStr,
        wall_clock: Callable[[], float] = time.time,
        on_key_created: OnKeyCreated = lambda _: None,
    ) -> None:
        """Keep what has to survive a restart in `directory`, which exists and is writable.

        Args:
            password_hash: has passed `check_hash`.
            signing_secret: 64 hexadecimal digits. If it is empty the daemon keeps a secret of its
                own in `directory`.
            wall_clock: returns Unix seconds.
            on_key_created: called with each new API key.
        """
        self.mailbox = Mailbox[AuthState]("auth", size=QUEUE)
        self._directory = directory
        self._password_hash = password_hash
        self._signing_secret = signing_secret
        self._wall_clock = wall_clock
        self._on_key_created = on_key_created
        self._serving = trio.CancelScope()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Run one instance: load the saved files, then serve calls.

        Throttling and unfinished logins end with the instance.

        Raises:
            StateUnusable: a saved file cannot be read or trusted.
            NotSaved, OSError: a file could not be written (`replace_file`).
        """
        saved = await on_thread(load, self._directory)
        secret = await on_thread(load_signing_secret, self._directory, self._signing_secret)
        digest = password_digest(secret, self._password_hash)
        saved = await on_thread(adopt_password, self._directory, saved, digest)
        state = AuthState(
            self._directory,
            saved,
            secret,
            self._password_hash,
            self._wall_clock,
            keys=await on_thread(load_keys, self._directory),
            logouts=await on_thread(load_logouts, self._directory),
            on_key_created=self._on_key_created,
        )
        async with background(state.save_uses_periodically):
            with trio.CancelScope() as self._serving:
                task_status.started()
                await self.mailbox.serve(state, at_once=SLOTS)
            await state.save_uses()

    def stop(self) -> None:
        """Have `run` save when keys were last used, and return."""
        self._serving.cancel()

    async def change_password(self, password_hash: SecretStr) -> None:
        """Replace the password, which ends every session and every unfinished login.

        Args:
            password_hash: has passed `check_hash`.

        Raises:
            Unavailable: too many changes wait, or the disk failed. In the second case the new
                password is in force, but a restart with the old hash can revive old sessions.
        """
        self._password_hash = password_hash  # also for the next instance
        await self.mailbox.ask(AuthState.change_password, password_hash)

    async def login(self, password: str, address: str) -> LoggedIn | SecondStep:
        """Check the password of a client at `address`.

        Raises:
            Invalid: the password is too long.
            WrongCredential: the password is wrong.
            TooManyTries: the address has to wait.
            Unavailable: too many logins run, or the machine has no memory or thread for the check.
        """
        return await self.mailbox.ask(AuthState.login, password, address)

    async def verify_mfa(self, temp_token: str, code: str, address: str) -> str:
        """Finish a login with a one-time code, and return the session token.

        Raises:
            Invalid: the code has not 6 digits.
            NotAllowed: the temporary token is invalid, used or expired.
            WrongCredential: the code is wrong.
            TooManyTries: the address, or everybody, has to wait.
        """
        return await self.mailbox.ask(AuthState.verify_mfa, temp_token, code, address)

    async def check_session(self, token: str | None) -> Claims:
        """Return the claims of a session token. Never waits behind logins or the disk.

        Args:
            token: None for a request without one.

        Raises:
            NotAllowed: there is no token, or it is not valid.
        """
        return await self.mailbox.peek(AuthState.check_session, token)

    async def cookie_name(self) -> str:
        """Return the name of the page's session cookie.

        Cookies ignore ports, so it differs between daemons on one host: it is derived from the
        signing secret.
        """
        return await self.mailbox.peek(AuthState.cookie_name)

    async def logout(self, session: Claims) -> None:
        """End a session."""
        await self.mailbox.ask(AuthState.logout, session)

    async def has_second_factor(self) -> bool:
        """Return True if a login needs a one-time code."""
        return await self.mailbox.ask(AuthState.has_second_factor)

    async def begin_setup(self) -> Setup:
        """Return a new secret for the second factor. Secrets returned before can't be enabled.

        Raises `Invalid` if the second factor is on.
        """
        return await self.mailbox.ask(AuthState.begin_setup)

    async def enable(self, session: Claims, secret: str, code: str, address: str) -> None:
        """Switch the second factor on, and end all sessions but this one. The code is used up.

        Raises:
            Invalid: the code has not 6 digits, the secret is not the latest of `begin_setup` or
                over 10 minutes old, or the second factor is on.
            NotAllowed: the session has ended.
            WrongCredential: the code is wrong.
            TooManyTries: the address, or everybody, has to wait.
        """
        await self.mailbox.ask(AuthState.enable, session, secret, code, address)

    async def disable(self, session: Claims, code: str, address: str) -> None:
        """Switch the second factor off with a current code.

        Raises the errors of `enable`; `Invalid` if the second factor is off.
        """
        await self.mailbox.ask(AuthState.disable, session, code, address)

    async def reset_second_factor(self) -> None:
        """Switch the second factor off without a code, for an owner who has lost the phone."""
        await self.mailbox.ask(AuthState.reset_second_factor)

    async def revoke_all(self, *, with_keys: bool = False) -> None:
        """End every session and every unfinished login; `with_keys` also every API key."""
        await self.mailbox.ask(AuthState.revoke_all, with_keys=with_keys)

    async def check_key(self, key: str) -> ApiKey:
        """Return the entry of an API key. Never waits behind logins or the disk.

        Raises `WrongKey`.
        """
        return await self.mailbox.peek(AuthState.check_key, key)

    async def list_keys(self) -> tuple[ApiKey, ...]:
        """Return all API keys, oldest first."""
        return await self.mailbox.ask(AuthState.list_keys)

    async def create_key(
        self, wanted: KeySpec, session: Claims, code: str | None, address: str
    ) -> NewKey:
        """Make an API key.

        Args:
            code: a one-time code, which is used up; None is right without a second factor only.

        Raises the errors of `enable`; `Invalid` if there are too many keys.
        """
        return await self.mailbox.ask(AuthState.create_key, wanted, session, code, address)

    async def create_key_in_shell(self, wanted: KeySpec) -> NewKey:
        """Make an API key without a code, for the owner's shell.

        Raises `Invalid` if there are too many keys.
        """
        return await self.mailbox.ask(AuthState.create_key_in_shell, wanted)

    async def revoke_key(self, key_id: str) -> None:
        """Delete an API key. Raises `NotFound`."""
        await self.mailbox.ask(AuthState.revoke_key, key_id)
