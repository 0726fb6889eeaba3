"""The trust store for HTTPS: the system's authorities and Mozilla's.

The system's know an owner's own authority; Mozilla's need no package of the system. Reading them
takes 40 ms of processor time and two megabytes, so a context starts empty and `load` fills it
before the first call. A caller that forgets `load` is refused every certificate.
"""

from __future__ import annotations

import ssl

import certifi

from smartlinkd.threads import on_thread


def describe_unreadable(fault: OSError) -> str:
    """Return what to say of a fault that `TrustStore.load` raised."""
    return (
        f"the authorities' certificates cannot be read ({fault.strerror or type(fault).__name__}); "
        "the next call tries again, and if this goes on, install smartlinkd anew"
    )


class TrustStore:
    """A TLS context for a client, and the authorities that it trusts."""

    def __init__(self) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._is_loaded = False

    async def load(self) -> None:
        """Read the authorities, once.

        Raises:
            OSError: a file cannot be read. The next call tries again.
            NoThread: no thread can be started to read them.
        """
        if not self._is_loaded:
            await on_thread(self._read)
            self._is_loaded = True

    def _read(self) -> None:
        self.context.load_default_certs()
        self.context.load_verify_locations(certifi.where())
