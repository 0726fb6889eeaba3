"""Signatures that every library for "Standard Webhooks" accepts."""

from __future__ import annotations

import subprocess
from base64 import b64decode
from datetime import UTC, datetime

import pytest
from pydantic import SecretStr

from daemon.crews.signing import signature_headers, signing_key

# The example that the specification's own libraries are tested with.
SECRET = SecretStr("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
CALL_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
THEN = datetime.fromtimestamp(1614265330, UTC)
BODY = b'{"test": 2432232314}'


def test_the_specifications_example() -> None:
    assert signature_headers(signing_key(SECRET), CALL_ID, THEN, BODY) == {
        "webhook-id": CALL_ID,
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_another_text_is_itself_the_key() -> None:
    body = bytes(range(256))
    key = signing_key(SecretStr("càng dài càng tốt"))
    headers = signature_headers(key, "msg_1", THEN, body)

    hexkey = "càng dài càng tốt".encode().hex()
    openssl = ("openssl", "dgst", "-sha256", "-mac", "HMAC", "-macopt", f"hexkey:{hexkey}")
    signed = b"msg_1.1614265330." + body
    expected = subprocess.run(
        [*openssl, "-binary"], input=signed, capture_output=True, check=True
    ).stdout
    version, signature = headers["webhook-signature"].split(",")
    assert (version, b64decode(signature)) == ("v1", expected)


def test_without_a_secret_there_is_an_id_and_no_signature() -> None:
    assert signing_key(SecretStr("")) is None
    headers = signature_headers(None, CALL_ID, THEN, BODY)
    assert headers.keys() == {"webhook-id", "webhook-timestamp"}


@pytest.mark.parametrize(
    ("secret", "fault"),
    [
        ("whsec_", "24 bytes"),
        ("whsec_c3dvcmRmaXNo", "24 bytes"),
        ("whsec_sword-fish!", "base64"),
        ("whsec_swordfish", "base64"),
    ],
)
def test_a_secret_that_is_none_is_not_repeated(secret: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault) as refused:
        signing_key(SecretStr(secret))
    assert "sword" not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_key_is_not_printed() -> None:
    assert "càng" not in repr(signing_key(SecretStr("càng")))
