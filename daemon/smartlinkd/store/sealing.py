"""Encryption under the store's key, of webhook credentials in the file.

AES-256-GCM, with a subkey for the use. A sealed value is bound to a context (a credential's
execution and URL), and does not open in another one.
"""

from __future__ import annotations

import hmac
import os
from functools import cached_property
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import SecretBytes

KEY_BYTES: Final = 32
_NONCE: Final = 12
"""The size of the random nonce. A key seals far fewer than the 2^32 values that it is safe for."""


class NotSealed(ValueError):  # noqa: N818 - said of the value
    """The value was not sealed under this key, for this use and context."""


class Seal:
    """Seals bytes for one use."""

    def __init__(self, key: SecretBytes, use: str) -> None:
        """`key` has 32 bytes. Raises `ValueError` for another length."""
        if len(key) != KEY_BYTES:
            raise ValueError(f"the journal's key has {len(key)} bytes; it needs {KEY_BYTES}")
        self._subkey = hmac.digest(key.get_secret_value(), use.encode(), "sha256")

    def seal(self, content: bytes, context: str) -> bytes:
        """Return `content` encrypted, differently each time."""
        nonce = os.urandom(_NONCE)
        return nonce + self._cipher.encrypt(nonce, content, context.encode())

    def open(self, sealed: bytes, context: str) -> bytes:
        """Return the content. Raises `NotSealed`."""
        try:
            return self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], context.encode())
        except (InvalidTag, ValueError):
            raise NotSealed("a value that does not open under its key") from None

    @cached_property
    def _cipher(self) -> AESGCM:
        return AESGCM(self._subkey)
