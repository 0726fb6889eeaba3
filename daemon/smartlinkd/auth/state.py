"""What the auth actor owns, and what it does with it (seed, sections 3 to 5).

Several requests are worked on at once, because a password takes 20 ms of a thread and a change
waits for the disk, while every protected endpoint asks first whether a token is good. So that
this last question never waits behind the others, those hold a slot while they work, and there
are fewer slots than hands: who finds none is told to come again.

Everything that changes what is saved (and every one-time code, since an accepted one is a change)
is done one at a time, under a lock. The order is always the same: check, save, then change what
is in memory, with nothing between the last two that can be cancelled. So a change that was not
saved has not happened, and one that was saved is in force, also when the asker has gone. Only a new
password is in force at once, and then it is saved that the sessions have ended. The files are tiny
but the disk may be slow, so they are written in a thread.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import trio
from pydantic import SecretBytes, SecretStr

from smartlinkd.auth.files import (
    MAX_LOGOUTS,
    Logouts,
    Saved,
    all_ended,
    new_epoch,
    save,
    save_logouts,
    save_password,
)
from smartlinkd.auth.keys import ApiKey, KeyRing, NewKey, SavedKeys, WantedKey
from smartlinkd.auth.passwords import Passwords
from smartlinkd.auth.throttle import Throttle, Tries
from smartlinkd.auth.tokens import Tokens, password_digest, refusal
from smartlinkd.auth.totp import SecondFactor, Setup, new_setup, read_code, read_secret
from smartlinkd.errors import Invalid, NotAllowed, Unavailable, WrongCredential
from smartlinkd.logs import Event
from smartlinkd.slots import slot
from smartlinkd.state import saving
from smartlinkd.threads import on_thread

logger = logging.getLogger(__name__)

LOGINS_AT_ONCE: Final = 32
"""Passwords checked or waiting for it: the last of them waits a third of a second."""

CHANGES_AT_ONCE: Final = 16
"""Codes and changes checked, saved or waiting for it."""

AT_ONCE: Final = LOGINS_AT_ONCE + CHANGES_AT_ONCE + 1
"""One hand is always left for what needs no wait."""

CODES_PER_LOGIN: Final = 5
"""Wrong codes after which a temporary token is dead."""

MAX_LOGINS_WAITING: Final = 1024
"""Temporary tokens that are good at the same time; one more ends the oldest. Only somebody who
knows the password gets any, and their codes are throttled."""

SETUP_MINUTES: Final = 10
"""Within which a secret handed out by setup may be enabled."""

USES_SAVED_AFTER: Final = 60.0
"""Seconds from a key's use until the daemon writes down when keys were last used."""

KeyMade = Callable[[ApiKey], None]
"""Called with each new API key. Never waits."""

_WRONG_CODE: Final = (
    "code: is wrong, was used already, or is too old; wait for the app to show the next one"
)


@dataclass(frozen=True)
class LoggedIn:
    """The password was right, and nothing else is asked for."""

    token: str = field(repr=False)


@dataclass(frozen=True)
class SecondStep:
    """The password was right; `temp_token` goes to `verify_mfa` together with a code."""

    temp_token: str = field(repr=False)


@dataclass(frozen=True)
class Session:
    """What a session token says that is good."""

    jti: str
    epoch: str
    expires_at: int
    """Unix seconds."""


@dataclass
class _IssuedSetup:
    secret: bytes = field(repr=False)
    good_until: float  # on trio's clock


