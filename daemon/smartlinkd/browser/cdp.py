"""A client of the Chrome DevTools Protocol: one websocket, many sessions, nothing that hangs.

    async with connect(chromium.endpoint) as connection:
        answer = await connection.browser.call("Browser.getVersion")

The problem: the protocol answers when it likes. A call to a tab whose renderer was killed is never
answered, a stopped browser keeps its socket open for ever, events come in floods and in kinds that
did not exist yesterday, and a caller may go away while its call is under way.

The choices:

* Every call has a deadline, and fails at once when its session crashes, is detached, or when the
  connection ends (`smartlinkd/browser/errors.py`).
* One task reads and awaits nothing else. So nobody's slowness delays an answer to somebody else: a
  subscriber that does not keep up loses events, and can see how many.
* One task writes whole frames from a bounded queue. A caller that is cancelled while its frame is
  half-way through the socket would end the connection for all.
* Unknown events, answers to calls that nobody waits for any more, and answers without a number are
  ignored. A frame that is no JSON object ends the connection: who sends that is no browser, and
  the answers that are waited for might have been in it.
* A call that creates something can say how to undo it, for when its caller has gone before the
  answer came.

Rejected: the clients on PyPI, one bound to an old trio, one that dies of an event it does not know.
Flattened sessions only (`Target.attachToTarget` with `flatten`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar
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

JsonObject: TypeAlias = dict[str, Any]


T = TypeVar("T")


class Event(NamedTuple):
    """One event of the protocol."""

    method: str
    params: JsonObject


class Events(Generic[T]):
    """A subscription: iterate over it, or take the `next()`. `lost` counts what did not fit.

    `Session.events()` and `Session.sifted()` make one, and call `put` and `end`.
    """

    def __init__(self, behind: int, gone_error: Callable[[], PageGone]) -> None:
        self.lost = 0
        self._gone_error = gone_error
        self._send, self._receive = trio.open_memory_channel[T](behind)

    async def next(self) -> T:
        """Wait for the next event. Raises the session's PageGone when none will come."""
        try:
            return await self._receive.receive()
        except trio.EndOfChannel:
            raise self._gone_error() from None

    def __aiter__(self) -> Events[T]:
        return self

    async def __anext__(self) -> T:
        return await self.next()

    def put(self, event: T) -> None:
        """Add an event, or count it as lost."""
        try:
            self._send.send_nowait(event)
        except trio.WouldBlock:
            self.lost += 1

    def end(self) -> None:
        """No event will come any more. Those that are there can still be taken."""
        self._send.close()


logger = logging.getLogger(__name__)


# Half a millisecond is usual. A loaded machine may take a second; ten mean that nothing will come.
CALL_DEADLINE = 10.0
CONNECT_DEADLINE = 10.0
# A page's answer may be that large; the library's own limit, 1 MiB, would end the connection.
MESSAGE_LIMIT = 64 * 1024 * 1024
# Frames that the library may hold ready for the reader, and bytes that it takes from the socket.
FRAMES_READY = 64
RECEIVE_BYTES = 64 * 1024
# Frames that may wait for the writer. A browser that stopped reading fills it; then calls wait for
# their deadlines.
OUTGOING = 256
# Events that a subscriber may be behind.
EVENTS_BEHIND = 256
# With so many calls under way, abandoned ones are no longer kept for their answers to be undone.
CALLS_KEPT = 256
NO_SUCH_SESSION = -32001
SESSION_CLOSED = "the tab was closed"
SESSION_CRASHED = "the tab crashed: its renderer process ended"


