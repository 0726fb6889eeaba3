"""The history's file `history.sqlite`, and the entries that wait in memory to be written to it.

Every method but `add` blocks for as long as the disk takes, and belongs on a thread, one call at a
time. The file is opened when it is needed, also after damage and `close`. Each call first writes
what waits, so a reader sees every link that was converted before it asked.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Final

from smartlinkd.errors import Unavailable
from smartlinkd.history.model import (
    Day,
    Entry,
    Filters,
    HistoryLimits,
    HistoryRetention,
    Record,
    moment_of,
)
from smartlinkd.history.schema import SCHEMA
from smartlinkd.history.search import Condition, condition, searchable, storable
from smartlinkd.store.sqlite import (
    PASSING,
    NewerFile,
    checkpoint,
    has_room,
    is_damage,
    open_database,
    pragma,
    primary_code,
    release_pages,
    transaction,
)

logger = logging.getLogger(__name__)

RETRY_AFTER_S: Final = 5
DELETED_AT_ONCE: Final = 500
"""Entries of one transaction. Other calls come in between."""
SPARE_PAGES: Final = 256
"""Free pages that stay in the file, for the next entries: 1 MiB."""
_CUT_AT_ONCE: Final = 500  # pages
_MERGED_AT_ONCE: Final = 500  # pages
_STALE_PART: Final = 10
"""The index of a file that is too large is merged when the entries that were deleted since the last
merge are more than this part (one in ten) of those that are left."""
_LEFT_FREE_BYTES: Final = 4 * 1024 * 1024
"""The history stops before the disk is full: the last room is for what was promised to clients."""
_DAY_MS: Final = 86_400_000
_MINUTE_MS: Final = 60_000
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_LARGEST: Final = 2**53  # of what JavaScript's numbers hold exactly
_DAMAGED: Final = ".damaged"


class HistoryDatabase:
    """The history's file. Every method that reads or deletes may raise `Unavailable`."""

    def __init__(self, path: Path, limits: HistoryLimits) -> None:
        """Open nothing yet. The folder of `path` must exist."""
        self._path = path
        self._limits = limits
        # The event loop appends to it while the thread takes; a `deque` allows that.
        self._pending: deque[Record] = deque()
        self._lost = 0  # entries since the last report
        self._connection: sqlite3.Connection | None = None
        self._is_failing = False
        self._unmerged = 0  # entries that were deleted since the index was merged
        self._is_merging = False

    def add(self, record: Record) -> None:
        """Append an entry to those that wait. If too many wait, it is lost."""
        if len(self._pending) >= self._limits.pending:
            self._lost += 1
        else:
            self._pending.append(record)

    def close(self) -> None:
        """Write what waits, and close the file. The next call opens it again."""
        self.write_pending()
        left = len(self._pending) + self._take_lost()
        if left:
            logger.warning("%d entries of the history were not written", left)
        self._disconnect()

    def write_pending(self) -> bool:
        """Write the entries that wait in memory. Return False when that fails.

        They wait in memory then, but for entries that hit a bug of ours, which are lost.
        """
        is_written = False
        while records := self._take_batch():
            try:
                self._insert(records)
                is_written = True
            except Unavailable as refusal:
                self._pending.extendleft(reversed(records))
                self._note_failing(str(refusal))
                return False
            except sqlite3.Error as fault:
                # A fault of ours. It must not cost more than these entries.
                self._lost += len(records)
                self._note_failing(f"SQLite reports {type(fault).__name__}")
                return False
        if is_written:
            self._note_written()
        return True

    def page(self, filters: Filters, limit: int, before: int | None = None) -> list[Entry]:
        """Return up to `limit` entries, the newest first, with ids below `before`, if given."""
        with self._reading() as connection:
            found = _select(connection, filters, "entries.*", limit=limit, before=before)
            return [_entry(row) for row in found]

    def days(self, filters: Filters, utc_offset_min: int) -> list[Day]:
        """Return the days that have entries, the oldest first."""
        with self._reading() as connection:
            search = _search_for(connection, filters)
            if search is None:
                return []
            query = (
                "SELECT (entries.at + ?) / ? AS day, count(*) AS links, "  # noqa: S608 - our words
                "total(entries.commission) AS commission "
                f"FROM {search.source} WHERE {search.where} GROUP BY day ORDER BY day"
            )
            shift = utc_offset_min * _MINUTE_MS
            rows = connection.execute(query, (shift, _DAY_MS, *search.values)).fetchall()
        return [
            Day(date.fromordinal(_EPOCH_ORDINAL + row["day"]), row["links"], int(row["commission"]))
            for row in rows
        ]

    def newest(self) -> int:
        """Return the largest id of an entry, 0 when there is none."""
        with self._reading() as connection:
            (newest,) = connection.execute("SELECT max(id) FROM entries").fetchone()
            return newest or 0

    def delete(self, entry_id: int) -> bool:
        """Delete one entry. Returns False when there is none of this id."""
        with self._writing() as connection:
            return self._delete(connection, [entry_id]) > 0

    def delete_some(self, filters: Filters, newest: int) -> int:
        """Delete some that fit, up to the id `newest`. Returns how many; 0 when none is left."""
        with self._writing() as connection:
            rows = _select(
                connection, filters, "entries.id", limit=DELETED_AT_ONCE, before=newest + 1
            )
            return self._delete(connection, [row["id"] for row in rows])

    def clear(self) -> int:
        """Delete all entries. Returns how many there were."""
        with self._writing() as connection:
            count = _count(connection)
            if count:
                connection.execute("INSERT INTO search (search) VALUES ('delete-all')")
                connection.execute("DELETE FROM texts")
                connection.execute("DELETE FROM entries")
        return count

    def prune_some(self, kept: HistoryRetention, now_ms: int) -> bool:
        """Delete some of what is beyond its retention, merge some of the index, or free some pages.

        Returns True if there may be more to do: call it again then.
        """
        if not kept.keeps_any and self.clear():
            return True
        with self._writing() as connection:
            if self._is_merging or self._wants_merge(connection, kept):
                self._merge_some(connection)
                return True
            if self._delete(connection, _beyond(connection, kept, now_ms)):
                return True
            has_cut = release_pages(connection, spare=SPARE_PAGES, most=_CUT_AT_ONCE)
            is_last = pragma(connection, "freelist_count") <= SPARE_PAGES
        if has_cut and is_last:
            with self._connected() as connection:
                checkpoint(connection)
        return has_cut

    def _delete(self, connection: sqlite3.Connection, ids: Sequence[int]) -> int:
        """Delete these entries. Returns how many there were."""
        if not ids:
            return 0
        keys = [(each,) for each in ids]
        connection.executemany(
            "INSERT INTO search (search, rowid, text) SELECT 'delete', id, text FROM texts "
            "WHERE id = ?",
            keys,
        )
        connection.executemany("DELETE FROM texts WHERE id = ?", keys)
        count = connection.executemany("DELETE FROM entries WHERE id = ?", keys).rowcount
        self._unmerged += count
        return count

    def _wants_merge(self, connection: sqlite3.Connection, kept: HistoryRetention) -> bool:
        """Return True if the index should be merged before more entries go for its size.

        FTS5 only marks what is deleted, and keeps it until the parts of the index are merged.
        """
        is_stale = self._unmerged > _count(connection) // _STALE_PART
        return is_stale and _used_bytes(connection) > kept.size_bytes

    def _merge_some(self, connection: sqlite3.Connection) -> None:
        """Do a piece of the merge of all parts of the index, as FTS5's documents describe it."""
        pages = _MERGED_AT_ONCE if self._is_merging else -_MERGED_AT_ONCE
        before = connection.total_changes
        connection.execute("INSERT INTO search (search, rank) VALUES ('merge', ?)", (pages,))
        self._is_merging = connection.total_changes - before > 1
        if not self._is_merging:
            self._unmerged = 0

    def _insert(self, records: Sequence[Record]) -> None:
        if not has_room(self._path.parent, _LEFT_FREE_BYTES):
            raise _refusal(*PASSING[sqlite3.SQLITE_FULL])
        with self._transaction() as connection:
            for record in records:
                made = record.made
                product = made.product
                texts = tuple(map(storable, (record.link, made.short_link, made.long_link)))
                entry = connection.execute(
                    "INSERT INTO entries (at, commission, client, link, short_link, long_link, "
                    "sub_ids, product) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        record.at_ms,
                        _summable(product.commission) if product is not None else None,
                        record.client,
                        *texts,
                        json.dumps(record.sub_ids),
                        product.model_dump_json(by_alias=True) if product is not None else None,
                    ),
                )
                name = product.name if product is not None else None
                searched = searchable([name or "", *texts[:2]], record.sub_ids)
                for table, key in (("texts", "id"), ("search", "rowid")):
                    connection.execute(
                        f"INSERT INTO {table} ({key}, text) VALUES (?, ?)",  # noqa: S608
                        (entry.lastrowid, searched),
                    )

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        self.write_pending()
        with self._connected() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        self.write_pending()
        with self._transaction() as connection:
            yield connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._connected() as connection, transaction(connection):
            yield connection

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Give the connection to the body. Raises `Unavailable` for what is no fault of ours."""
        if self._connection is None:
            self._connection = self._opened()
        try:
            yield self._connection
        except sqlite3.Error as error:
            if is_damage(error):
                raise self._set_aside() from error
            if primary_code(error) not in PASSING:
                raise
            raise _refusal(*PASSING[primary_code(error)]) from error

    def _opened(self) -> sqlite3.Connection:
        try:
            return open_database(self._path, SCHEMA)
        except NewerFile as newer:
            raise _refusal(
                f"it was written by a newer smartlinkd ({newer}); install that one again, or move "
                f"{self._path.name} away"
            ) from newer
        except sqlite3.Error as error:
            if is_damage(error):
                raise self._set_aside() from error
            unknown = (f"SQLite cannot open it: {error}",)
            raise _refusal(*PASSING.get(primary_code(error), unknown)) from error
        except OSError as error:
            raise _refusal(f"it cannot be opened: {error.strerror}") from error

    def _set_aside(self) -> Unavailable:
        """Move the damaged file away, and return what to raise."""
        self._disconnect()
        aside = self._path.with_name(self._path.name + _DAMAGED)
        try:
            # An earlier damaged file goes.
            for end in ("-wal", ""):
                Path(f"{aside}{end}").unlink(missing_ok=True)
                with suppress(FileNotFoundError):  # a closed file has no log
                    Path(f"{self._path}{end}").rename(f"{aside}{end}")
            Path(f"{self._path}-shm").unlink(missing_ok=True)
        except OSError as error:
            return _refusal(f"it is damaged, and cannot be moved away: {error.strerror}")
        text = "%s is damaged: it is %s now, and the history begins anew"
        logger.error(text, self._path, aside.name)
        return _refusal("it was damaged, and the history begins anew")

    def _take_batch(self) -> list[Record]:
        """Remove and return the entries that have waited longest, for one transaction."""
        most = min(self._limits.batch, len(self._pending))
        return [self._pending.popleft() for _ in range(most)]

    def _take_lost(self) -> int:
        """Return how many entries were lost since the last call."""
        lost, self._lost = self._lost, 0
        return lost

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _note_failing(self, why: str) -> None:
        if not self._is_failing:
            self._is_failing = True
            logger.error(
                "%s; links are converted all the same, %d entries wait in memory and later ones "
                "are lost",
                why,
                self._limits.pending,
            )

    def _note_written(self) -> None:
        if self._is_failing:
            self._is_failing = False
            lost = self._take_lost()
            logger.warning("the history is written again; %d entries were lost", lost)


def _search_for(
    connection: sqlite3.Connection, filters: Filters, before: int = _LARGEST
) -> Condition | None:
    """Return the condition of the entries that fit, with ids below `before`; None if none can.

    A time is looked up as a range of ids, since both grow together. Where the clock was set back
    they do not, so it is compared as well.
    """
    meant = condition(filters)
    clauses, values = list(meant.clauses), list(meant.values)
    since, until = filters.since_ms, filters.until_ms
    if since is not None or until is not None:
        bounds = (-_LARGEST if since is None else since, _LARGEST if until is None else until)
        first, last = connection.execute(
            "SELECT min(id), max(id) FROM entries WHERE at >= ? AND at < ?", bounds
        ).fetchone()
        if first is None:
            return None
        before = min(before, last + 1)
        # The sign keeps SQLite from going by the index of times, which is not in the order of ids.
        clauses += [f"{meant.key} >= ?", "+entries.at >= ?", "+entries.at < ?"]
        values += [first, *bounds]
    return replace(meant, clauses=(*clauses, f"{meant.key} < ?"), values=(*values, before))


def _select(
    connection: sqlite3.Connection,
    filters: Filters,
    columns: str,
    *,
    limit: int,
    before: int | None,
) -> list[sqlite3.Row]:
    search = _search_for(connection, filters, _LARGEST if before is None else before)
    if search is None:
        return []
    query = (
        f"SELECT {columns} FROM {search.source} WHERE {search.where} "  # noqa: S608 - our words
        f"ORDER BY {search.key} DESC LIMIT ?"
    )
    return connection.execute(query, (*search.values, limit)).fetchall()


def _beyond(connection: sqlite3.Connection, kept: HistoryRetention, now_ms: int) -> list[int]:
    """Return the ids of some entries that are beyond their retention."""
    age_ms = int(kept.age.total_seconds() * 1000)
    old = connection.execute(
        "SELECT id FROM entries WHERE at < ? LIMIT ?", (now_ms - age_ms, DELETED_AT_ONCE)
    ).fetchall()
    if old:
        return [row["id"] for row in old]
    count = _count(connection)
    too_many = count - kept.count
    if _used_bytes(connection) > kept.size_bytes:
        # The index shrinks later than the tables, so little goes at a time.
        too_many = max(too_many, 1 + count // 100)
    most = min(max(too_many, 0), DELETED_AT_ONCE)
    oldest = connection.execute("SELECT id FROM entries ORDER BY id LIMIT ?", (most,))
    return [row["id"] for row in oldest.fetchall()]


def _count(connection: sqlite3.Connection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM entries").fetchone()
    return int(count)


def _used_bytes(connection: sqlite3.Connection) -> int:
    pages = pragma(connection, "page_count") - pragma(connection, "freelist_count")
    return pages * pragma(connection, "page_size")


def _entry(row: sqlite3.Row) -> Entry:
    return Entry(
        id=row["id"],
        at=moment_of(row["at"]),
        client=row["client"],
        link=row["link"],
        short_link=row["short_link"],
        long_link=row["long_link"],
        sub_ids=tuple(json.loads(row["sub_ids"])),
        product=row["product"],
    )


def _summable(commission: int | None) -> int | None:
    return commission if commission is not None and abs(commission) < _LARGEST else None


def _refusal(*why: str) -> Unavailable:
    text = f"the history cannot be used: {'; '.join(why)}"
    return Unavailable(text, retry_after=RETRY_AFTER_S)