class AuthState:
    """The state of one instance, and what is done on it."""

    def __init__(
        self,
        directory: Path,
        saved: Saved,
        signing_secret: SecretBytes,
        password_hash: SecretStr,
        wall_clock: Callable[[], float],
        *,
        keys: SavedKeys,
        logouts: Logouts,
        key_made: KeyMade,
    ) -> None:
        self._directory = directory
        self._keys = KeyRing(directory, keys)
        self._logouts = logouts
        self._key_made = key_made
        self._key_used = trio.Event()
        self._saved = saved
        self._signing_secret = signing_secret
        self._tokens = Tokens(signing_secret, password_hash)
        self._passwords = Passwords(password_hash)
        self._throttle = Throttle(trio.current_time)
        self._wall_clock = wall_clock
        self._codes_left: dict[str, int] = {}  # by jti of the temporary token, oldest first
        self._setup: _IssuedSetup | None = None
        self._logins = trio.Semaphore(LOGINS_AT_ONCE)
        self._changes = trio.Semaphore(CHANGES_AT_ONCE)
        self._changing = trio.Lock()

    async def login(self, password: str, address: str) -> LoggedIn | SecondStep:
        with slot(self._logins, "logins or changes"):
            await self._throttle.wait_for_verdicts(address)
            with self._throttle.attempt(address) as tries:
                passwords = self._passwords
                right = await passwords.is_right(password)
                if not right or passwords is not self._passwords:  # it is another one by now
                    logger.warning("wrong password from %s", address)
                    _tell_if_slowed(tries, address)
                    raise WrongCredential("password: is wrong")
                if self._saved.second_factor is not None:
                    # Half a login: it neither counts as a failure nor makes up for any.
                    return SecondStep(self._temp_token())
                tries.succeeded()
                logger.info("login from %s", address)
                return LoggedIn(self._session_token())

    async def verify_mfa(self, temp_token: str, code: str, address: str) -> str:
        code = read_code(code)
        async with self._change():
            claims = self._tokens.read(temp_token, "mfa", now=self._wall_clock())
            factor = self._saved.second_factor
            admitted = self._saved.admits(jti=claims.jti, epoch=claims.epoch)
            if factor is None or not admitted or claims.jti not in self._codes_left:
                raise refusal("mfa")
            with self._throttle.attempt(address, code=True) as tries:
                try:
                    accepted = self._accept(factor, code, tries, address)
                except WrongCredential:
                    self._spend_code_of(claims.jti)
                    raise
                await self._save(replace(self._saved, second_factor=accepted))
                self._codes_left.pop(claims.jti, None)  # gone when logins pushed it out meanwhile
                tries.succeeded()
            logger.info("login with a second factor from %s", address)
            return self._session_token()

    def check_session(self, token: str | None) -> Session:
        if token is None:
            raise NotAllowed(
                "no session token; send the one from /api/auth/login as `Authorization: Bearer …`"
            )
        claims = self._tokens.read(token, "session", now=self._wall_clock())
        session = Session(claims.jti, claims.epoch, claims.exp)
        self._refuse_when_ended(session)
        return session

    def cookie_name(self) -> str:
        secret = self._signing_secret.get_secret_value()
        return "smartlinkd_" + hmac.digest(secret, b"session cookie", "sha256")[:6].hex()

    async def logout(self, session: Session) -> None:
        async with self._change():
            now = self._wall_clock()
            logouts = self._logouts.with_ended(session.jti, session.expires_at, now=now)
            if logouts is None:
                await self._save(all_ended(self._saved))
                logouts = Logouts()
                text = "every session has ended: over %d were logged out within days"
                logger.warning(text, MAX_LOGOUTS)
            with saving():
                await on_thread(save_logouts, self._directory, logouts)
            self._logouts = logouts
            logger.info("a session was logged out")

    async def second_factor_enabled(self) -> bool:
        return self._saved.second_factor is not None

    async def begin_setup(self) -> Setup:
        self._refuse_when_enabled()
        setup = new_setup()
        good_until = trio.current_time() + SETUP_MINUTES * 60
        self._setup = _IssuedSetup(setup.secret.encode(), good_until)
        return setup

    async def enable(self, session: Session, secret: str, code: str, address: str) -> None:
        code = read_code(code)
        async with self._change():
            self._refuse_when_ended(session)  # it may not be spared
            self._refuse_when_enabled()
            secret = self._issued(secret)
            with self._throttle.attempt(address, code=True) as tries:
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

    async def disable(self, session: Session, code: str, address: str) -> None:
        code = read_code(code)
        async with self._change():
            self._refuse_when_ended(session)
            factor = self._saved.second_factor
            if factor is None:
                raise Invalid("the second factor is switched off already")
            with self._throttle.attempt(address, code=True) as tries:
                self._accept(factor, code, tries, address)
                await self._save(replace(self._saved, second_factor=None))
                tries.succeeded()
            logger.warning("second factor switched off from %s", address)

    async def second_factor_off(self) -> None:
        async with self._change():
            await self._save(replace(self._saved, second_factor=None))
            logger.warning("second factor switched off by the operator")

    async def revoke_all(self, *, with_keys: bool) -> None:
        async with self._change():
            if with_keys and (count := await self._keys.clear()):
                logger.warning("%d API keys ended by the operator", count)
            await self._save(all_ended(self._saved))
            logger.warning("every session ended by the operator")

    def check_key(self, key: str) -> ApiKey:
        found = self._keys.use(key, now=self._wall_clock())
        self._key_used.set()
        return found

    async def keys(self) -> tuple[ApiKey, ...]:
        return self._keys.listed()

    async def create_key(
        self, wanted: WantedKey, session: Session, code: str | None, address: str
    ) -> NewKey:
        async with self._change():
            self._refuse_when_ended(session)
            self._keys.check_room()  # before a code is used up
            factor = self._saved.second_factor
            digits = read_code(code or "") if factor is not None or code is not None else ""
            if factor is not None:
                with self._throttle.attempt(address, code=True) as tries:
                    accepted = self._accept(factor, digits, tries, address)
                    await self._save(replace(self._saved, second_factor=accepted))
                    tries.succeeded()
            return await self._add_key(wanted, address)

    async def create_key_in_shell(self, wanted: WantedKey) -> NewKey:
        async with self._change():
            return await self._add_key(wanted, "the owner's shell")

    async def revoke_key(self, key_id: str) -> None:
        async with self._change():
            ended = await self._keys.remove(key_id)
            logger.warning("API key %s (%s) was revoked", ended.id, ended.name)

    async def keep_uses(self) -> None:
        """Write down now and then when keys were last used. Runs until cancelled."""
        while True:
            await self._key_used.wait()
            await trio.sleep(USES_SAVED_AFTER)
            await self.save_uses()

    async def save_uses(self) -> None:
        """Write down when keys were last used. On failure the next change, or minute, does it."""
        async with self._changing:
            with suppress(Unavailable):  # the log has it
                await self._keys.save_uses()
        if not self._keys.has_unsaved_uses:
            self._key_used = trio.Event()

    async def take_password(self, password_hash: SecretStr) -> None:
        async with self._change():  # so that no login half done ends in a session of the new one
            # Before anything is saved: no full disk keeps a password good that was replaced.
            self._tokens = Tokens(self._signing_secret, password_hash)
            self._passwords = Passwords(password_hash)
            await self._save(all_ended(self._saved))
            digest = password_digest(self._signing_secret, password_hash)
            with saving():
                await on_thread(save_password, self._directory, digest)
            logger.warning("the password was changed: every session has ended")

    async def _add_key(self, wanted: WantedKey, origin: str) -> NewKey:
        made = await self._keys.add(wanted, now=self._wall_clock())
        logger.warning(
            "API key %s (%s) was made from %s, for: %s",
            made.entry.id,
            made.entry.name,
            origin,
            ", ".join(made.entry.scopes),
        )
        self._key_made(made.entry)
        return made

    def _accept(self, factor: SecondFactor, code: str, tries: Tries, address: str) -> SecondFactor:
        accepted = factor.accept(code, now=self._wall_clock())
        if accepted is None:
            logger.warning("wrong code from %s", address)
            _tell_if_slowed(tries, address)
            raise WrongCredential(_WRONG_CODE)
        return accepted

    def _refuse_when_ended(self, session: Session) -> None:
        """Raises `NotAllowed` for a session that has ended, maybe while others were waited for."""
        admitted = self._saved.admits(jti=session.jti, epoch=session.epoch)
        if not admitted or session.jti in self._logouts.ended:
            raise refusal("session")

    def _refuse_when_enabled(self) -> None:
        if self._saved.second_factor is not None:
            raise Invalid(
                "the second factor is switched on already; "
                "switch it off at /api/auth/2fa/disable first"
            )

    def _issued(self, secret: str) -> str:
        """Return the secret of the latest setup, as it was given out.

        Raises:
            Invalid: `secret` is another one, or that setup is too long ago.
        """
        setup = self._setup
        given = read_secret(secret).encode("utf-8", "surrogatepass")
        if (
            setup is None
            or not hmac.compare_digest(setup.secret, given)
            or trio.current_time() >= setup.good_until
        ):
            raise Invalid(
                "secret: is not the latest that /api/auth/2fa/setup gave out in the last "
                f"{SETUP_MINUTES} minutes; call it again and scan the new QR code"
            )
        return setup.secret.decode()

    def _session_token(self) -> str:
        return self._tokens.issue(
            "session", jti=_new_jti(), epoch=self._saved.epoch, now=self._wall_clock()
        )

    def _temp_token(self) -> str:
        if len(self._codes_left) >= MAX_LOGINS_WAITING:
            del self._codes_left[next(iter(self._codes_left))]
        jti = _new_jti()
        self._codes_left[jti] = CODES_PER_LOGIN
        return self._tokens.issue("mfa", jti=jti, epoch=self._saved.epoch, now=self._wall_clock())

    def _spend_code_of(self, jti: str) -> None:
        self._codes_left[jti] -= 1
        if self._codes_left[jti] == 0:
            del self._codes_left[jti]

    @asynccontextmanager
    async def _change(self) -> AsyncIterator[None]:
        """In the body nobody else changes what is saved."""
        with slot(self._changes, "logins or changes"):
            async with self._changing:
                yield

    async def _save(self, saved: Saved) -> None:
        """Put it on the disk, then in force.

        Can be cancelled before the thread starts, never after. Raises `Unavailable` when nothing
        was changed; any other error of the disk ends the instance, and the next one reads
        what is really there.
        """
        with saving():
            await on_thread(save, self._directory, saved)
        self._saved = saved


def _tell_if_slowed(tries: Tries, address: str) -> None:
    # At most as often as the throttle lets anybody fail: a flood of tries is no flood of records.
    if tries.slowed_by_one_more:
        text = "%s has failed too often, and has to wait between tries"
        logger.warning(text, address, extra=Event.GUESSES_SLOWED())


def _new_jti() -> str:
    return secrets.token_hex(16)
