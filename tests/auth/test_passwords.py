"""Passwords and their hashes."""

from __future__ import annotations

import re
import resource
import threading
import traceback
from collections.abc import Iterator

import argon2
import pytest
import trio
import trio.testing
from pydantic import SecretStr

from smartlinkd.auth import passwords
from smartlinkd.auth.passwords import Passwords, check_hash, hash_password
from smartlinkd.errors import Invalid, Unavailable

PASSWORD = "correct horse battery staple"


def a_hash(
    *, kind: argon2.Type = argon2.Type.ID, m: int = 19456, t: int = 2, p: int = 1, tag: int = 32
) -> str:
    hasher = argon2.PasswordHasher(
        time_cost=t, memory_cost=m, parallelism=p, hash_len=tag, type=kind
    )
    return hasher.hash(PASSWORD)


GOOD = a_hash()
TOO_MUCH = GOOD.replace("m=19456", f"m={2**32 - 1}")  # KiB


@pytest.mark.parametrize("password", ["pässwörd", "nul\0byte", "lone \ud800 surrogate", "x" * 1024])
async def test_password_may_be_any_text_up_to_1024_characters(password: str) -> None:
    owner = Passwords(SecretStr(hash_password(password)))

    assert await owner.is_correct(password)


async def test_overlong_password_is_refused_without_hashing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(passwords, "matches")

    with pytest.raises(Invalid, match=r"^password: is longer than 1024 characters"):
        await Passwords(SecretStr(GOOD)).is_correct("x" * 1025)


async def test_checks_run_two_at_a_time_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, gate, counting = threading.Semaphore(0), threading.Event(), threading.Lock()
    inside: set[int] = set()
    most = 0

    def matches(password_hash: str, password: str) -> bool:
        nonlocal most
        with counting:
            inside.add(threading.get_ident())
            most = max(most, len(inside))
        entered.release()
        gate.wait(10)
        with counting:
            inside.remove(threading.get_ident())
        return True

    monkeypatch.setattr(passwords, "matches", matches)
    owner = Passwords(SecretStr(GOOD))

    async with trio.open_nursery() as nursery:
        for _ in range(6):
            nursery.start_soon(owner.is_correct, PASSWORD)
        for _ in range(2):
            await trio.to_thread.run_sync(entered.acquire)
        await trio.testing.wait_all_tasks_blocked()
        assert threading.get_ident() not in inside
        gate.set()

    assert most == 2


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Not the 4 TiB that `TOO_MUCH` wants."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2**40, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.usefixtures("little_memory")
async def test_check_without_memory_is_unavailable_and_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = Passwords(SecretStr(TOO_MUCH))
    told = ["no password can be checked: Memory allocation error"]
    for _ in range(3):
        with pytest.raises(Unavailable) as refused:
            await checked.is_correct(PASSWORD)
        assert caplog.messages == told  # once: anybody may try
    assert str(refused.value) == (
        "no password can be checked at the moment (Memory allocation error); try again shortly"
    )
    assert refused.value.retry_after == 5

    with monkeypatch.context() as patch:
        patch.setattr(passwords, "matches", lambda *_: True)  # as if there were enough
        assert await checked.is_correct(PASSWORD)
    with pytest.raises(Unavailable):
        await checked.is_correct(PASSWORD)
    assert caplog.messages == told * 2


@pytest.mark.parametrize(
    ("password", "fault"), [("", "is empty"), ("x" * 1025, "is longer than 1024 characters")]
)
def test_unusable_password_is_not_hashed(password: str, fault: str) -> None:
    with pytest.raises(Invalid, match=f"^password: {fault}"):
        hash_password(password)


@pytest.mark.parametrize(
    "strong",
    [a_hash(m=19457), a_hash(t=3), a_hash(p=2), a_hash(tag=16)],
    ids=["memory", "passes", "lanes", "tag"],
)
def test_hash_of_the_strength_or_more_is_accepted(strong: str) -> None:
    check_hash(strong)


NO_HASH = "is no argon2id hash; "
OTHER_KIND = "is an argon2 hash of another kind than argon2id; "
WEAKER = "is a weaker argon2id hash than m=19456,t=2,p=1; "
COSTLY = "is an argon2id hash that costs more than m=262144,t=16,p=16 at every login; "
DAMAGED = "is a damaged argon2id hash; copy it again, or "
REFUSED = {
    "empty": ("", NO_HASH),
    "a password": (PASSWORD, NO_HASH),
    "bcrypt": ("$2b$12$abcdefghijklmnopqrstuv", NO_HASH),
    "the kind alone": ("$argon2id$", NO_HASH),
    "argon2i": (a_hash(kind=argon2.Type.I), OTHER_KIND),
    "argon2d": (a_hash(kind=argon2.Type.D), OTHER_KIND),
    "less memory": (a_hash(m=19455), WEAKER),
    "fewer passes": (a_hash(t=1), WEAKER),
    "shorter tag": (a_hash(tag=15), WEAKER),
    "version 1.0": (GOOD.replace("v=19", "v=16"), WEAKER),
    "no version": (GOOD.replace("$v=19", ""), WEAKER),
    "too much memory": (GOOD.replace("m=19456", "m=262145"), COSTLY),
    "too many passes": (GOOD.replace("t=2", "t=17"), COSTLY),
    "too many lanes": (GOOD.replace("p=1", "p=17"), COSTLY),
    "cut off": (GOOD[:-2], DAMAGED),
    "newline": (GOOD + "\n", DAMAGED),
    "not ASCII": (GOOD[:-1] + "é", DAMAGED),
    "order": (GOOD.replace("m=19456,t=2", "t=2,m=19456"), DAMAGED),
    "no lane": (GOOD.replace("p=1", "p=0"), DAMAGED),
}


@pytest.mark.parametrize(("text", "fault"), REFUSED.values(), ids=list(REFUSED))
def test_unusable_hash_is_refused_with_its_fault(text: str, fault: str) -> None:
    """The error has the fault and the remedy, and neither it nor its traceback has the hash."""
    remedy = "make one with `smartlinkd hash-password`"
    with pytest.raises(ValueError, match=f"^{re.escape(fault + remedy)}$") as error:
        check_hash(text)
    tail = text.rpartition("$")[2]
    assert not tail or tail not in "".join(traceback.format_exception_only(error.value))
