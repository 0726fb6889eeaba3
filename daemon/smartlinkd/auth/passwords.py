"""The owner's password: argon2id hashes, made for the configuration and checked at login.

The problem: a check is slow and takes memory on purpose, so it may neither run on trio's thread
nor run often at the same time. Eight at once under trio's own limit of forty threads would take
eight times the memory of one.

The choice: a limiter of its own that lets `CHECKS_AT_ONCE` through. A check that has started runs
to its end in its thread even when the asker has gone (trio's default for threads): its verdict
counts, so hanging up early is no way around the throttle.

Rejected: rehashing at login when the parameters have become stronger. The hash belongs to the
configuration, which the daemon only reads.
"""

from __future__ import annotations

import logging
from typing import Final

import argon2
import trio
from argon2.exceptions import InvalidHashError, VerificationError, VerifyMismatchError
from pydantic import SecretStr

from smartlinkd.errors import Invalid, Unavailable
from smartlinkd.threads import RETRY_AFTER, on_thread

logger = logging.getLogger(__name__)

MEMORY_KIB: Final = 19 * 1024
PASSES: Final = 2
LANES: Final = 1
"""What new hashes cost, and the least that a given one may: OWASP's first choice, about 20 ms."""

MAX_MEMORY_KIB: Final = 256 * 1024
MAX_PASSES: Final = 16
MAX_LANES: Final = 16
"""A hash that asks for more is taken for a mistake: each login would stop the machine."""

VERSION: Final = 19
"""1.3, which RFC 9106 describes; 1.0 overwrote memory in a way that can be exploited."""

MIN_TAG_BYTES: Final = 16
"""RFC 9106, section 3.1, allows 4; 128 bits is what it recommends for passwords."""

MAX_PASSWORD: Final = 1024
"""Characters. More is no password, and hashing it would cost somebody else's time."""

CHECKS_AT_ONCE: Final = 2
"""Threads that may hash at the same time: 38 MiB at the usual parameters."""

_HASHER = argon2.PasswordHasher(time_cost=PASSES, memory_cost=MEMORY_KIB, parallelism=LANES)
_REMEDY = "make one with `smartlinkd hash-password`"


class Passwords:
    """Checks passwords against the one configured hash. `password_hash` passed `check_hash`."""

    def __init__(self, password_hash: SecretStr) -> None:
        self._hash = password_hash
        self._limiter = trio.CapacityLimiter(CHECKS_AT_ONCE)
        self._told = False
        """Of the shortage that there is; anybody may try, and each try would be a line."""

    async def is_right(self, password: str) -> bool:
        """Whether it is the owner's. Raises `Invalid` when it is too long to be one, and
        `Unavailable` when the machine has not what it takes to find out.
        """
        _check_length(password)
        try:
            verdict = await on_thread(
                matches, self._hash.get_secret_value(), password, limiter=self._limiter
            )
        except VerificationError as shortage:
            # Nobody who may try a password may end the part that guards the door by it.
            if not self._told:
                self._told = True
                logger.warning("no password can be checked: %s", shortage)
            raise Unavailable(
                f"no password can be checked at the moment ({shortage}); try again shortly",
                retry_after=RETRY_AFTER,
            ) from None
        self._told = False
        return verdict


def hash_password(password: str) -> str:
    """The argon2id hash (PHC string) to put into the configuration. Takes some 20 ms.

    Raises `Invalid` for an empty password and for one over `MAX_PASSWORD` characters.
    """
    if not password:
        raise Invalid("password: is empty; choose one that cannot be guessed")
    _check_length(password)
    return _HASHER.hash(_encoded(password))


def check_hash(text: str) -> None:
    """Raise `ValueError` unless `text` is an argon2id hash that is strong and whole.

    The text of the error names the fault and the remedy, never the hash. The last of the checks
    is a trial run, so this takes as long as a login does.
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
    """Whether the hash is that password's. Takes as long as the hash says.

    Raises `VerificationError` when there is no verdict: the hash is damaged, or the machine is out
    of memory, or, for a hash of several lanes, out of threads.
    """
    try:
        return _HASHER.verify(password_hash, _encoded(password))
    except VerifyMismatchError:
        return False


def _check_length(password: str) -> None:
    if len(password) > MAX_PASSWORD:
        raise Invalid(f"password: is longer than {MAX_PASSWORD} characters; shorten it")


def _encoded(password: str) -> bytes:
    """UTF-8. A lone surrogate, which JSON can carry, makes a wrong password and not a crash."""
    return password.encode("utf-8", "surrogatepass")
