"""The daemon's end of the connection to a worker: messages in and out over a stream socket.

The problem: a worker may send without end, in no time, half a line, or not read at all. None of it
may cost more than a bounded amount of memory, or keep anybody here waiting for ever.

The choice: nothing is read ahead of whoever iterates over the messages, so a slow reader holds up
the worker through the socket's own buffer, as a pipe would. What is sent has a deadline. A send
that is cancelled half-way leaves the rest of its line to the next one, so that lines stay whole.

Whatever ends the conversation ends the iteration; `fault`, `final` and `unfinished` tell which it
was. The worker's last message does, so that nobody waits for its result as long as its program
takes to end. Rejected: to wait for that, and have nothing stand that has more behind it (a text
that a library says at exit cost the whole result); a task that reads into a queue (the queue is one
more bound, and the worker's end is then known before what it said), and trio's SocketStream (a
cancelled `send_all` does not tell how much of the line is gone).
"""

from __future__ import annotations

import logging
import os
import select
import socket
from contextlib import suppress

import trio

from smartlinkd.crews.protocol import (
    MAX_LINE,
    Conversation,
    Failed,
    FromWorker,
    HumanFeedback,
    Inputs,
    ProtocolFault,
    Result,
    Stop,
    ToolResult,
    encode,
)

logger = logging.getLogger(__name__)

CHUNK = 64 * 1024
CATCH_UP_WITHIN = 1.0
"""Seconds, for what does not fit into the socket."""
# Seconds. Who waits for an answer reads at once, and for one who does not the socket holds some
# 200 KiB. So this is for answers larger than that, to a worker that is busy with something else.
SEND_LIMIT = 30.0
MOST_DROPPED = 16 * 1024 * 1024
"""Bytes. Nothing of it counts, and each costs us as much time as its writer."""


class Channel:
    """Iterate over it for the messages, in one task at a time. Does not own its `connection`.

    `inputs` are what is sent first: what goes at once, by `begin()`; `deliver()` sends the rest, or
    else whoever sends something.
    `max_output` is how many bytes the worker may say in all.
    """

    def __init__(
        self, connection: trio.socket.SocketType, inputs: Inputs, *, max_output: int
    ) -> None:
        self.fault: ProtocolFault | None = None
        self._warned = False
        self._connection = connection
        self._conversation = Conversation(max_output=max_output)
        self._received = bytearray()
        self._sending = trio.Lock()
        self._unsent = bytearray(encode(inputs))

    @property
    def final(self) -> Result | Failed | None:
        """What the worker said of its end. It stands, whatever comes after it."""
        return self._conversation.final

    @property
    def unfinished(self) -> bytes:
        """What was received and is not a whole line."""
        return bytes(self._received)

    def __aiter__(self) -> Channel:
        return self

    async def __anext__(self) -> FromWorker:
        """The next message, but for the last one, which is `final`."""
        line = await self._next_line() if self.final is None else None
        heard = None if line is None or self.fault is not None else self._hear(line)
        if heard is None:
            raise StopAsyncIteration
        return heard

    def at_hand(self, most: int) -> list[FromWorker]:
        """The next messages, as far as they have been received already."""
        heard: list[FromWorker] = []
        while len(heard) < most and self.final is None and self.fault is None:
            line = self._take_line()
            message = None if line is None else self._hear(line)
            if message is None:
                break
            heard.append(message)
        return heard

    async def catch_up(self) -> list[FromWorker]:
        """What nobody has come to hear yet: what is here by now, and what comes behind it without a
        gap, for `CATCH_UP_WITHIN` at most, with the whole of a line that is half here. Of the size
        that a worker may say in all; not for the time in which somebody takes messages.
        """
        said: list[FromWorker] = []
        with trio.move_on_after(CATCH_UP_WITHIN):
            while self._received or self._is_readable():
                try:
                    said.append(await anext(self))
                except StopAsyncIteration:
                    break
        return said

    def _is_readable(self) -> bool:
        poll = select.poll()
        poll.register(self._connection.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def begin(self) -> bool:
        """Send what of the inputs there is room for. Whether that was all, as it mostly is."""
        with suppress(BlockingIOError):
            del self._unsent[: os.write(self._connection.fileno(), self._unsent)]
        return not self._unsent

    async def deliver(self) -> None:
        """Send the inputs. There is no limit: they may be large, and the worker slow to start."""
        async with self._sending:
            await self._flush()

    async def send(self, message: ToolResult | HumanFeedback | Stop) -> None:
        """Send it, or break off the conversation when the worker does not read it.

        Nothing happens when the conversation has ended: the iteration tells that. Raises ValueError
        for an answer to what the worker has not asked.
        """
        if not isinstance(message, Stop):
            self._conversation.tell(message)
        with trio.move_on_after(SEND_LIMIT) as patience:
            async with self._sending:
                await self._flush()
                self._unsent += encode(message)
                await self._flush()
        if patience.cancelled_caught:
            self._break(ProtocolFault(f"it did not read `{message.type}` within {SEND_LIMIT:g} s"))

    async def discard(self) -> None:
        """Take what comes and drop it, until the worker's end is closed. After `MOST_DROPPED` bytes
        it is held up.

        What comes after its last message is warned of, once: who wrote it believes that it counts.
        """
        if self._received:
            self._warn_of_more()
            self._received.clear()
        left = MOST_DROPPED
        while left > 0 and (data := await self._receive()):
            self._warn_of_more()
            left -= len(data)

    def close(self) -> None:
        """Send and receive no more. What has arrived can still be taken."""
        self._connection.shutdown(socket.SHUT_RDWR)

    async def _next_line(self) -> bytes | None:
        """What `_take_line` has, or None at the end."""
        await trio.lowlevel.checkpoint()  # for what was received before is no reason to hurry
        searched = 0
        while (line := self._take_line(searched)) is None:
            searched = len(self._received)
            data = await self._receive()
            if not data:
                return None
            self._received += data
        return line

    def _take_line(self, searched: int = 0) -> bytes | None:
        """A line without its newline, or the beginning of one that is too long; None when there is
        no more than a part of one. The first bytes were `searched` already."""
        end = self._received.find(b"\n", searched)
        if end < 0:
            return bytes(self._received) if len(self._received) > MAX_LINE else None
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line

    def _hear(self, line: bytes) -> FromWorker | None:
        """The message, or None for what ends the conversation."""
        heard = self._conversation.hear(line)
        if isinstance(heard, ProtocolFault):
            self._break(heard)
            return None
        if heard is self.final:
            self._connection.shutdown(socket.SHUT_WR)  # one who reads on sees that it may go
            return None
        return heard

    def _warn_of_more(self) -> None:
        if self.final is not None and not self._warned:
            self._warned = True
            logger.warning("a worker says more after its last message, which nobody hears")

    async def _receive(self) -> bytes:
        try:
            return await self._connection.recv(CHUNK)
        except ConnectionResetError:  # its end was closed with something unread in it
            return b""

    async def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: await self._connection.send(self._unsent)]
        except (BrokenPipeError, ConnectionResetError):  # its end, or ours, was closed
            self._unsent.clear()

    def _break(self, fault: ProtocolFault) -> None:
        if self.fault is None:
            self.fault = fault
            self.close()  # which also wakes whoever reads or sends here
