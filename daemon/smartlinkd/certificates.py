"""Whose certificates count: those of the authorities that the system trusts, and of Mozilla's.

The first know an owner's own authority, the second need no package of the system's. To read them
all takes 40 ms of processor time and two megabytes, in daemons that may never call anybody by
https. So a context begins without any, and whoever is about to call waits until it is `ready`. Who
forgot to would be refused every certificate; nobody is let through by mistake.
"""

from __future__ import annotations

import ssl

import certifi

from smartlinkd.threads import on_thread


class NoAuthorities(Exception):  # noqa: N818 - it names what is not to be had
    """They cannot be read; the message says why. The next who asks tries again."""


class Trust:
    """A context for calls by https, for one who calls."""

    def __init__(self) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._is_read = False

    async def ready(self) -> None:
        """Return when the authorities have been read. Raises `NoAuthorities`, or `NoThread`."""
        if not self._is_read:
            try:
                await on_thread(self._read)
            except OSError as fault:  # no descriptor is left, say
                why = fault.strerror or type(fault).__name__
                raise NoAuthorities(
                    f"the authorities' certificates cannot be read ({why}); the next call tries "
                    "again, and if this goes on, install smartlinkd anew"
                ) from fault
            self._is_read = True

    def _read(self) -> None:
        self.context.load_default_certs()
        self.context.load_verify_locations(certifi.where())
