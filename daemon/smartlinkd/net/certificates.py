"""The trust store for HTTPS: the system's authorities and Mozilla's.

The system's know an owner's own authority; Mozilla's need no package of the system. Reading them
takes 40 ms of processor time and two megabytes, so a context starts empty and `load` fills it
before the first call. A caller that forgets `load` is refused every certificate.
"""

from __future__ import annotations

import ssl

import certifi

from smartlinkd.threads import on_thread


class CertificatesUnreadable(Exception):  # noqa: N818 - it names the state
    """The authorities' certificates cannot be read; the message says why. A retry may succeed."""


class TrustStore:
    """A TLS context for a client, and the authorities that it trusts."""

    def __init__(self) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._is_loaded = False

    async def load(self) -> None:
        """Read the authorities, once.

        Raises:
            CertificatesUnreadable: a file cannot be read. The next call tries again.
            NoThread: no thread can be started to read them.
        """
        if not self._is_loaded:
            try:
                await on_thread(self._read)
            except OSError as fault:  # no descriptor is left, say
                why = fault.strerror or type(fault).__name__
                raise CertificatesUnreadable(
                    f"the authorities' certificates cannot be read ({why}); the next call tries "
                    "again, and if this goes on, install smartlinkd anew"
                ) from fault
            self._is_loaded = True

    def _read(self) -> None:
        self.context.load_default_certs()
        self.context.load_verify_locations(certifi.where())
