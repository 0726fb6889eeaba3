"""The second factor: time-based one-time codes (RFC 6238). Pure; the caller has the clock.

The parameters are SHA-1, 6 digits and 30 seconds: every authenticator app takes these, and some
take no others. One step of clock difference is allowed either way. A code is accepted once. See
docs/decisions/033-passwords-and-codes.md.
"""

from __future__ import annotations

import hmac
import re
import unicodedata
from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Annotated, Final

import pyotp
import segno
from pydantic import AfterValidator, ConfigDict, Field, SecretStr, field_serializer
from pydantic.dataclasses import dataclass as model

from smartlinkd.errors import Invalid

STEP: Final = 30
"""Seconds for which an app shows a code."""

SKEW: Final = 1
"""Steps by which the clocks of the phone and the daemon may differ."""

REMEMBERED_STEPS: Final = 512
"""Accepted steps that are kept and refused: the logins of weeks, in some 5 kB."""

ISSUER: Final = "smartlinkd"
ACCOUNT: Final = "owner"
"""The entry's name in the authenticator app."""

_DIGITS: Final = 6
_MAX_TEXT: Final = 256
"""Characters of a code or a secret as it is sent, separators included."""
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
    """A second factor that is on: its secret, and the time steps whose codes were used."""

    secret: Annotated[SecretStr, AfterValidator(_check_secret)]
    used_steps: tuple[int, ...] = Field(max_length=REMEMBERED_STEPS)

    @field_serializer("secret", when_used="json")
    def _reveal(self, secret: SecretStr) -> str:
        return secret.get_secret_value()

    def accept(self, code: str, *, now: float) -> SecondFactor | None:
        """Return a copy with the code used up; None if the code is wrong, used or out of time.

        All steps in reach are compared, each in constant time.

        Args:
            code: a result of `read_code`.
            now: Unix seconds.
        """
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
    """A new secret in base32, and its QR code as a data URI of a PNG."""

    secret: str = field(repr=False)
    qr_code: str = field(repr=False)


def new_setup() -> Setup:
    """Return a random secret and its QR code."""
    secret = pyotp.random_base32()
    uri = pyotp.TOTP(secret).provisioning_uri(name=ACCOUNT, issuer_name=ISSUER)
    # segno adds the quiet zone of 4 modules that ISO/IEC 18004 asks for.
    return Setup(secret, segno.make(uri, error="m").png_data_uri(scale=_SCALE))


def read_code(text: str) -> str:
    """Return the 6 digits of a code as people copy it: `123 456`, `123-456`, with a line end.

    Digits of any script are read. Raises `Invalid` if there are not 6 digits, or other characters.
    """
    digits = [unicodedata.decimal(char, None) for char in _without_separators(text)]
    if len(digits) != _DIGITS or None in digits:
        raise Invalid("code: must be the 6 digits that the authenticator app shows")
    return "".join(map(str, digits))


def read_secret(text: str) -> str:
    """Return a secret as `Setup` has it. People copy it in lower case and in groups."""
    return _without_separators(text).upper()


def _without_separators(text: str) -> str:
    """Return `text` without spaces, dashes and line ends; "" if it is absurdly long."""
    if len(text) > _MAX_TEXT:
        return ""
    return "".join(char for char in text if not _is_separator(char))


def _is_separator(char: str) -> bool:
    return char.isspace() or char == _MINUS or unicodedata.category(char) in _BETWEEN
