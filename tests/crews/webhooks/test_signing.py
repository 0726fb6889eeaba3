"""Signatures that every library for "Standard Webhooks" accepts."""

from __future__ import annotations

from base64 import b64decode
from datetime import UTC, datetime

from pydantic import SecretBytes

from smartlinkd.crews.webhooks.signing import signature_headers

# The example that the specification's own libraries are tested with.
KEY = SecretBytes(b64decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
CALL_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
THEN = datetime.fromtimestamp(1614265330, UTC)
BODY = b'{"test": 2432232314}'


def test_signature_of_the_specifications_example() -> None:
    assert signature_headers(KEY, CALL_ID, THEN, BODY) == {
        "webhook-id": CALL_ID,
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


def test_headers_without_a_key_have_an_id_and_no_signature() -> None:
    headers = signature_headers(None, CALL_ID, THEN, BODY)
    assert headers.keys() == {"webhook-id", "webhook-timestamp"}
