"""A client of the Chrome DevTools Protocol over one websocket, with flattened sessions.

    async with connect(chromium.endpoint) as connection:
        answer = await connection.browser.call("Browser.getVersion")

Every call has a deadline, and fails at once when its session or the connection ends. One task reads
and never waits, one task writes whole frames. See docs/decisions/055-cdp-client.md.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from itertools import count
from typing import Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_client_stream

from smartlinkd.browser.errors import (
    BrowserFailed,
    CallTimedOut,
    Disconnected,
    PageGone,
    ProtocolError,
    SessionGone,
)
from smartlinkd.errors import leaves
from smartlinkd.nurseries import background
from smartlinkd.untrusted import first_line, load_json

logger = logging.getLogger(__name__)

JsonObject: TypeAlias = dict[str, Any]
EventHandler: TypeAlias = Callable[[JsonObject], None]

T = TypeVar("T")

# Seconds. Half a millisecond is usual, and a loaded machine may take a second.
CALL_DEADLINE = 10.0
CONNECT_DEADLINE = 10.0
# Bytes. A page's answer may be that large; the library's own limit of 1 MiB would end the
# connection.
MESSAGE_LIMIT = 64 * 1024 * 1024
RECEIVE_BYTES = 64 * 1024
RECEIVE_FRAMES = 64
# Frames that may wait for the writer. A browser that stopped reading fills this; then calls wait
# for their deadlines.
WRITE_QUEUE = 256
NO_SUCH_SESSION = -32001  # the protocol's error code
SESSION_CLOSED = "the tab was closed"
SESSION_CRASHED = "the tab crashed: its renderer process ended"


class CdpSession:
    """Calls to one target and events from it. `CdpConnection.browser` is the browser's own."""

    def __init__(self, connection: CdpConnection, id_: str | None) -> None:
        self.gone: PageGone | None = None
        """The reason of its end, once it has ended."""
        self._connection = connection
        self._id = id_
        self._ended = trio.Event()
        self._handlers: dict[str, list[EventHandler]] = {}
        self._subscriptions: set[trio.MemorySendChannel[Any]] = set()

    async def call(
        self,
        method: str,
        params: Mapping[str, object] | None = None,
        *,
        deadline: float = CALL_DEADLINE,
    ) -> JsonObject:
        """Call `method` and return its result. `deadline` is in seconds from now.

        Raises:
            ProtocolError: the browser refused the call.
            CallTimedOut: there was no answer by the deadline.
            SessionGone: the target has ended.
            Disconnected: the connection has ended.
        """
        if self.gone is not None:
            raise self._gone_error()
        call = _Call(self, method)
        await self._connection._send_call(call, self._frame(method, params or {}), deadline)
        if call.result is not None:
            return call.result
        raise call.error or CallTimedOut(method, deadline)

    def post(self, method: str, params: Mapping[str, object]) -> None:
        """Send a command and ignore its answer. Never waits; the command may be lost."""
        if self.gone is None:
            self._connection._post(self._frame(method, params))

    def on(self, method: str, handler: EventHandler) -> None:
        """Have the reader call `handler(params)` for each such event. It must not wait."""
        self._handlers.setdefault(method, []).append(handler)

    def off(self, method: str, handler: EventHandler) -> None:
        """Undo one `on`."""
        self._handlers[method].remove(handler)

    @contextmanager
    def events(
        self, mappers: Mapping[str, Callable[[JsonObject], Iterable[T]]], *, size: int
    ) -> Iterator[trio.MemoryReceiveChannel[T]]:
        """Subscribe to the items that `mappers`, by method, make of each event: none, one or more.

        The reader calls the mappers, which must not wait. An event without items wakes nobody. An
        item beyond `size` that wait is lost. The channel ends with the session.
        """
        send, receive = trio.open_memory_channel[T](size)

        def handle(mapper: Callable[[JsonObject], Iterable[T]], params: JsonObject) -> None:
            for item in mapper(params):
                with suppress(trio.WouldBlock):  # `size` of them wait: it is lost
                    send.send_nowait(item)

        handlers = [(method, partial(handle, mapper)) for method, mapper in mappers.items()]
        for method, handler in handlers:
            self.on(method, handler)
        self._subscriptions.add(send)
        if self.gone is not None:
            send.close()
        try:
            yield receive
        finally:
            self._subscriptions.discard(send)
            for method, handler in handlers:
                self.off(method, handler)

    async def wait_gone(self) -> PageGone:
        """Wait for the end of the session. Returns, not raises, the error that tells its reason."""
        await self._ended.wait()
        return self._gone_error()

    def _frame(self, method: str, params: Mapping[str, object]) -> JsonObject:
        frame: JsonObject = {"method": method, "params": params}
        return frame if self._id is None else {**frame, "sessionId": self._id}

    def _gone_error(self) -> PageGone:
        # A new exception each time: every raise adds to an exception's traceback.
        assert self.gone is not None  # noqa: S101 - callers have seen the end
        return type(self.gone)(str(self.gone))

    def _publish(self, method: str, params: JsonObject) -> None:
        for handler in tuple(self._handlers.get(method, ())):
            try:
                handler(params)
            except Exception:
                # A bug in one handler must not cost other callers their answers.
                logger.exception("the handler of %s failed", method)

    def _end(self, why: PageGone) -> None:
        self.gone = why
        self._ended.set()
        for subscription in self._subscriptions:
            subscription.close()


