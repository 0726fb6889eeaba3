"""The soak's answers to webhook calls of its executions: some are refused at first."""

from __future__ import annotations

from collections import defaultdict

import trio

from tests.fakes.receiver import Call


class Ends:
    """Knows which executions' ends were told. `url` is where the calls go."""

    def __init__(self) -> None:
        self.url = ""
        self.refusing: set[str] = set()
        """Executions whose next call is refused."""
        self._ended = defaultdict[str, trio.Event](trio.Event)

    async def told_of_end(self, execution: str) -> None:
        """Wait until the end of an execution was told, at /end."""
        await self._ended[execution].wait()
        del self._ended[execution]

    async def answer(self, call: Call) -> int:
        """Return the status for a call."""
        await trio.lowlevel.checkpoint()
        body = call.body
        about = body["events"][0]["execution_id"] if "events" in body else body["kickoff_id"]
        if about in self.refusing:
            self.refusing.remove(about)
            return 500
        if call.path == "/end":
            self._ended[about].set()
        return 200
