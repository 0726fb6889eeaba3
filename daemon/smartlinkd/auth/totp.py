"""The second factor: time-based one-time codes (RFC 6238). Pure; the caller has the clock.

The parameters are those that every authenticator app takes, and the only ones that some do:
SHA-1, 6 digits, 30 seconds. One step of clock difference is allowed either way.

A code is good once. What is remembered for that is the last 512 time steps whose codes were
accepted, and only they are refused. Rejected: refusing every step up to the last accepted one,
as is often done. A clock that was a day ahead at one login would lock the owner out for a day.
Rejected as well: remembering no more than are within reach of a steady clock. One that is set back
makes a code good again that was used an hour ago, and any number of logins may lie between.
"""

from __future__ import annotations

import hmac
import re
import unicodedata
from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Annotated, Final

from pydantic import AfterValidator, ConfigDict, Field, SecretStr, field_serializer
from pydantic.dataclasses import dataclass as model

from smartlinkd.errors import Invalid
from smartlinkd.late_imports import needed

STEP: Final = 30
"""Seconds that a code is shown for."""

SKEW: Final = 1
"""Steps that the clocks of the phone and the daemon may be apart."""

REMEMBERED_STEPS: Final = 512
"""Accepted steps that are refused: those of the logins of weeks, in some 5 kB."""

ISSUER: Final = "smartlinkd"
ACCOUNT: Final = "owner"
"""What the authenticator app shows."""

_DIGITS: Final = 6
_MAX_TEXT: Final = 256
"""Characters of a code or a secret as it is sent, with all that is between."""
_BETWEEN: Final = ("Pd", "Cf")
"""Unicode's categories for dashes and for invisible characters."""
_MINUS: Final = "\N{MINUS SIGN}"

_SECRET = re.compile(r"[A-Z2-7]{32}")  # 160 bits, as RFC 4226, section 4, recommends
_SCALE = 6  # pixels a module: 300 pixels a side, which a phone reads off a screen


def _check_secret(secret: SecretStr) -> SecretStr:
    if not _SECRET.fullmatch(secret.get_secret_value()):
        raise ValueError("is no secret of 32 base32 characters")
    return secret


@model(frozen=True, config=ConfigDict(strict=True, extra="forbid", hide_input_in_errors=True))
class SecondFactor:
    """A second factor that is switched on: its secret, and the steps whose codes are used up."""

    secret: Annotated[SecretStr, AfterValidator(_check_secret)]
    used_steps: tuple[int, ...] = Field(max_length=REMEMBERED_STEPS)

    @field_serializer("secret", when_used="json")
    def _reveal(self, secret: SecretStr) -> str:
        return secret.get_secret_value()

    def accept(self, code: str, *, now: float) -> SecondFactor | None:
        """This factor with the code used up, or None when it is wrong, used or of another time.

        `code` comes from `read_code`; `now` is in Unix seconds. All steps in reach are compared,
        each in constant time. Raises `Unavailable`.
        """
        with needed():
            import pyotp  # noqa: PLC0415 - see smartlinkd/late_imports.py

        hotp = pyotp.HOTP(self.secret.get_secret_value())
        step = int(now) // STEP
        in_reach = range(max(0, step - SKEW), step + SKEW + 1)  # a clock may start in 1970
        matching = [s for s in in_reach if hmac.compare_digest(hotp.at(s), code)]
        fresh = tuple(s for s in matching if s not in self.used_steps)
        if not fresh:
            return None
        return changed(self, used_steps=(self.used_steps + fresh)[-REMEMBERED_STEPS:])


@dataclass(frozen=True)
class Setup:
    """What `2fa/setup` hands out: the secret in base32, and a data URI of a PNG that shows it."""

    secret: str = field(repr=False)
    qr_code: str = field(repr=False)


def new_setup() -> Setup:
    """A fresh secret, and the QR code that an authenticator app reads it from. Raises
    `Unavailable`."""
    with needed():
        import pyotp  # noqa: PLC0415 - see smartlinkd/late_imports.py
        import segno  # noqa: PLC0415 - it is needed once in a daemon's life

        secret = pyotp.random_base32()
        uri = pyotp.TOTP(secret).provisioning_uri(name=ACCOUNT, issuer_name=ISSUER)
        # segno adds the quiet zone of 4 modules that ISO/IEC 18004 asks for.
        return Setup(secret, segno.make(uri, error="m").png_data_uri(scale=_SCALE))


def read_code(text: str) -> str:
    """Return the 6 digits of a code as people copy it: `123 456`, `123-456`, with a line end.

    Digits of any script count, since each has one value.

    Raises:
        Invalid: there are not 6 digits, or something else is between them. It was then no try, and
            is not counted.
    """
    digits = [unicodedata.decimal(char, None) for char in _without_separators(text)]
    if len(digits) != _DIGITS or None in digits:
        raise Invalid("code: must be the 6 digits that the authenticator app shows")
    return "".join(map(str, digits))


def read_secret(text: str) -> str:
    """Return a secret in base32 as `Setup` has it. People copy it in lower case and in groups."""
    return _without_separators(text).upper()


def _without_separators(text: str) -> str:
    """Return `text` without spaces, dashes and line ends; "" for what is absurdly long."""
    if len(text) > _MAX_TEXT:
        return ""
    return "".join(char for char in text if not _is_separator(char))


def _is_separator(char: str) -> bool:
    return char.isspace() or char == _MINUS or unicodedata.category(char) in _BETWEEN
