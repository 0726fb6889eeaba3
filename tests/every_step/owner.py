"""The owner of a daemon on a stage, with the password, the phone and access to the disk."""

from __future__ import annotations

import pyotp

from smartlinkd.auth.files import STATE_FILE, SavedState, load
from smartlinkd.auth.totp import STEP, SecondFactor
from tests.every_step.world import PASSWORD, World
from tests.faults.sockets import SentRequest


class Owner:
    """`secret` is the second factor's; "" while it is off."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stage = world.stage
        self.secret = ""

    # Requests

    def login(self, password: str = PASSWORD) -> SentRequest:
        return self.stage.request("POST", "/api/auth/login", {"password": password})

    def verify(self, temp_token: str, code: str) -> SentRequest:
        body = {"tempToken": temp_token, "code": code}
        return self.stage.request("POST", "/api/auth/verify-mfa", body)

    def enable(self, token: str, secret: str, code: str) -> SentRequest:
        body = {"secret": secret, "code": code}
        return self.stage.request("POST", "/api/auth/2fa/enable", body, token=token)

    def disable(self, token: str, code: str) -> SentRequest:
        return self.stage.request("POST", "/api/auth/2fa/disable", {"code": code}, token=token)

    async def half_login(self) -> str:
        """Log in with the password alone and return the temporary token."""
        return str((await self.login().expect_ok())["tempToken"])

    async def session(self) -> str:
        """Log in, with a code if one is needed, and return the session's token."""
        found = await self.login().expect_ok()
        if found.get("mfaRequired"):
            found = await self.verify(found["tempToken"], self.next_code()).expect_ok()
        return str(found["token"])

    async def setup(self, token: str) -> str:
        """Return the secret of a second factor that is not yet on."""
        asked = self.stage.request("GET", "/api/auth/2fa/setup", token=token)
        return str((await asked.expect_ok())["secret"])

    async def enable_factor(self) -> None:
        token = await self.session()
        self.secret = await self.setup(token)
        await self.enable(token, self.secret, self.next_code(self.secret)).expect_ok()

    async def has_access(self, token: str) -> bool:
        """True if the session is valid."""
        asked = self.stage.request("GET", "/api/crews", token=token)
        assert await asked.wait() in (200, 403), asked
        return asked.status == 200

    # The phone

    def next_code(self, secret: str = "") -> str:
        """Advance the wall clock to the next code and return it."""
        self.stage.wall.offset += STEP
        return self.code(secret)

    def code(self, secret: str = "") -> str:
        return pyotp.TOTP(secret or self.secret).at(int(self.stage.wall.now()))

    # The disk

    def saved(self) -> SavedState:
        """Return the saved state. It must be complete, with no temporary file beside it."""
        names = {each.name for each in self.stage.directory.iterdir()}
        assert not {name for name in names if name.endswith(".new")}, names
        assert STATE_FILE in names
        return load(self.stage.directory)

    def factor(self) -> SecondFactor | None:
        return self.saved().second_factor

    def is_used(self) -> bool:
        """True if the phone's current code has been used."""
        factor = self.factor()
        return factor is not None and int(self.stage.wall.now()) // STEP in factor.used_steps
