"""The receiver of the soak's webhook calls, which refuses some at first."""

from __future__ import annotations

from collections import defaultdict

import trio

from tests.fakes.receiver import Call


class EndReceiver:
    """Answers webhook calls. `url` is the receiver's address."""

    def __init__(self) -> None:
        self.url = ""
        self.refused_once: set[str] = set()
        """Ids of executions whose next call is refused."""
        self._ended = defaultdict[str, trio.Event](trio.Event)

    async def wait_for_end(self, execution: str) -> None:
        """Wait for the call to /end of an execution."""
        await self._ended[execution].wait()
        del self._ended[execution]

    async def answer(self, call: Call) -> int:
        """Return the HTTP status for a call."""
        await trio.lowlevel.checkpoint()
        body = call.body
        execution = body["events"][0]["execution_id"] if "events" in body else body["kickoff_id"]
        if execution in self.refused_once:
            self.refused_once.remove(execution)
            return 500
        if call.path == "/end":
            self._ended[execution].set()
        return 200
