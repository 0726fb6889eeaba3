"""Encryption under the journal's key: of webhook credentials in the file, and of list cursors.

AES-256-GCM from `cryptography`, with a subkey for each use. A sealed value is bound to a context
(whose credential, for which address; whose list), so that one copied to another place does not
open there.

A cursor is sealed because it holds the place of an execution in the order of all: in clear, the
holder of one crew's user token could count how much everybody else runs.
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
"""Bytes; random. A key seals far fewer than the 2^32 values for which that is safe."""


class NotSealed(ValueError):  # noqa: N818 - said of the value
    """Not sealed under this key, for this use and context."""


class Seal:
    """Seals bytes for one use."""

    def __init__(self, key: SecretBytes, use: str) -> None:
        """`key` has 32 bytes. Raises `ValueError` for another length."""
        if len(key) != KEY_BYTES:
            raise ValueError(f"the journal's key has {len(key)} bytes; it needs {KEY_BYTES}")
        self._subkey = hmac.digest(key.get_secret_value(), use.encode(), "sha256")

    def seal(self, content: bytes, context: str) -> bytes:
        """Encrypt; the same content is never the same twice. Raises `Unavailable`."""
        nonce = os.urandom(_NONCE)
        return nonce + self._cipher.encrypt(nonce, content, context.encode())

    def open(self, sealed: bytes, context: str) -> bytes:
        """The content. Raises `NotSealed`, or `Unavailable`."""
        try:
            return self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], context.encode())
        except (InvalidTag, ValueError):
            raise NotSealed("a value that does not open under its key") from None

    @cached_property
    def _cipher(self) -> AESGCM:
        return AESGCM(self._subkey)
