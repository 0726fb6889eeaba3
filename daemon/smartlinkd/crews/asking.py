"""What a human is asked in the midst of an execution, and what they answer.

The problem: an answer comes from outside, at any moment: when nothing is asked, about another task,
a second time because who sent it has not waited, or from two at once. And whether it counts is
known only when it is recorded, while the worker may end.

The choice: a question and an answer are things of their own, which say themselves whether the one
goes with the other. Who has sent an answer waits for that answer's fate; the same again is the same
answer, and waits with it. What is asked when, and who passes it on, is the execution's (`run.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import trio

from smartlinkd.crews.crew import Feedback
from smartlinkd.crews.protocol import HumanFeedback
from smartlinkd.crews.worker import Worker
from smartlinkd.errors import Invalid
from smartlinkd.store.model import WebhookTarget


@dataclass(frozen=True)
class Question:
    """What a human is asked; `seconds_left` are those of the deadline, which stands still."""

    task_id: str
    worker: Worker
    seconds_left: float

    def check_is_answered_by(self, answer: Answer) -> None:
        """Raise `Invalid` for an answer to something else."""
        if answer.feedback.task_id != self.task_id:
            raise Invalid(
                "task_id: is not the task about which a human is asked; that one is current_task "
                "in the answer of /status"
            )

    async def pass_on(self, answer: Answer) -> None:
        """Have the worker that asks hear it."""
        said = answer.feedback
        await self.worker.send(
            HumanFeedback(task_id=self.task_id, feedback=said.text, approved=said.approved)
        )


@dataclass
class Answer:
    """What a human says to it, and what became of that. Once `taken` is set, it is recorded, or the
    `refusal` says why not."""

    feedback: Feedback
    webhooks: tuple[WebhookTarget, ...]
    taken: trio.Event = field(default_factory=trio.Event, compare=False)
    refusal: Invalid | None = field(
        default_factory=lambda: Invalid(
            "execution_id: this execution has ended; /events tells whether the answer was taken"
        ),
        compare=False,
    )

    def is_repeated_by(self, other: Answer, asked: Question | None) -> bool:
        """Whether the `other` is this one, sent again. It is not when the same task is `asked`
        about again."""
        asked_again = asked is not None and asked.task_id == other.feedback.task_id
        return self == other and not asked_again

    def check_taken(self) -> None:
        """Raise `Invalid` while it is being recorded."""
        if not self.taken.is_set():
            raise Invalid(
                "execution_id: another answer is being recorded already; see what becomes of it "
                "in /status"
            )

    async def wait_taken(self) -> None:
        """Return when it is recorded. Raises its refusal."""
        await self.taken.wait()
        if self.refusal is not None:
            raise self.refusal.with_traceback(None)
