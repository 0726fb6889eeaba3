"""The daemon's end of the connection to a worker: messages in and out over a stream socket.

If a send is cancelled half-way, the next one sends the rest of its line. The worker's last message
ends the iteration, as does its end or a fault. See docs/decisions/067-talking-to-workers.md.
"""

from __future__ import annotations

import socket

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

CHUNK = 64 * 1024
SEND_LIMIT = 30.0
"""Seconds. The socket holds some 200 KiB for a worker that does not read at once. So this is for
larger answers, to a worker that is busy with something else."""
MAX_DISCARDED = 16 * 1024 * 1024
"""Bytes. Nothing of it counts, and each costs the daemon as much time as its writer."""


class WorkerChannel:
    """A channel to a worker. Iterate over it for the messages, in one task at a time.

    Args:
        connection: belongs to the caller.
        inputs: the first message. `deliver()` sends it, or the next message that is sent does.
    """

    def __init__(
        self, connection: trio.socket.SocketType, inputs: Inputs, *, max_output: int
    ) -> None:
        self.fault: ProtocolFault | None = None
        self._connection = connection
        self._conversation = Conversation(max_output=max_output)
        self._received = bytearray()
        self._sending = trio.Lock()
        self._unsent = bytearray(encode(inputs))

    @property
    def final(self) -> Result | Failed | None:
        """The worker's last message. It stands, whatever comes after it."""
        return self._conversation.final

    @property
    def unfinished(self) -> bytes:
        """The bytes that were received and are not a whole line."""
        return bytes(self._received)

    def __aiter__(self) -> WorkerChannel:
        return self

    async def __anext__(self) -> FromWorker:
        """Return the next message, but for the last one, which is `final`."""
        line = await self._next_line() if self.final is None else None
        message = None if line is None or self.fault is not None else self._parse(line)
        if message is None:
            raise StopAsyncIteration
        return message

    async def deliver(self) -> None:
        """Send the inputs. There is no limit: they may be large, and the worker slow to start."""
        async with self._sending:
            await self._flush()

    async def send(self, message: ToolResult | HumanFeedback | Stop) -> None:
        """Send a message. If the worker does not read it in time, it has broken the protocol.

        Nothing happens if the conversation has ended, which the iteration shows.
        """
        if not isinstance(message, Stop):
            self._conversation.note_answer(message)
        with trio.move_on_after(SEND_LIMIT) as timeout:
            async with self._sending:
                await self._flush()
                self._unsent += encode(message)
                await self._flush()
        if timeout.cancelled_caught:
            self._break(ProtocolFault(f"it did not read `{message.type}` within {SEND_LIMIT:g} s"))

    async def discard(self) -> None:
        """Read and drop bytes until the worker closes its end, or `MAX_DISCARDED` are dropped."""
        self._received.clear()
        left = MAX_DISCARDED
        while left > 0 and (data := await self._receive()):
            left -= len(data)

    def close(self) -> None:
        """Send and receive no more. What has arrived can still be read."""
        self._connection.shutdown(socket.SHUT_RDWR)

    async def _next_line(self) -> bytes | None:
        """Return the next line without its newline, or the beginning of one that is too long.

        None at the end, although a part of a line may be there.
        """
        # Lines that are already buffered must not keep other tasks from running.
        await trio.lowlevel.checkpoint()
        searched = 0  # bytes without a newline
        while (end := self._received.find(b"\n", searched)) < 0:
            if len(self._received) > MAX_LINE:
                return bytes(self._received)
            searched = len(self._received)
            data = await self._receive()
            if not data:
                return None
            self._received += data
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line

    def _parse(self, line: bytes) -> FromWorker | None:
        """Return the message in a line; None if it ends the conversation."""
        message = self._conversation.receive(line)
        if isinstance(message, ProtocolFault):
            self._break(message)
            return None
        if message is self.final:
            self._connection.shutdown(socket.SHUT_WR)  # a worker that reads on sees that it may go
            return None
        return message

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
