"""The errors of the browser, by what its user can do about them.

`LaunchFailed` and `BrowserNotReady` mean that there is no browser to work with. A tab that raised
`PageGone` or `CallTimedOut` should be closed. After `ContextLost` a script may be tried again. No
text of these errors holds an argument of a call, a cookie, a body, or a URL's query.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from smartlinkd.errors import Unavailable, UpstreamFailed
from smartlinkd.untrusted import first_line


class LaunchFailed(Unavailable):
    """No browser could be started: none found, it ended early, or it took too long."""

    def __init__(self, message: str) -> None:
        # A hiccup is over in seconds; a missing or broken installation is not.
        super().__init__(message, retry_after=5)


class BrowserNotReady(Unavailable):
    """No browser can take a job at the moment. Its user may try again shortly."""


class BrowserFailed(UpstreamFailed):
    """The browser did not do its part."""


class PageGone(BrowserFailed):
    """The called tab or browser has ended. Pending and later calls raise this."""


class SessionGone(PageGone):
    """A tab has ended: its renderer crashed, or it was closed or detached."""


class Disconnected(PageGone):
    """The connection to the browser has ended, and every tab with it."""


class CallTimedOut(BrowserFailed):
    """The browser gave no answer within the deadline of the call: the page or the browser hangs."""

    def __init__(self, method: str, seconds: float) -> None:
        super().__init__(f"the browser did not answer {method} within {seconds:.3g} s")


class ProtocolError(BrowserFailed):
    """The browser answered a command with an error; `code` is JSON-RPC's number."""

    def __init__(self, method: str, code: int, message: str) -> None:
        super().__init__(f"the browser refused {method}: {first_line(message)} ({code})")
        self.code = code
        self.reason = message


class NavigationFailed(BrowserFailed):
    """A page could not be loaded; `reason` is Chromium's name for it (`net::ERR_…`)."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"{without_query(url)} could not be loaded: {first_line(reason)}")


class ContextLost(BrowserFailed):
    """The page navigated away, or reloaded, while a script was to run or ran in it."""


class ScriptFailed(BrowserFailed):
    """A script in the page threw, or gave a value that JSON cannot hold."""


def without_query(url: str) -> str:
    """Return `url` without user info, query and fragment, which can hold secrets."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "that address"
    if not parts.netloc:
        return "that address"
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path}"
