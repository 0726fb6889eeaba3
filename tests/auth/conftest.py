"""An auth actor in its own folder, with a clock that the test sets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pyotp
import pytest
import trio
from pydantic import SecretStr

from smartlinkd.auth import passwords
from smartlinkd.auth.actor import Auth, LoggedIn, SecondStep
from smartlinkd.auth.passwords import hash_password
from smartlinkd.errors import WrongCredential

HASH = hash_password("the right one")
WRONG_CODE = (
    r"^code: is wrong, was used already, or is too old; wait for the app to show the next one$"
)

Enable = Callable[[Auth], Awaitable[tuple[str, str]]]
Shown = Callable[..., str]
NewAuth = Callable[..., Auth]
Running = Callable[..., AbstractAsyncContextManager[Auth]]
WrongCode = Callable[[str], str]


@pytest.fixture
def wall() -> SimpleNamespace:
    """The machine's clock: `wall.now`, Unix seconds."""
    return SimpleNamespace(now=1_700_000_000.0)


@pytest.fixture
def new_auth(
    tmp_path: Path, wall: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Auth]:
    """Make the handle, always on the same folder; passwords are compared without hashing."""
    monkeypatch.setattr(passwords, "matches", lambda _, password: password == "the right one")

    def make(*, password_hash: str = HASH, signing_secret: str = "") -> Auth:
        return Auth(
            tmp_path,
            password_hash=SecretStr(password_hash),
            signing_secret=SecretStr(signing_secret),
            wall_clock=lambda: wall.now,
        )

    return make


@pytest.fixture
def running(new_auth: Callable[..., Auth]) -> Callable[..., AbstractAsyncContextManager[Auth]]:
    """One instance of the actor, of a new handle or a given one, while the body runs."""

    @asynccontextmanager
    async def instance(handle: Auth | None = None) -> AsyncIterator[Auth]:
        auth = handle or new_auth()
        async with trio.open_nursery() as nursery:
            await nursery.start(auth.run)
            yield auth
            nursery.cancel_scope.cancel()

    return instance


@pytest.fixture
async def auth(new_auth: Callable[..., Auth], nursery: trio.Nursery) -> Auth:
    """The actor, running."""
    auth = new_auth()
    await nursery.start(auth.run)
    return auth


@pytest.fixture
def shown(wall: SimpleNamespace) -> Callable[..., str]:
    """The code on the owner's phone."""
    return lambda secret, *, ahead=0: pyotp.TOTP(secret).at(int(wall.now + ahead))


@pytest.fixture
def wrong_code(shown: Callable[..., str]) -> Callable[[str], str]:
    """A code that is no good for some minutes."""

    def wrong(secret: str) -> str:
        good = {shown(secret, ahead=30 * step) for step in range(-2, 10)}
        return next(text for n in range(13) if (text := f"{n:06}") not in good)

    return wrong


async def log_in(auth: Auth) -> str:
    """Log in without a second factor; return the session token."""
    answer = await auth.login("the right one", "192.0.2.1")
    assert isinstance(answer, LoggedIn)
    return answer.token


async def begin_login(auth: Auth) -> str:
    """Do the first half of a login with a second factor; return the temporary token."""
    answer = await auth.login("the right one", "192.0.2.1")
    assert isinstance(answer, SecondStep)
    return answer.temp_token


@pytest.fixture
def enable(
    shown: Callable[..., str], wall: SimpleNamespace
) -> Callable[[Auth], Awaitable[tuple[str, str]]]:
    """Switch the second factor on, then go on to the next code.

    Returns the secret, and the token of the session that did it.
    """

    async def switch_on(auth: Auth) -> tuple[str, str]:
        token = await log_in(auth)
        session = await auth.check_session(token)
        secret = (await auth.begin_setup()).secret
        await auth.enable(session, secret, shown(secret), "192.0.2.1")
        wall.now += 30
        return secret, token

    return switch_on


async def fail_logins(auth: Auth, times: int) -> None:
    """Try a wrong password so often."""
    for _ in range(times):
        with pytest.raises(WrongCredential, match=r"^password: is wrong$"):
            await auth.login("a wrong one", "192.0.2.1")
