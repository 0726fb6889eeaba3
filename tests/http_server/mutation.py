"""Requests that are wrong in some way, made of right ones."""

from __future__ import annotations

import random
from collections.abc import Sequence

TOKENS = [
    b"\r\n", b"\n", b"\r", b"\0", b" ", b"\t", b":", b",", b";", b"\xff", b"%", b"-1", b"0x10",
    b"99999999999999999999", b"Host: b\r\n", b"Content-Length: 3\r\n", b"Content-Length: -3\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n", b"Expect: 100-continue\r\n",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n", b"Authorization: Bearer x\r\n",
    b"X-Forwarded-For: ::1\r\n", b"HTTP/9.9", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"0\r\n\r\n",
    b'{"', b"[" * 500, b"\xed\xa0\x80", b"x" * 20_000,
]  # fmt: skip


def mutated(requests: Sequence[bytes], chance: random.Random) -> bytes:
    """One to three of the requests in a row, with one to four faults."""
    data = b"".join(chance.choices(requests, k=chance.choice([1, 1, 1, 2, 3])))
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(data))
        match chance.randrange(5):
            case 0:
                data = data[:at] + chance.choice(TOKENS) + data[at:]
            case 1:
                data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
            case 2:
                data = data[:at] + data[at + chance.randint(1, 20) :]
            case 3:
                data = data[:at]
            case 4:
                line = data.find(b"\r\n", at)
                data = data[:at] + data[line + 2 :] + data[at:line]
    return data
