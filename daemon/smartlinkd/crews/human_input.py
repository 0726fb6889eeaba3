"""A question to a human in the midst of an execution, and its answer.

An answer comes from outside at any moment: when nothing is asked, about another task, twice, or
from two clients at once. It counts once it is recorded, and its client waits for that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from smartlinkd.crews.model import Feedback
from smartlinkd.crews.protocol import HumanFeedback
from smartlinkd.crews.worker import Worker
from smartlinkd.errors import Invalid
from smartlinkd.store.model import WebhookTarget


@dataclass(frozen=True)
class Question:
    """A question about a task. `seconds_left` is what is left of the execution's deadline."""

    task_id: str
    worker: Worker
    seconds_left: float

    def check_is_answered_by(self, answer: HumanAnswer) -> None:
        """Raise `Invalid` for an answer to another question."""
        if answer.feedback.task_id != self.task_id:
            raise Invalid(
                "task_id: is not the task about which a human is asked; that one is current_task "
                "in the answer of /status"
            )

    async def pass_on(self, answer: HumanAnswer) -> None:
        """Send the answer to the worker that has asked."""
        said = answer.feedback
        await self.worker.send(
            HumanFeedback(task_id=self.task_id, feedback=said.text, approved=said.approved)
        )


@dataclass
class HumanAnswer:
    """An answer. Once `recorded` is set it is recorded, or `refusal` says why not."""

    feedback: Feedback
    webhooks: tuple[WebhookTarget, ...]
    recorded: trio.Event = field(default_factory=trio.Event, compare=False)
    refusal: Invalid | None = field(
        default_factory=lambda: Invalid(
            "execution_id: this execution has ended; /events tells whether the answer was taken"
        ),
        compare=False,
    )

    def is_repeated_by(self, other: HumanAnswer, asked: Question | None) -> bool:
        """Return True if `other` is this answer sent again, and not one to a new question."""
        is_asked_again = asked is not None and asked.task_id == other.feedback.task_id
        return self == other and not is_asked_again

    def check_recorded(self) -> None:
        """Raise `Invalid` while the answer is being recorded."""
        if not self.recorded.is_set():
            raise Invalid(
                "execution_id: another answer is being recorded already; see what becomes of it "
                "in /status"
            )

    async def wait_recorded(self) -> None:
        """Wait until the answer is recorded. Raises `Invalid`, its refusal."""
        await self.recorded.wait()
        if self.refusal is not None:
            raise self.refusal.with_traceback(None)
