"""Login and the second factor (docs/api.md)."""

from __future__ import annotations

from smartlinkd.api.auth_guards import Guards, Visitor
from smartlinkd.api.client_address import ApiClient
from smartlinkd.api.operations import Api
from smartlinkd.api.schemas import (
    CookieLoginResponse,
    DisableRequest,
    DoneResponse,
    EnableRequest,
    LoggedInResponse,
    LoginRequest,
    MessageResponse,
    RevokeRequest,
    SecondStepResponse,
    SetupResponse,
    TokenResponse,
    VerifyMfaRequest,
)
from smartlinkd.auth.actor import Auth, LoggedIn


def add(api: Api, guards: Guards, auth: Auth) -> None:
    """Add these operations to `api`."""

    @api.operation(
        "POST",
        "/api/auth/login",
        access=guards.anyone,
        body=LoginRequest,
        ok=(LoggedInResponse, CookieLoginResponse, SecondStepResponse),
        errors=(401,),
    )
    async def login(
        caller: ApiClient, body: LoginRequest
    ) -> LoggedInResponse | CookieLoginResponse | SecondStepResponse:
        """Log in with the password.

        With the second factor on, the answer has a tempToken for `verify-mfa` in place of a token.
        """
        outcome = await auth.login(body.password.get_secret_value(), caller.address)
        if not isinstance(outcome, LoggedIn):
            return SecondStepResponse(temp_token=outcome.temp_token)
        if body.session == "cookie":
            await guards.set_session_cookie(outcome.token)
            return CookieLoginResponse()
        return LoggedInResponse(token=outcome.token)

    @api.operation(
        "POST",
        "/api/auth/verify-mfa",
        access=guards.anyone,
        body=VerifyMfaRequest,
        ok=(TokenResponse, DoneResponse),
        errors=(401, 403),
    )
    async def verify_mfa(caller: ApiClient, body: VerifyMfaRequest) -> TokenResponse | DoneResponse:
        """Finish a login with the code that the authenticator app shows."""
        token = await auth.verify_mfa(
            body.temp_token.get_secret_value(), body.code.get_secret_value(), caller.address
        )
        if body.session == "cookie":
            await guards.set_session_cookie(token)
            return DoneResponse()
        return TokenResponse(token=token)

    @api.operation("POST", "/api/auth/logout", access=guards.session, ok=DoneResponse)
    async def logout(visitor: Visitor) -> DoneResponse:
        """End this session, and no other."""
        await auth.logout(visitor.session)
        await guards.clear_session_cookie()
        return DoneResponse()

    @api.operation(
        "POST",
        "/api/auth/revoke",
        access=guards.session,
        body=RevokeRequest,
        needs_body=False,
        ok=DoneResponse,
    )
    async def revoke(_: Visitor, body: RevokeRequest) -> DoneResponse:
        """End every session, this one among them; with `keys` every API key, too."""
        await auth.revoke_all(with_keys=body.keys is True)
        await guards.clear_session_cookie()
        return DoneResponse()

    @api.operation(
        "GET",
        "/api/auth/2fa/setup",
        access=guards.session,
        ok=SetupResponse,
        errors=(400,),
    )
    async def setup(_: Visitor) -> SetupResponse:
        """A new secret for an authenticator app, as text and as a QR code; for 10 minutes.

        It takes the place of the one before.
        """
        made = await auth.begin_setup()
        return SetupResponse(secret=made.secret, qr_code=made.qr_code)

    @api.operation(
        "POST",
        "/api/auth/2fa/enable",
        access=guards.session,
        body=EnableRequest,
        ok=MessageResponse,
        errors=(401,),
    )
    async def enable(visitor: Visitor, body: EnableRequest) -> MessageResponse:
        """Switch the second factor on. Ends every session but this one."""
        await auth.enable(
            visitor.session,
            body.secret.get_secret_value(),
            body.code.get_secret_value(),
            visitor.address,
        )
        return MessageResponse(message="the second factor is on; other sessions have ended")

    @api.operation(
        "POST",
        "/api/auth/2fa/disable",
        access=guards.session,
        body=DisableRequest,
        ok=MessageResponse,
        errors=(401,),
    )
    async def disable(visitor: Visitor, body: DisableRequest) -> MessageResponse:
        """Switch the second factor off."""
        await auth.disable(visitor.session, body.code.get_secret_value(), visitor.address)
        return MessageResponse(message="the second factor is off")