class Session:
    """Calls to one target and events from it. `Connection.browser` is that of the browser."""

    def __init__(self, connection: Connection, id_: str | None, parent: Session | None) -> None:
        self.gone: PageGone | None = None
        self._connection = connection
        self._id = id_
        self._parent = parent
        self._ended = trio.Event()
        self._handlers: dict[str, list[Callable[[JsonObject], None]]] = {}
        self._subscriptions: set[Events[Any]] = set()
        self._enabled: set[str] = set()

    async def call(
        self,
        method: str,
        params: Mapping[str, object] | None = None,
        *,
        deadline: float = CALL_DEADLINE,
        undo: Callable[[JsonObject], None] | None = None,
    ) -> JsonObject:
        """Call `method` and return its result.

        `deadline` is in seconds. `undo(result)` is called when the answer comes after the caller
        has gone; it must not wait, so `post` is what it can use. Raises ProtocolError,
        CallTimedOut, SessionGone or Disconnected.
        """
        if self.gone is not None:
            raise self._gone_error()
        call = _Call(self, method, undo)
        await self._connection._ask(call, self._frame(method, params or {}), deadline)
        if call.result is not None:
            return call.result
        raise call.error or CallTimedOut(method, deadline)

    async def enable(self, domain: str, params: Mapping[str, object]) -> None:
        """Have a domain's events sent, from now to the session's end. Asked for once: the browser
        keeps it over every document of the target. Raises as `call`.
        """
        if domain not in self._enabled:
            await self.call(f"{domain}.enable", params)
            self._enabled.add(domain)
        elif self.gone is not None:
            raise self._gone_error()

    def post(self, method: str, params: Mapping[str, object]) -> None:
        """Send a command whose answer is of no interest. Never waits, and may be lost."""
        if self.gone is None:
            self._connection._tell(self._frame(method, params))

    def on(self, method: str, handler: Callable[[JsonObject], None]) -> None:
        """Have the reader call `handler(params)` on each such event. It must not wait."""
        self._handlers.setdefault(method, []).append(handler)

    def off(self, method: str, handler: Callable[[JsonObject], None]) -> None:
        """Undo one `on`."""
        self._handlers[method].remove(handler)

    def events(
        self, *methods: str, behind: int = EVENTS_BEHIND
    ) -> AbstractContextManager[Events[Event]]:
        """Subscribe to events while the block runs. At most `behind` wait; more are lost."""

        def all_of(method: str, params: JsonObject) -> tuple[Event]:
            return (Event(method, params),)

        return self.sifted({method: partial(all_of, method) for method in methods}, behind=behind)

    @contextmanager
    def sifted(
        self, sieves: Mapping[str, Callable[[JsonObject], Iterable[T]]], *, behind: int
    ) -> Iterator[Events[T]]:
        """The same, but a sieve makes of each event the items to hand out, perhaps none: so what is
        of no interest wakes nobody. The reader calls the sieves, which must not wait (see `on`).
        """
        events = Events[T](behind, self._gone_error)

        def sift(sieve: Callable[[JsonObject], Iterable[T]], params: JsonObject) -> None:
            for event in sieve(params):
                events.put(event)

        handlers = [(method, partial(sift, sieve)) for method, sieve in sieves.items()]
        for method, handler in handlers:
            self.on(method, handler)
        self._subscriptions.add(events)
        if self.gone is not None:
            events.end()
        try:
            yield events
        finally:
            self._subscriptions.discard(events)
            for method, handler in handlers:
                self.off(method, handler)

    async def wait_gone(self) -> PageGone:
        """Wait for the end of the session. Returns, not raises, the error that says why."""
        await self._ended.wait()
        return self._gone_error()

    def _frame(self, method: str, params: Mapping[str, object]) -> JsonObject:
        frame: JsonObject = {"method": method, "params": params}
        return frame if self._id is None else {**frame, "sessionId": self._id}

    def _gone_error(self) -> PageGone:
        """A fresh copy of `gone`: each raise adds to an exception's traceback."""
        assert self.gone is not None  # noqa: S101 - callers have seen the end
        return type(self.gone)(str(self.gone))

    def _publish(self, method: str, params: JsonObject) -> None:
        for handler in tuple(self._handlers.get(method, ())):
            try:
                handler(params)
            except Exception:
                # A bug in one handler: the answers behind this event are other callers'.
                logger.exception("the handler of %s failed", method)

    def _end(self, why: PageGone) -> None:
        self.gone = why
        self._ended.set()
        for events in self._subscriptions:
            events.end()


class _Call:
    """One call under way, and the slot for its answer."""

    def __init__(
        self, session: Session, method: str, undo: Callable[[JsonObject], None] | None
    ) -> None:
        self.session = session
        self.method = method
        self.undo = undo
        self.sent = False
        self.abandoned = False
        self.settled = trio.Event()
        self.result: JsonObject | None = None
        self.error: BrowserFailed | None = None

    def answer(self, message: JsonObject) -> None:
        """Settle with the browser's answer, or undo what it did for a caller that has gone."""
        error = message.get("error")
        if isinstance(error, dict):
            code, text = error.get("code"), str(error.get("message"))
            if code == NO_SUCH_SESSION:
                self.fail(SessionGone(SESSION_CLOSED))
            else:
                self.fail(ProtocolError(self.method, code if isinstance(code, int) else 0, text))
            return
        result = message.get("result")
        self.result = result if isinstance(result, dict) else {}
        self.settled.set()
        if self.abandoned:
            self.take_back()

    def take_back(self) -> None:
        """Undo what the browser has done, if it has, since nobody is there who would."""
        if self.result is not None and self.undo is not None:
            self.undo(self.result)

    def fail(self, error: BrowserFailed) -> None:
        self.error = error
        self.settled.set()


class _Frame(NamedTuple):
    text: str
    call: _Call | None


