"""The owner's password: argon2id hashes, made for the configuration and checked at login.

A check is slow on purpose, so it runs on a thread, under a limiter of its own. A check that has
started is completed even if its client hangs up, and its verdict counts: hanging up early does not
get around the throttle. See docs/decisions/033-passwords-and-codes.md.
"""

from __future__ import annotations

import logging
from typing import Final

import argon2
import trio
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError
from pydantic import SecretStr

from smartlinkd.errors import Invalid, Unavailable
from smartlinkd.threads import RETRY_AFTER_S, on_thread

logger = logging.getLogger(__name__)

MEMORY_KIB: Final = 19 * 1024
PASSES: Final = 2
LANES: Final = 1
"""Parameters of new hashes, and the minimum of given ones: OWASP's first choice, about 20 ms."""

MAX_MEMORY_KIB: Final = 256 * 1024
MAX_PASSES: Final = 16
MAX_LANES: Final = 16
"""A hash that asks for more is refused as a mistake: each login would stop the machine."""

VERSION: Final = 19
"""argon2 1.3 (RFC 9106); the way 1.0 overwrote memory can be exploited."""

MIN_TAG_BYTES: Final = 16
"""RFC 9106 allows 4 (section 3.1), and finds 16 sufficient for most uses (section 4)."""

MAX_PASSWORD: Final = 1024
"""Characters. Hashing longer texts would take time from others."""

MAX_CHECKS: Final = 2
"""Threads that may hash at the same time: 38 MiB at the usual parameters."""

_HASHER = argon2.PasswordHasher(time_cost=PASSES, memory_cost=MEMORY_KIB, parallelism=LANES)
_REMEDY = "make one with `smartlinkd hash-password`"


class Passwords:
    """Checks passwords against the one configured hash. `password_hash` passed `check_hash`."""

    def __init__(self, password_hash: SecretStr) -> None:
        self._hash = password_hash
        self._limiter = trio.CapacityLimiter(MAX_CHECKS)
        self._is_shortage_logged = False  # one record a shortage, not one a login

    async def is_correct(self, password: str) -> bool:
        """Return True if it is the owner's password.

        Raises:
            Invalid: it is longer than any password.
            Unavailable: the machine has too little memory, or no thread, for the check.
        """
        _check_length(password)
        try:
            verdict = await on_thread(
                matches, self._hash.get_secret_value(), password, limiter=self._limiter
            )
        except VerificationError as shortage:
            # A refusal, and no crash: anybody may send passwords, and a crash would end the actor.
            if not self._is_shortage_logged:
                self._is_shortage_logged = True
                logger.warning("no password can be checked: %s", shortage)
            raise Unavailable(
                f"no password can be checked at the moment ({shortage}); try again shortly",
                retry_after=RETRY_AFTER_S,
            ) from None
        self._is_shortage_logged = False
        return verdict


def hash_password(password: str) -> str:
    """Return the argon2id hash (PHC string) for the configuration. Takes some 20 ms.

    Raises `Invalid` if the password is empty or longer than `MAX_PASSWORD` characters.
    """
    if not password:
        raise Invalid("password: is empty; choose one that cannot be guessed")
    _check_length(password)
    return _HASHER.hash(_encoded(password))


def check_hash(text: str) -> None:
    """Raise `ValueError` unless `text` is an argon2id hash that is strong and undamaged.

    The error's text never has the hash. The last check is a trial run, which takes as long as a
    login.
    """
    try:
        found = argon2.extract_parameters(text)
    except InvalidHashError:
        raise ValueError(f"is no argon2id hash; {_REMEDY}") from None
    if found.type is not argon2.Type.ID:
        raise ValueError(f"is an argon2 hash of another kind than argon2id; {_REMEDY}")
    if (
        found.version < VERSION
        or found.memory_cost < MEMORY_KIB
        or found.time_cost < PASSES
        or found.hash_len < MIN_TAG_BYTES
    ):
        raise ValueError(
            f"is a weaker argon2id hash than m={MEMORY_KIB},t={PASSES},p={LANES}; {_REMEDY}"
        )
    if (
        found.memory_cost > MAX_MEMORY_KIB
        or found.time_cost > MAX_PASSES
        or found.parallelism > MAX_LANES
    ):
        raise ValueError(
            "is an argon2id hash that costs more than "
            f"m={MAX_MEMORY_KIB},t={MAX_PASSES},p={MAX_LANES} at every login; {_REMEDY}"
        )
    try:
        matches(text, "")
    except (VerificationError, UnicodeEncodeError):
        raise ValueError(f"is a damaged argon2id hash; copy it again, or {_REMEDY}") from None


def matches(password_hash: str, password: str) -> bool:
    """Return True if the hash is that password's. Takes as long as the hash's parameters say.

    Raises `VerificationError` if the hash is damaged, or the machine is out of memory or, for a
    hash of several lanes, out of threads.
    """
    try:
        return _HASHER.verify(password_hash, _encoded(password))
    except VerifyMismatchError:
        return False


def _check_length(password: str) -> None:
    if len(password) > MAX_PASSWORD:
        raise Invalid(f"password: is longer than {MAX_PASSWORD} characters; shorten it")


def _encoded(password: str) -> bytes:
    """Encode as UTF-8. A lone surrogate, which JSON can carry, must not raise."""
    return password.encode("utf-8", "surrogatepass")
