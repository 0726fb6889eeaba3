"""One HTTP connection to a daemon: the key in each request, retries, and errors as text.

After 429 and 503 a request is sent again when `Retry-After` says. Once the daemon has answered, a
connection that cannot be made is tried again. After one that was lost, the request is sent again
only if it may be carried out twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import httpx
from pydantic import BaseModel, JsonValue, SecretStr, ValidationError

from smartlinkd import __version__
from smartlinkd.api.schemas import DoneResponse
from smartlinkd.client.errors import ApiFailure, ClientError, Unreachable
from smartlinkd.net.addresses import is_loopback
from smartlinkd.untrusted import escape_unprintable

CONNECT_S = 10.0
ANSWER_S = 180.0
"""For an answer: a conversion takes `browser.job_timeout` at most, by default 60 s."""
PATIENCE_S = 180.0
"""No try of a request begins after these."""
MAX_WAIT_S = 60.0
"""Longest pause before a try."""
MAX_ERROR = 2000
"""Characters of an error that are shown."""
MAX_ANSWER = 64 * 2**20
"""Bytes. The largest answers are a page of the history and an execution."""
NOT_NOW = (429, 503)

M = TypeVar("M", bound=BaseModel)
Query = Mapping[str, str | int | float | None]


class Connection:
    """Requests to one daemon, until it is closed."""

    def __init__(
        self,
        url: str,
        key: str | SecretStr | None,
        *,
        allow_http: bool,
        on_wait: Callable[[float, str], None] | None,
        transport: httpx.BaseTransport | None,
    ) -> None:
        """The parameters and errors are those of `Smartlinkd`."""
        self.url = checked_url(url, allow_http=allow_http)
        self._on_wait = on_wait
        self._has_answered = False
        self._http = httpx.Client(
            base_url=self.url,
            headers={
                "User-Agent": f"smartlinkd-client/{__version__}",
                "Accept": "application/json",
            },
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
            transport=transport,
        )
        if key is not None:
            self.authorize(key)

    def authorize(self, key: str | SecretStr) -> None:
        """Send this API key or session token from now on. Raises `ClientError` if it is none."""
        text = key.get_secret_value() if isinstance(key, SecretStr) else key
        if not text or not text.isascii() or not text.isprintable() or " " in text:
            raise ClientError(
                "the key is not one of smartlinkd's: it has to be a single word such as slk_…; "
                "make one with `smartlinkd login`, or on the page under Security"
            )
        self._http.headers["Authorization"] = f"Bearer {text}"

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, model: type[M], query: Query | None = None) -> M:
        """Return the answer to a GET. A query's None is left out. Raises `ClientError`."""
        return self.read(self.send("GET", path, query=query), model)

    def delete(self, path: str) -> None:
        """Send a DELETE, and not again when a connection was lost. Raises `ClientError`."""
        self.read(self.send("DELETE", path, is_safe=False), DoneResponse)

    def post(
        self,
        path: str,
        body: Mapping[str, JsonValue],
        model: type[M],
        *,
        is_safe: bool,
        headers: Mapping[str, str] | None = None,
    ) -> M:
        """Return the answer to a POST. Raises `ClientError`.

        Args:
            is_safe: the request may be carried out twice, so it is sent again when a connection
                was lost.
        """
        return self.read(
            self.send("POST", path, body=body, is_safe=is_safe, headers=headers), model
        )

    def send(
        self,
        method: str,
        path: str,
        *,
        body: Mapping[str, JsonValue] | None = None,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        is_safe: bool = True,
    ) -> httpx.Response:
        """Send a request until it is answered or `PATIENCE_S` are over.

        Raises:
            ApiFailure: the daemon refused it.
            Unreachable: no daemon answered.
            ClientError: the answer is larger than `MAX_ANSWER`.
        """
        request = self._http.build_request(
            method,
            path,
            # With ASCII alone: half a character (a lone surrogate) in a link has no UTF-8.
            content=None if body is None else json.dumps(body).encode(),
            params={name: value for name, value in (query or {}).items() if value is not None},
            headers={
                **({} if body is None else {"Content-Type": "application/json"}),
                **(headers or {}),
            },
        )
        end = time.monotonic() + PATIENCE_S
        pause_s = 0.5
        while True:
            try:
                response = self._receive(request, end)
            except httpx.RequestError as error:
                is_unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
                is_again = self._has_answered and (is_unsent or is_safe)
                failure: ClientError = self._unreachable(error)
                wait_s, pause_s = pause_s, min(2 * pause_s, MAX_WAIT_S)
            else:
                self._has_answered = True
                if response.is_success:
                    return response
                refusal = _refusal(response)
                failure = refusal
                is_again = refusal.retry_after_s is not None
                wait_s = min(refusal.retry_after_s or 0, MAX_WAIT_S)
            if not is_again or time.monotonic() + wait_s >= end:
                raise failure
            if self._on_wait is not None:
                self._on_wait(wait_s, str(failure))
            time.sleep(wait_s)

    def _receive(self, request: httpx.Request, end: float) -> httpx.Response:
        """Send a request once, and read the answer to its end.

        Raises:
            ClientError: the answer is larger than `MAX_ANSWER`.
            RequestError: httpx's, also for an answer that is not whole at `end`.
        """
        response = self._http.send(request, stream=True)
        content = bytearray()
        try:
            for part in response.iter_bytes():
                content += part
                if len(content) > MAX_ANSWER:
                    raise ClientError(
                        f"what answered at {self.url} sent more than {MAX_ANSWER // 2**20} MiB; "
                        "check the address"
                    )
                if time.monotonic() > end:
                    raise httpx.ReadTimeout("", request=request)
        finally:
            response.close()
        response.headers.pop("Content-Encoding", None)  # the content is decoded
        return httpx.Response(
            response.status_code, headers=response.headers, content=bytes(content), request=request
        )

    @contextmanager
    def stream(
        self, path: str, *, headers: Mapping[str, str], silence_s: float
    ) -> Iterator[httpx.Response]:
        """Open a GET whose answer is read while it comes.

        Raises:
            ApiFailure: the daemon refused it.
            Unreachable: the connection was lost, or nothing came for `silence_s`.
        """
        timeout = httpx.Timeout(silence_s, connect=CONNECT_S)
        try:
            with self._http.stream("GET", path, headers=headers, timeout=timeout) as response:
                self._has_answered = True
                if not response.is_success:
                    response.read()
                    raise _refusal(response)
                yield response
        except httpx.RequestError as error:
            raise self._unreachable(error) from None

    def read(self, response: httpx.Response, model: type[M]) -> M:
        """Return an answer's body as the model. Raises `ClientError`."""
        try:
            return model.model_validate_json(response.content)
        except ValidationError:
            raise ClientError(
                f"what answered at {self.url} is no smartlinkd, or one of another version; "
                "check the address"
            ) from None

    def _unreachable(self, error: httpx.RequestError) -> Unreachable:
        if isinstance(error, httpx.TimeoutException):
            why = "no answer in time"
        else:
            why = escape_unprintable(str(error)) or type(error).__name__
        return Unreachable(
            f"{self.url} cannot be reached ({why}); check that the daemon runs, and the address"
        )