class _Call:
    """A call under way, and the slot for its answer."""

    def __init__(self, session: CdpSession, method: str) -> None:
        self.session = session
        self.method = method
        self.settled = trio.Event()
        self.result: JsonObject | None = None
        self.error: BrowserFailed | None = None

    def handle_answer(self, message: JsonObject) -> None:
        if "error" in message:
            code, text = message["error"]["code"], message["error"]["message"]
            is_gone = code == NO_SUCH_SESSION
            self.fail(
                SessionGone(SESSION_CLOSED) if is_gone else ProtocolError(self.method, code, text)
            )
            return
        self.result = message["result"]
        self.settled.set()

    def fail(self, error: BrowserFailed) -> None:
        self.error = error
        self.settled.set()


class CdpConnection:
    """The connection to one browser. Made by `connect()`."""

    def __init__(self) -> None:
        self.browser = CdpSession(self, None)
        self._outgoing, self._to_write = trio.open_memory_channel[str](WRITE_QUEUE)
        self._sessions: dict[str | None, CdpSession] = {None: self.browser}
        self._calls: dict[int, _Call] = {}
        self._ids = count(1)
        self._opened = trio.Event()

    async def attach(self, target_id: str) -> CdpSession:
        """Open a session with a target. It ends with the target, or with the connection.

        Raises `SessionGone` when the target has ended meanwhile, and as `CdpSession.call`.
        """
        answer = await self.browser.call(
            "Target.attachToTarget", {"targetId": target_id, "flatten": True}
        )
        # Target.attachedToTarget comes before this answer, and has made the session.
        session = self._sessions.get(answer["sessionId"])
        if session is None:
            raise SessionGone(SESSION_CLOSED)
        return session

    async def wait_closed(self) -> str:
        """Wait for the end of the connection, and return its reason."""
        return str(await self.browser.wait_gone())

    async def _send_call(self, call: _Call, frame: JsonObject, deadline: float) -> None:
        """Send the frame and wait until `call` is settled, or the deadline has passed."""
        id_ = next(self._ids)
        self._calls[id_] = call
        try:
            with trio.move_on_after(deadline):
                await self._outgoing.send(json.dumps({"id": id_, **frame}))
                await call.settled.wait()
        except trio.BrokenResourceError:
            pass  # the connection ended while the queue was full, and has failed the call
        finally:
            self._calls.pop(id_, None)

    def _post(self, frame: JsonObject) -> None:
        text = json.dumps({"id": next(self._ids), **frame})
        try:
            self._outgoing.send_nowait(text)
        except trio.WouldBlock:
            logger.warning("%s was not sent: the browser does not read", frame["method"])

    async def _run(self, stream: trio.abc.Stream, host: str, path: str) -> None:
        """Read and write until either side ends. Any fault is the reason of the end."""
        why = "it was closed"
        try:
            async with stream, trio.open_nursery() as nursery:
                with trio.fail_after(CONNECT_DEADLINE):
                    websocket = await wrap_client_stream(
                        nursery,
                        stream,  # type: ignore[arg-type]  # any stream will do
                        host,
                        path,
                        max_message_size=MESSAGE_LIMIT,
                        message_queue_size=RECEIVE_FRAMES,
                        receive_buffer_size=RECEIVE_BYTES,
                    )
                nursery.start_soon(self._write, websocket)
                self._opened.set()
                why = await self._read(websocket)
                nursery.cancel_scope.cancel()
        except Exception as fault:  # noqa: BLE001 - the library's reader raises what it meets
            faults = leaves(fault) if isinstance(fault, ExceptionGroup) else [fault]
            why = first_line("; ".join(map(repr, faults)))
        finally:
            self._end(Disconnected(f"the connection to the browser has ended: {why}"))

    async def _write(self, websocket: WebSocketConnection) -> None:
        async for frame in self._to_write:
            try:
                await websocket.send_message(frame)
            except ConnectionClosed:
                return  # the reader sees it too, and knows the reason

    async def _read(self, websocket: WebSocketConnection) -> str:
        """Dispatch messages until the connection ends. Returns the reason of the end."""
        while True:
            try:
                frame = await websocket.get_message()
                message = load_json(frame if isinstance(frame, str) else frame.decode())
            except ConnectionClosed as closed:
                return f"{closed.reason.name} ({closed.reason.code})" if closed.reason else "closed"
            except (ValueError, RecursionError):
                return "it sent a frame that is no JSON"
            if not isinstance(message, dict):
                return "it sent a frame that is no JSON object"
            self._dispatch(message)

    def _dispatch(self, message: JsonObject) -> None:
        if "id" in message:
            call = self._calls.pop(message["id"], None)
            if call is not None:
                call.handle_answer(message)
            return
        session = self._sessions.get(message.get("sessionId"))
        if session is None or "method" not in message:
            logger.debug("a message was ignored: nobody is here for it")
            return
        method, params = message["method"], message.get("params", {})
        self._update_sessions(session, method, params)
        session._publish(method, params)

    def _update_sessions(self, session: CdpSession, method: str, params: JsonObject) -> None:
        if method == "Target.attachedToTarget":
            id_ = params["sessionId"]
            self._sessions[id_] = CdpSession(self, id_)
        elif method == "Target.detachedFromTarget":
            self._end_session(self._sessions.get(params["sessionId"]), SESSION_CLOSED)
        elif method == "Inspector.targetCrashed":
            self._end_session(session, SESSION_CRASHED)

    def _end_session(self, session: CdpSession | None, why: str) -> None:
        if session is None or session is self.browser:
            return
        del self._sessions[session._id]
        session._end(SessionGone(why))
        for call in self._calls.values():
            if call.session is session:
                call.fail(session._gone_error())

    def _end(self, why: Disconnected) -> None:
        self._to_write.close()
        for session in self._sessions.values():
            session._end(why)
        for call in self._calls.values():
            call.fail(self.browser._gone_error())
        self._calls.clear()
        self._opened.set()


@asynccontextmanager
async def connect(endpoint: str) -> AsyncIterator[CdpConnection]:
    """Connect to a browser's websocket URL while the block runs. Raises `Disconnected`.

    No Origin header is sent. So the browser needs no `--remote-allow-origins`, and refuses web
    pages that try the same.
    """
    url = urlsplit(endpoint)
    try:
        with trio.fail_after(CONNECT_DEADLINE):
            stream = await trio.open_tcp_stream(url.hostname or "", url.port or 0)
    except (OSError, trio.TooSlowError) as fault:
        raise Disconnected(f"the browser cannot be reached: {first_line(repr(fault))}") from None
    async with connect_over(stream, url.netloc, url.path) as connection:
        yield connection


@asynccontextmanager
async def connect_over(
    stream: trio.abc.Stream, host: str, path: str
) -> AsyncIterator[CdpConnection]:
    """Connect over an open stream, as `connect` does. The stream is closed at the end."""
    connection = CdpConnection()
    async with background(partial(connection._run, stream, host, path)):
        await connection._opened.wait()
        if connection.browser.gone is not None:
            raise connection.browser._gone_error()
        yield connection
