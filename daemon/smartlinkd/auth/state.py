"""The state of one instance of the auth actor, and the work on it.

Sessions, keys and the cookie's name are checked in the caller's task (`Mailbox.peek`). Logins and
changes hold a `_slot`. The other calls do not wait, and one of the actor's slots is always left for
them. Changes run one at a time under a lock, and an accepted one-time code is a change. Each
checks, saves, then changes the memory. See docs/decisions/030-auth-changes.md.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import trio
from pydantic import SecretBytes, SecretStr

from smartlinkd.auth.files import (
    MAX_LOGOUTS,
    Logouts,
    SavedState,
    end_sessions,
    new_epoch,
    save,
    save_logouts,
    save_password,
)
from smartlinkd.auth.keys import ApiKey, KeyRing, KeySpec, NewKey, SavedKeys
from smartlinkd.auth.passwords import Passwords
from smartlinkd.auth.throttle import Throttle, Tries
from smartlinkd.auth.tokens import Claims, Tokens, password_digest, refusal
from smartlinkd.auth.totp import SecondFactor, Setup, new_setup, read_code, read_secret
from smartlinkd.errors import Invalid, NotAllowed, Unavailable, WrongCredential
from smartlinkd.logs import LogEvent
from smartlinkd.state_files import saving
from smartlinkd.threads import on_thread

logger = logging.getLogger(__name__)

LOGIN_SLOTS: Final = 32
"""Password checks that run or wait. The last of them waits a third of a second."""

CHANGE_SLOTS: Final = 16
"""Codes and changes that are checked, saved or wait."""

SLOTS: Final = LOGIN_SLOTS + CHANGE_SLOTS + 1
"""One slot is always left for calls that do not wait."""

CODES_PER_LOGIN: Final = 5
"""Wrong codes after which a temporary token is invalid."""

MAX_PENDING_LOGINS: Final = 1024
"""Temporary tokens that are valid at the same time. A further one ends the oldest.

