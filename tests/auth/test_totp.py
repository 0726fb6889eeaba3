"""One-time codes and their secrets."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from pydantic import SecretStr, TypeAdapter, ValidationError

from smartlinkd.auth.totp import (
    REMEMBERED_STEPS,
    SecondFactor,
    Setup,
    new_setup,
    read_code,
)
from smartlinkd.errors import Invalid

SECRET = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"  # of RFC 6238, appendix B
STEP = 37_037_036
START = STEP * 30  # a time step begins
CODES = {STEP - 1: "731029", STEP: "081804", STEP + 1: "050471"}
DAY = 24 * 3600


def factor(*used_steps: int) -> SecondFactor:
    return SecondFactor(SecretStr(SECRET), used_steps)


@pytest.mark.parametrize(
    ("now", "code"),
    [
        (59, "287082"),
        (1111111109, "081804"),
        (1111111111, "050471"),
        (1234567890, "005924"),
        (2000000000, "279037"),
        (20000000000, "353130"),
    ],
)
def test_codes_of_rfc_6238_are_accepted(now: int, code: str) -> None:
    assert factor().accept(code, now=now) is not None


@pytest.mark.parametrize(
    ("now", "accepted"),
    [
        (START - 31, False),
        (START - 30, True),
        (START + 0.5, True),
        (START + 59.9, True),
        (START + 60, False),
    ],
)
def test_code_is_accepted_one_step_early_or_late(now: float, accepted: bool) -> None:
    assert (factor().accept(CODES[STEP], now=now) is not None) is accepted


def test_used_step_is_that_of_the_code() -> None:
    accepted = factor(5).accept(CODES[STEP - 1], now=START)

    assert accepted is not None
    assert accepted.used_steps == (5, STEP - 1)
    assert accepted.secret.get_secret_value() == SECRET


@pytest.mark.parametrize("jump", [DAY, -DAY])
def test_used_code_is_refused_after_a_clock_jump_and_the_next_is_accepted(jump: int) -> None:
    used_before_and_during = factor(STEP, STEP + jump // 30)

    assert used_before_and_during.accept(CODES[STEP], now=START) is None
    assert used_before_and_during.accept(CODES[STEP + 1], now=START) is not None


def test_oldest_used_step_is_forgotten() -> None:
    many = tuple(range(REMEMBERED_STEPS))

    accepted = factor(*many).accept(CODES[STEP], now=START)

    assert accepted is not None
    assert accepted.used_steps == (*many[1:], STEP)


def test_code_of_two_steps_is_used_up_in_both() -> None:
    first, second, shared = 57_766_335, 57_766_336, "251166"  # found by search

    accepted = factor().accept(shared, now=second * 30)

    assert accepted is not None
    assert accepted.used_steps == (first, second)


def test_clock_at_1970_accepts_the_first_codes() -> None:
    assert factor().accept("755224", now=0) is not None  # RFC 4226, appendix D, count 0
    assert factor().accept("287082", now=0) is not None  # count 1
    assert factor().accept("359152", now=0) is None  # count 2


def test_too_many_used_steps_are_refused() -> None:
    with pytest.raises(ValidationError):
        factor(*range(REMEMBERED_STEPS + 1))


@pytest.mark.parametrize("secret", ["", SECRET[:-1], SECRET + "A", SECRET[:-1] + "1"])
def test_malformed_secret_is_refused_without_showing_it(secret: str) -> None:
    with pytest.raises(
        ValidationError, match="error, is no secret of 32 base32 characters"
    ) as refused:
        SecondFactor(SecretStr(secret), ())
    assert SECRET[:-1] not in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "012345",
        "012 345",
        "012-345",
        "012345\n",
        "\r\n 012345\t\r\n",
        "0 1 2 3 4 5",
        "012\N{NO-BREAK SPACE}345",
        "012\N{NARROW NO-BREAK SPACE}345",
        "012\N{THIN SPACE}345",
        "012\N{IDEOGRAPHIC SPACE}345",
        "012\N{EN DASH}345",
        "012\N{NON-BREAKING HYPHEN}345",
        "012\N{MINUS SIGN}345",
        "\N{ZERO WIDTH NO-BREAK SPACE}012\N{ZERO WIDTH SPACE}345\N{LEFT-TO-RIGHT MARK}",
        "01234\N{FULLWIDTH DIGIT FIVE}",
        "\N{ARABIC-INDIC DIGIT ZERO}\N{DEVANAGARI DIGIT ONE}2345",
        "012345" + " " * 250,
    ],
)
def test_read_code_with_separators_returns_the_digits(text: str) -> None:
    assert read_code(text) == "012345"


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "12345",
        "1234567",
        "123 4567",
        "12345a",
        "-12345",
        "123.456",
        "123,456",
        "+123456",
        "123/456",
        "12345\N{SUPERSCRIPT SIX}",
        "12345\N{CIRCLED DIGIT SIX}",
        "12345\N{ROMAN NUMERAL SIX}",
        "123456\N{REPLACEMENT CHARACTER}",
        "12345\0",
        "12345\ud83d",
        "123456" + " " * 251,
    ],
)
def test_read_code_without_six_digits_raises_invalid(text: str) -> None:
    with pytest.raises(Invalid, match=r"^code: must be the 6 digits"):
        read_code(text)


def test_setup_has_a_random_secret() -> None:
    first, second = new_setup().secret, new_setup().secret

    assert first != second
    assert re.fullmatch("[A-Z2-7]{32}", first)


def test_qr_code_holds_the_otpauth_uri(tmp_path: Path) -> None:
    zbarimg = shutil.which("zbarimg")
    if zbarimg is None:
        pytest.skip("zbarimg is not installed (apt-get install zbar-tools)")
    setup = new_setup()
    image = tmp_path / "qr.png"
    image.write_bytes(png(setup))

    read = subprocess.run(
        [zbarimg, "--quiet", "--raw", str(image)], check=True, capture_output=True, text=True
    )

    assert read.stdout.strip() == (
        f"otpauth://totp/smartlinkd:owner?secret={setup.secret}&issuer=smartlinkd"
    )


def test_secret_is_shown_by_the_file_alone() -> None:
    assert SECRET not in str(TypeAdapter(SecondFactor).dump_python(factor()))
    assert SECRET in TypeAdapter(SecondFactor).dump_json(factor()).decode()

    setup = new_setup()
    in_force = SecondFactor(SecretStr(setup.secret), ())

    assert setup.secret not in f"{setup} {setup!r} {in_force} {in_force!r}"
    assert setup.qr_code not in repr(setup)


def png(setup: Setup) -> bytes:
    kind, _, data = setup.qr_code.partition(",")
    assert kind == "data:image/png;base64"
    return base64.b64decode(data, validate=True)
