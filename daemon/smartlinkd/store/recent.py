"""Executions as they were read a moment ago, for those who ask again.

The problem: clients poll. Most of their questions are about an execution of which nothing was
recorded since the last one, and each is a way to the journal's thread and back, which costs more
than all else about it.

The choice: what was read is kept for a while, and dropped before it is changed. One that has ended
is read at once: whoever kicked it off is about to ask. The journal's thread alone keeps and drops,
one thing after the other, so nothing is kept here that is older than what was committed; and as
long as a change is not committed, nobody was told of it. What has a credential in it is not kept:
that is to be nowhere for longer than it is needed.

Others only look, from the event loop; each step that is taken here is a single one of a dict's.
"""

from __future__ import annotations

from typing import Final

from smartlinkd.store.model import Execution

MOST: Final = 512
"""Executions that are kept. The one that was read first goes first."""
LARGEST: Final = 16 * 1024
"""Characters of one that is kept."""
LARGEST_TOGETHER: Final = 1024 * 1024
"""Characters of all of them. In memory it can be 20 times that, for JSON that is all brackets."""


class Recent:
    """What has been read."""

    def __init__(self) -> None:
        self._kept: dict[str, Execution] = {}
        self._sizes: dict[str, int] = {}
        self._size = 0

    def find(self, execution_id: str, crew: str | None, owner: str | None) -> Execution | None:
        """An execution that is here and, where they are given, of this crew and owner.

        Who may not see one is sent to the disk, like everybody who asks for one that there is not.
        """
        found = self._kept.get(execution_id)
        if found is None or crew not in (None, found.crew) or owner not in (None, found.owner):
            return None
        return found

    def keep(self, execution: Execution, size: int) -> None:
        """It was just read, and has so many characters: keep it, if it may be kept."""
        self.drop(execution.id)
        if size > LARGEST or any(target.auth is not None for target in execution.webhooks):
            return
        while len(self._kept) >= MOST or self._size + size > LARGEST_TOGETHER:
            self.drop(next(iter(self._kept)))
        self._kept[execution.id] = execution
        self._sizes[execution.id] = size
        self._size += size

    def drop(self, execution_id: str) -> None:
        """It is about to be changed."""
        self._kept.pop(execution_id, None)
        self._size -= self._sizes.pop(execution_id, 0)

    def clear(self) -> None:
        """Forget all: any of them may be about to be changed."""
        self._kept.clear()
        self._sizes.clear()
        self._size = 0
