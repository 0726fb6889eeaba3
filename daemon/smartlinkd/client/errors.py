"""The errors of the client. Their texts say what is wrong and what to do, and hold no key."""

from __future__ import annotations


class ClientError(Exception):
    """The call failed, or its arguments are wrong."""


class Unreachable(ClientError):  # noqa: N818 - said of the server
    """No daemon answered at the address, or its answer broke off."""


class ApiFailure(ClientError):  # noqa: N818 - the API's own word
    """The daemon refused the request.

    Attributes:
        status: the HTTP status.
        retry_after_s: seconds after which the request may be sent again; None if it does not help.
    """

    def __init__(self, message: str, *, status: int, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
