"""The outbox: targets of webhooks, and the deliveries that wait for them.

A delivery is a row until it is made or given up. It refers to a row of `webhooks` and not to a URL,
so a credential is stored once. That row also has the target's first delivery and its time, so a
search for due calls does not read the deliveries behind it.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import cast

from pydantic import SecretStr

from smartlinkd.errors import Invalid
from smartlinkd.store.codec import (
    decode,
    encode,
    micros,
    moment,
    text,
)
from smartlinkd.store.file import StoreFile
from smartlinkd.store.model import Delivery, NewDelivery, StoreLimits, WebhookTarget
from smartlinkd.store.sealing import Seal

logger = logging.getLogger(__name__)


class Outbox:
    """The tables `webhooks` and `deliveries`.

    `Executions` calls the methods that take a `sequence` in its own transactions.
    """

    def __init__(self, file: StoreFile, seal: Seal, limits: StoreLimits) -> None:
        self._file = file
        self._connection = file.connection
        self._seal = seal
        self._limits = limits
        self._is_loss_logged = False

    def set_targets(
        self, sequence: int, execution_id: str, targets: Iterable[WebhookTarget]
    ) -> None:
        """Replace an execution's targets. Raises `Invalid` if they cannot be stored."""
        self._connection.execute(
            "UPDATE webhooks SET in_force = 0 WHERE execution = ?", (sequence,)
        )
        for target in targets:
            self._add_target(sequence, execution_id, target, in_force=True)

    def targets(self, sequence: int, execution_id: str) -> tuple[WebhookTarget, ...]:
        """Return the targets in force, in the order in which they were set."""
        rows = self._connection.execute(
            "SELECT * FROM webhooks WHERE execution = ? AND in_force ORDER BY number", (sequence,)
        )
        return tuple(self._target(row, execution_id) for row in rows)

    def check_pending(self, sequence: int, more: Collection[NewDelivery]) -> None:
        """Raise `Invalid` if too many bytes would wait for an execution's targets with these."""
        if not more:
            return
        (pending,) = self._connection.execute(
            "SELECT coalesce(sum(pending_bytes), 0) FROM webhooks WHERE execution = ?", (sequence,)
        ).fetchone()
        if pending + sum(len(each.body) for each in more) > self._limits.pending_bytes:
            raise Invalid(
                f"webhook calls: more than {self._limits.pending_bytes} bytes owed at a time in "
                "one execution; see to the receivers that do not take them, or have a smaller "
                "meta in them"
            )

    def queue(self, sequence: int, execution_id: str, deliveries: Iterable[NewDelivery]) -> None:
        """Add deliveries. Raises `Invalid` if they cannot be stored."""
        for delivery in deliveries:
            webhook = self._find_target(sequence, execution_id, delivery.target)
            if webhook is None:
                webhook = self._add_target(sequence, execution_id, delivery.target, in_force=False)
            self._connection.execute(
                "INSERT INTO deliveries (execution, webhook, next_at, body) VALUES (?, ?, ?, ?)",
                (sequence, webhook, micros(delivery.due_at), delivery.body),
            )
            self._update_first(webhook, more_bytes=len(delivery.body))

    def due(
        self,
        now: datetime,
        limit: int,
        *,
        except_ids: Collection[int] = (),
        except_origins: Collection[str] = (),
    ) -> list[Delivery]:
        """Return the first delivery of each target, if it is due at `now`, longest due first.

        A target is one URL of an execution. It has a row for each kind of calls, and more rows if
        its credential or event types were changed: deliveries keep their order over all of these.
        Only a question to a human does not wait for other kinds, nor they for it. A `now` in the
        future shows when the next ones are due.

        Args:
            limit: at most so many are returned, and fewer if their bodies are large.
            except_ids: deliveries that are being made.
            except_origins: origins (`https://host:port`) that get no more at the moment.
        """
        with self._file.reading():
            rows = self._connection.execute(
                f"""
                SELECT deliveries.number AS delivery, id, crew, attempts, next_at, body,
                       coalesce(due_since, next_at) AS due_since,
                       kind, url, webhooks.events, credential
                FROM webhooks INDEXED BY webhooks_due
                CROSS JOIN deliveries ON deliveries.number = first_delivery
                CROSS JOIN executions ON executions.sequence = webhooks.execution
                WHERE first_due_at <= ? AND url_origin NOT IN ({_placeholders(except_origins)})
                AND first_delivery NOT IN ({_placeholders(except_ids)})
                AND NOT EXISTS (
                    SELECT 1 FROM webhooks AS other
                    WHERE other.execution = webhooks.execution AND other.url = webhooks.url
                    AND (other.kind = 'human_input') = (webhooks.kind = 'human_input')
                    AND other.first_delivery < webhooks.first_delivery
                )
                ORDER BY first_due_at, first_delivery
                LIMIT ?
                """,  # noqa: S608 - only placeholders are put in
                (micros(now), *except_origins, *except_ids, limit),
            )
            found: list[Delivery] = []
            size = 0
            for row in rows:
                size += len(row["body"])
                if found and size > self._limits.deliveries_page_bytes:
                    break
                found.append(
                    Delivery(
                        id=row["delivery"],
                        execution_id=row["id"],
                        crew=row["crew"],
                        target=self._target(row, row["id"]),
                        body=row["body"],
                        attempts=row["attempts"],
                        due_since=moment(row["due_since"]),
                        next_at=moment(row["next_at"]),
                    )
                )
            return found

    def remove(self, delivery: int) -> None:
        """Delete a delivery that was made or given up. Do nothing if it is gone already."""
        with self._file.writing():
            row = self._connection.execute(
                "DELETE FROM deliveries WHERE number = ? "
                "RETURNING execution, webhook, length(body)",
                (delivery,),
            ).fetchone()
            if row is not None:
                execution, webhook, size = row
                self._update_first(webhook, more_bytes=-size)
                self.drop_unneeded_targets(execution)

    def reschedule(self, delivery: int, next_at: datetime) -> None:
        """Count a failed attempt, and set when the next one is due. Do nothing if it is gone."""
        with self._file.writing():
            row = self._connection.execute(
                """
                UPDATE deliveries SET attempts = attempts + 1, next_at = :next_at,
                    due_since = min(coalesce(due_since, next_at), next_at, :next_at)
                WHERE number = :number RETURNING webhook
                """,
                {"next_at": micros(next_at), "number": delivery},
            ).fetchone()
            if row is not None:
                self._update_first(row["webhook"])

    def drop_unneeded_targets(self, sequence: int) -> None:
        """Delete replaced targets and credentials of ended executions that nothing waits for."""
        self._connection.execute(
            "DELETE FROM webhooks WHERE execution = ? AND NOT in_force AND first_delivery IS NULL",
            (sequence,),
        )
        self._connection.execute(
            """
            UPDATE webhooks SET credential = NULL
            WHERE execution = ? AND +credential IS NOT NULL AND first_delivery IS NULL
            AND EXISTS (SELECT 1 FROM executions
                        WHERE sequence = webhooks.execution AND finished_at IS NOT NULL)
            """,
            (sequence,),
        )

    def _update_first(self, webhook: int, *, more_bytes: int = 0) -> None:
        """Bring a target's row up to date after a change of its deliveries."""
        self._connection.execute(
            """
            UPDATE webhooks SET pending_bytes = pending_bytes + ?,
                (first_delivery, first_due_at) = (
                    SELECT number, next_at FROM deliveries
                    WHERE webhook = webhooks.number ORDER BY number LIMIT 1
                )
            WHERE number = ?
            """,
            (more_bytes, webhook),
        )

    def _find_target(self, sequence: int, execution_id: str, target: WebhookTarget) -> int | None:
        rows = self._connection.execute(
            "SELECT * FROM webhooks WHERE execution = ? AND kind = ? AND url = ?",
            (sequence, target.kind, target.url),
        )
        same = (row["number"] for row in rows if self._target(row, execution_id) == target)
        return next(same, None)

    def _add_target(
        self, sequence: int, execution_id: str, target: WebhookTarget, *, in_force: bool
    ) -> int:
        (count,) = self._connection.execute(
            "SELECT count(*) FROM webhooks WHERE execution = ?", (sequence,)
        ).fetchone()
        if count >= self._limits.targets:
            raise Invalid(
                f"webhooks: more than {self._limits.targets} targets for one execution; use fewer"
            )
        credential = None
        if target.auth is not None:
            header = text("webhook authentication", target.auth.get_secret_value())
            context = _context(execution_id, target.kind, target.url)
            credential = self._seal.seal(header.encode(), context)
        number = self._connection.execute(
            "INSERT INTO webhooks (execution, in_force, kind, url, events, credential) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (
                sequence,
                in_force,
                target.kind,
                text("webhook url", target.url),
                encode("webhook events", list(target.events)),
                credential,
            ),
        ).lastrowid
        assert number is not None  # noqa: S101 - it was just inserted; for the type checker
        return number

    def _target(self, row: sqlite3.Row, execution_id: str) -> WebhookTarget:
        auth = None
        if row["credential"] is not None:
            context = _context(execution_id, row["kind"], row["url"])
            header = self._seal.open(row["credential"], context)
            if header is not None:
                auth = SecretStr(header.decode())
            elif not self._is_loss_logged:
                self._is_loss_logged = True
                logger.warning(
                    "credentials of webhooks do not open: the crews' master secret is another one, "
                    "or the file is damaged; these are called without their Authorization header"
                )
        events = cast("list[str]", decode(row["events"]))
        return WebhookTarget(kind=row["kind"], url=row["url"], events=tuple(events), auth=auth)


def _placeholders(values: Collection[object]) -> str:
    return ", ".join("?" * len(values))


def _context(execution_id: str, kind: str, url: str) -> str:
    return f"{execution_id}\n{kind}\n{url}"