def checked_url(url: str, *, allow_http: bool) -> str:
    """Return the address without its last slash.

    Raises:
        ClientError: it is no server's http or https address, or would carry a key in clear.
    """
    try:
        parsed = httpx.URL(url)
        host = parsed.host
    except (httpx.InvalidURL, TypeError):
        parsed, host = httpx.URL(), ""
    if parsed.scheme not in ("http", "https") or not host or parsed.query or parsed.fragment:
        raise ClientError(
            f"the server's address is not one: {escape_unprintable(url)[:200]!r}; "
            "write it as https://links.example.net"
        )
    if parsed.userinfo:
        raise ClientError("the server's address has a user or a password in it; leave them out")
    if parsed.scheme == "http" and not allow_http and not is_loopback(host):
        raise ClientError(
            f"over http://{host} everybody on the way could read the key; use https, or "
            "allow it with --allow-http (SMARTLINKD_ALLOW_HTTP=1)"
        )
    return str(parsed).rstrip("/")


def _refusal(response: httpx.Response) -> ApiFailure:
    """Return what a failed response says, also if a proxy wrote it."""
    try:
        body = response.json()
    except ValueError:
        body = None
    said = None
    if isinstance(body, dict):
        said = body.get("message") or body.get("error")
    if isinstance(said, str):
        text = said[:MAX_ERROR]
    elif response.is_redirect:
        place = response.headers.get("Location", "")
        text = f"the server sends to {place[:200]}; give that address"
    else:
        text = f"the server answered with status {response.status_code}, and not as smartlinkd does"
    retry_after = response.headers.get("Retry-After", "")
    is_number = retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 7
    return ApiFailure(
        escape_unprintable(text),
        status=response.status_code,
        retry_after_s=float(retry_after) if is_number and response.status_code in NOT_NOW else None,
    )