Only a client that knows the password gets any, and their codes are throttled.
"""

SETUP_MINUTES: Final = 10
"""Minutes within which a secret that setup returned can be enabled."""

USES_SAVED_EVERY: Final = 60.0
"""Seconds between two saves of the times at which keys were used."""

OnKeyCreated = Callable[[ApiKey], None]
"""Called with each new API key. Never waits."""

_WRONG_CODE: Final = (
    "code: is wrong, was used already, or is too old; wait for the app to show the next one"
)


@dataclass(frozen=True)
class LoggedIn:
    """A finished login."""

    token: str = field(repr=False)


@dataclass(frozen=True)
class SecondStep:
    """An unfinished login: `verify_mfa` takes `temp_token` and a one-time code."""

    temp_token: str = field(repr=False)


class AuthState:
    """The state of one instance. `Auth` documents the methods."""

    def __init__(
        self,
        directory: Path,
        saved: SavedState,
        signing_secret: SecretBytes,
        password_hash: SecretStr,
        wall_clock: Callable[[], float],
        *,
        keys: SavedKeys,
        logouts: Logouts,
        on_key_created: OnKeyCreated,
    ) -> None:
        self._directory = directory
        self._keys = KeyRing(directory, keys)
        self._logouts = logouts
        self._on_key_created = on_key_created
        self._saved = saved
        self._signing_secret = signing_secret
        self._tokens = Tokens(signing_secret, password_hash)
        self._passwords = Passwords(password_hash)
        self._throttle = Throttle(trio.current_time)
        self._wall_clock = wall_clock
        self._pending_logins: dict[str, int] = {}  # codes left by `jti`, oldest first
        self._setup: tuple[Setup, float] | None = None  # valid until, on trio's clock
        self._logins = trio.Semaphore(LOGIN_SLOTS)
        self._changes = trio.Semaphore(CHANGE_SLOTS)
        self._changing = trio.Lock()

    async def login(self, password: str, address: str) -> LoggedIn | SecondStep:
        with _slot(self._logins):
            async with self._throttle.attempt(address) as tries:
                passwords = self._passwords
                right = await passwords.is_correct(password)
                if (
                    not right or passwords is not self._passwords
                ):  # the password was changed meanwhile
                    logger.warning("wrong password from %s", address)
                    _log_if_slowed(tries, address)
                    raise WrongCredential("password: is wrong")
                if self._saved.second_factor is not None:
                    # An unfinished login neither counts as a failure nor resets the count.
                    return SecondStep(self._temp_token())
                tries.succeeded()
                logger.info("login from %s", address)
                return LoggedIn(self._session_token())

    async def verify_mfa(self, temp_token: str, code: str, address: str) -> str:
        code = read_code(code)
        async with self._change():
            claims = self._tokens.read(temp_token, "mfa", now=self._wall_clock())
            factor = self._saved.second_factor
            is_pending = self._is_current(claims) and claims.jti in self._pending_logins
            if factor is None or not is_pending:
                raise refusal("mfa")
            async with self._throttle.attempt(address, code=True) as tries:
                try:
                    accepted = self._accept(factor, code, tries, address)
                except WrongCredential:
                    self._count_wrong_code(claims.jti)
                    raise
                await self._save(replace(self._saved, second_factor=accepted))
                self._pending_logins.pop(claims.jti, None)  # a newer login may have evicted it
                tries.succeeded()
            logger.info("login with a second factor from %s", address)
            return self._session_token()

    def check_session(self, token: str | None) -> Claims:
        if token is None:
            raise NotAllowed(
                "no session token; send the one from /api/auth/login as `Authorization: Bearer …`"
            )
        claims = self._tokens.read(token, "session", now=self._wall_clock())
        self._refuse_when_ended(claims)
        return claims

    def cookie_name(self) -> str:
        secret = self._signing_secret.get_secret_value()
        return "smartlinkd_" + hmac.digest(secret, b"session cookie", "sha256")[:6].hex()

    async def logout(self, session: Claims) -> None:
        async with self._change():
            now = self._wall_clock()
            logouts = self._logouts.with_ended(session.jti, session.exp, now=now)
            if logouts is None:
                await self._save(end_sessions(self._saved))
                logouts = Logouts()
                text = "every session has ended: over %d were logged out within days"
                logger.warning(text, MAX_LOGOUTS)
            with saving():
                await on_thread(save_logouts, self._directory, logouts)
            self._logouts = logouts
            logger.info("a session was logged out")

    async def has_second_factor(self) -> bool:
        return self._saved.second_factor is not None

    async def begin_setup(self) -> Setup:
        self._refuse_when_enabled()
        setup = new_setup()
        self._setup = setup, trio.current_time() + SETUP_MINUTES * 60
        return setup

    async def enable(self, session: Claims, secret: str, code: str, address: str) -> None:
        code = read_code(code)
        async with self._change():
            self._refuse_when_ended(session)  # an ended session must not stay valid as `spared`
            self._refuse_when_enabled()
            secret = self._issued_secret(secret)
            async with self._throttle.attempt(address, code=True) as tries:
                fresh = SecondFactor(SecretStr(secret), ())
                factor = self._accept(fresh, code, tries, address)
                await self._save(
                    replace(
                        self._saved,
                        epoch=new_epoch(),
                        spared=session.jti,
                        second_factor=factor,
                    )
                )
                self._setup = None
                tries.succeeded()
            logger.warning("second factor switched on from %s", address)

    async def disable(self, session: Claims, code: str, address: str) -> None:
        code = read_code(code)
        async with self._change():
            self._refuse_when_ended(session)
            factor = self._saved.second_factor
            if factor is None:
                raise Invalid("the second factor is switched off already")
            async with self._throttle.attempt(address, code=True) as tries:
                self._accept(factor, code, tries, address)
                await self._save(replace(self._saved, second_factor=None))
                tries.succeeded()
            logger.warning("second factor switched off from %s", address)

    async def reset_second_factor(self) -> None:
        async with self._change():
            await self._save(replace(self._saved, second_factor=None))
            logger.warning("second factor switched off by the operator")

    async def revoke_all(self, *, with_keys: bool) -> None:
        async with self._change():
            if with_keys and (count := await self._keys.clear()):
                logger.warning("%d API keys ended by the operator", count)
            await self._save(end_sessions(self._saved))
            logger.warning("every session ended by the operator")

    def check_key(self, key: str) -> ApiKey:
        return self._keys.use(key, now=self._wall_clock())

    async def list_keys(self) -> tuple[ApiKey, ...]:
        return self._keys.list_keys()

    async def create_key(
        self, wanted: KeySpec, session: Claims, code: str | None, address: str
    ) -> NewKey:
        async with self._change():
            self._refuse_when_ended(session)
            self._keys.check_capacity()  # before a code is used up
            factor = self._saved.second_factor
            digits = read_code(code or "") if factor is not None or code is not None else ""
            if factor is not None:
                async with self._throttle.attempt(address, code=True) as tries:
                    accepted = self._accept(factor, digits, tries, address)
                    await self._save(replace(self._saved, second_factor=accepted))
                    tries.succeeded()
            return await self._add_key(wanted, address)

    async def create_key_in_shell(self, wanted: KeySpec) -> NewKey:
        async with self._change():
            return await self._add_key(wanted, "the owner's shell")

    async def revoke_key(self, key_id: str) -> None:
        async with self._change():
            ended = await self._keys.remove(key_id)
            logger.warning("API key %s (%s) was revoked", ended.id, ended.name)

    async def save_uses_periodically(self) -> None:
        """Save when keys were last used, once a minute. Runs until cancelled."""
        while True:
            await trio.sleep(USES_SAVED_EVERY)
            await self.save_uses()

    async def save_uses(self) -> None:
        """Save when keys were last used. After a failure the next change or call saves it."""
        async with self._changing:
            with suppress(Unavailable):  # `saving` has logged it
                await self._keys.save_uses()

    async def change_password(self, password_hash: SecretStr) -> None:
        async with self._change():  # no unfinished login may become a session of the new password
            # Before it is saved, so that a full disk does not keep the old password valid.
            self._tokens = Tokens(self._signing_secret, password_hash)
            self._passwords = Passwords(password_hash)
            await self._save(end_sessions(self._saved))
            digest = password_digest(self._signing_secret, password_hash)
            with saving():
                await on_thread(save_password, self._directory, digest)
            logger.warning("the password was changed: every session has ended")

    async def _add_key(self, wanted: KeySpec, origin: str) -> NewKey:
        made = await self._keys.add(wanted, now=self._wall_clock())
        logger.warning(
            "API key %s (%s) was made from %s, for: %s",
            made.entry.id,
            made.entry.name,
            origin,
            ", ".join(made.entry.scopes),
        )
        self._on_key_created(made.entry)
        return made

    def _accept(self, factor: SecondFactor, code: str, tries: Tries, address: str) -> SecondFactor:
        accepted = factor.accept(code, now=self._wall_clock())
        if accepted is None:
            logger.warning("wrong code from %s", address)
            _log_if_slowed(tries, address)
            raise WrongCredential(_WRONG_CODE)
        return accepted

    def _refuse_when_ended(self, session: Claims) -> None:
        """Raise `NotAllowed` if the session has ended, perhaps while the call waited."""
        if not self._is_current(session) or session.jti in self._logouts.ended:
            raise refusal("session")

    def _is_current(self, token: Claims) -> bool:
        """Return True if no later epoch has ended the token."""
        return token.epoch == self._saved.epoch or token.jti == self._saved.spared

    def _refuse_when_enabled(self) -> None:
        if self._saved.second_factor is not None:
            raise Invalid(
                "the second factor is switched on already; "
                "switch it off at /api/auth/2fa/disable first"
            )

    def _issued_secret(self, secret: str) -> str:
        """Return the secret of the latest setup, as it was given out.

        Raises `Invalid` if `secret` is another one, or that setup is too long ago.
        """
        given = read_secret(secret).encode("utf-8", "surrogatepass")
        if self._setup is not None:
            setup, valid_until = self._setup
            is_same = hmac.compare_digest(setup.secret.encode(), given)
            if is_same and trio.current_time() < valid_until:
                return setup.secret
        raise Invalid(
            "secret: is not the latest that /api/auth/2fa/setup gave out in the last "
            f"{SETUP_MINUTES} minutes; call it again and scan the new QR code"
        )

    def _session_token(self) -> str:
        return self._tokens.issue(
            "session", jti=_new_jti(), epoch=self._saved.epoch, now=self._wall_clock()
        )

    def _temp_token(self) -> str:
        if len(self._pending_logins) >= MAX_PENDING_LOGINS:
            del self._pending_logins[next(iter(self._pending_logins))]
        jti = _new_jti()
        self._pending_logins[jti] = CODES_PER_LOGIN
        return self._tokens.issue("mfa", jti=jti, epoch=self._saved.epoch, now=self._wall_clock())

    def _count_wrong_code(self, jti: str) -> None:
        self._pending_logins[jti] -= 1
        if self._pending_logins[jti] == 0:
            del self._pending_logins[jti]

    @asynccontextmanager
    async def _change(self) -> AsyncIterator[None]:
        """Hold a slot and the lock for changes in the block."""
        with _slot(self._changes):
            async with self._changing:
                yield

    async def _save(self, saved: SavedState) -> None:
        """Save `saved`, then put it in force. Cannot be cancelled once its thread has started.

        Raises `Unavailable` if nothing was saved. Any other disk error ends the instance, and the
        next one loads what is on the disk.
        """
        with saving():
            await on_thread(save, self._directory, saved)
        self._saved = saved


@contextmanager
def _slot(slots: trio.Semaphore) -> Iterator[None]:
    """Hold one of `slots` in the block. Raises `Unavailable` at once if none is free.

    A caller that waited would take the actor's last place, and then it could answer nobody.
    """
    try:
        slots.acquire_nowait()
    except trio.WouldBlock:
        raise Unavailable(
            "too many logins or changes at once; try again shortly", retry_after=1
        ) from None
    try:
        yield
    finally:
        slots.release()


def _log_if_slowed(tries: Tries, address: str) -> None:
    # The throttle bounds how often this logs.
    if tries.is_slowed_by_next_failure:
        text = "%s has failed too often, and has to wait between tries"
        logger.warning(text, address, extra=LogEvent.GUESSES_SLOWED())


def _new_jti() -> str:
    return secrets.token_hex(16)