class Connection:
    """The connection to one browser. Made by `connect()`."""

    def __init__(self) -> None:
        self.browser = Session(self, None, None)
        self._outgoing, self._to_write = trio.open_memory_channel[_Frame](OUTGOING)
        self._sessions: dict[object, Session] = {None: self.browser}
        self._calls: dict[object, _Call] = {}
        self._last_number = 0
        self._opened = trio.Event()

    async def attach(self, target_id: str) -> Session:
        """Open a session with a target. It ends with the target, or with the connection."""
        answer = await self.browser.call(
            "Target.attachToTarget", {"targetId": target_id, "flatten": True}
        )
        # The event that comes before this answer has made it, unless it has ended since.
        session = self._sessions.get(answer["sessionId"])
        if session is None:
            raise SessionGone(SESSION_CLOSED)
        return session

    async def wait_closed(self) -> str:
        """Wait for the end of the connection. Returns why it ended."""
        return str(await self.browser.wait_gone())

    async def _ask(self, call: _Call, frame: JsonObject, deadline: float) -> None:
        """Send the frame and wait until `call` is settled, or the deadline has passed."""
        number = self._next_number()
        self._calls[number] = call
        try:
            with trio.move_on_after(deadline):
                await self._outgoing.send(_Frame(json.dumps({"id": number, **frame}), call))
                await call.settled.wait()
        except trio.BrokenResourceError:
            pass  # it ended while there was no room: the call has been failed
        except trio.Cancelled:
            # Its answer may have come since it was cancelled, for a caller who does not see it.
            call.take_back()
            raise
        finally:
            call.abandoned = not call.settled.is_set()
            to_undo = call.abandoned and call.sent and call.undo is not None
            if not to_undo or len(self._calls) > CALLS_KEPT:
                self._calls.pop(number, None)

    def _tell(self, frame: JsonObject) -> None:
        text = json.dumps({"id": self._next_number(), **frame})
        try:
            self._outgoing.send_nowait(_Frame(text, None))
        except trio.WouldBlock:
            logger.warning("%s was not sent: the browser does not read", frame["method"])

    def _next_number(self) -> int:
        self._last_number += 1
        return self._last_number

    async def _run(self, stream: trio.abc.Stream, host: str, path: str) -> None:
        """Converse until either side ends it. Whatever goes wrong is the reason of the end."""
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
                        message_queue_size=FRAMES_READY,
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
            if frame.call is not None:
                if frame.call.abandoned:
                    continue
                frame.call.sent = True
            try:
                await websocket.send_message(frame.text)
            except ConnectionClosed:
                return  # the reader sees it too, and knows why

    async def _read(self, websocket: WebSocketConnection) -> str:
        """Dispatch until the end. Returns why it ended."""
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
            call = self._calls.pop(_key(message["id"]), None)
            if call is not None:
                call.answer(message)
            return
        session = self._sessions.get(_key(message.get("sessionId")))
        method, params = message.get("method"), message.get("params")
        if session is None or not isinstance(method, str):
            logger.debug("a message was ignored: nobody is here for it")
            return
        if not isinstance(params, dict):
            params = {}
        self._keep_sessions(session, method, params)
        session._publish(method, params)

    def _keep_sessions(self, session: Session, method: str, params: JsonObject) -> None:
        if method == "Target.attachedToTarget":
            id_ = str(params.get("sessionId"))
            self._sessions[id_] = Session(self, id_, session)
        elif method == "Target.detachedFromTarget":
            self._end_session(self._sessions.get(_key(params.get("sessionId"))), SESSION_CLOSED)
        elif method == "Inspector.targetCrashed":
            self._end_session(session, SESSION_CRASHED)

    def _end_session(self, session: Session | None, why: str) -> None:
        if session is None or session is self.browser:
            return
        for child in [one for one in self._sessions.values() if one._parent is session]:
            self._end_session(child, why)
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


def _key(value: object) -> object:
    """A foreign value as a key to look up; what cannot be one is found nowhere."""
    return value if isinstance(value, int | str | None) else ""


@asynccontextmanager
async def connect(endpoint: str) -> AsyncIterator[Connection]:
    """Connect to a browser's websocket while the block runs. Raises Disconnected.

    No Origin header is sent, so the browser needs no `--remote-allow-origins` and refuses pages
    that try the same.
    """
    url = urlsplit(endpoint)
    try:
        with trio.fail_after(CONNECT_DEADLINE):
            stream = await trio.open_tcp_stream(url.hostname or "", url.port or 0)
    except (OSError, trio.TooSlowError) as fault:
        raise Disconnected(f"the browser cannot be reached: {first_line(repr(fault))}") from None
    async with converse(stream, url.netloc, url.path) as connection:
        yield connection


@asynccontextmanager
async def converse(stream: trio.abc.Stream, host: str, path: str) -> AsyncIterator[Connection]:
    """`connect` over a stream that is open already, and closed by this."""
    connection = Connection()
    async with background(partial(connection._run, stream, host, path)):
        await connection._opened.wait()
        if connection.browser.gone is not None:
            raise connection.browser._gone_error()
        yield connection
