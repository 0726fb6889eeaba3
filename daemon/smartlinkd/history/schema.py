"""The history's tables, and how a file gets them.

`PRAGMA user_version` counts the migrations that a file has had. `texts` holds what is searched,
and `search` is the index over it (FTS5's external content). It is apart from `entries`, because a
word of one or two signs is looked for in every text, and those rows are short.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

BUSY_TIMEOUT_S: Final = 2.0
"""How long a lock of another program is waited for."""
_WAL_KEPT_BYTES: Final = 4 * 1024 * 1024
_DAMAGED: Final = ".damaged"

_VERSION_1: Final = (
    # `commission` is the product's, apart so that days can be summed.
    """
    CREATE TABLE entries (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        at INTEGER NOT NULL,
        commission INTEGER,
        client TEXT NOT NULL,
        link TEXT NOT NULL,
        short_link TEXT NOT NULL,
        long_link TEXT NOT NULL,
        sub_ids TEXT NOT NULL,
        product TEXT
    ) STRICT
    """,
    "CREATE INDEX entries_at ON entries (at)",
    "CREATE TABLE texts (id INTEGER PRIMARY KEY, text TEXT NOT NULL) STRICT",
    """
    CREATE VIRTUAL TABLE search USING fts5 (
        text, content = 'texts', content_rowid = 'id', tokenize = 'trigram'
    )
    """,
)
MIGRATIONS: Final = (_VERSION_1,)
"""The n-th leads from version n to n + 1. One that was released never changes."""


class NewerFile(Exception):  # noqa: N818 - it names what is the matter
    """A newer daemon wrote the file. Nothing was changed in it."""


def open_database(path: Path) -> sqlite3.Connection:
    """Open the file with all tables, made with mode 0600 when it is missing.

    The connection may be used from any thread, by one at a time. Transactions are begun by hand.

    Raises:
        NewerFile: see there.
        sqlite3.Error, OSError: the file cannot be used.
    """
    if path.exists():
        _refuse_newer(path)
    else:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
    )
    try:
        _configure(connection)
        _migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def set_aside(path: Path) -> Path:
    """Rename a damaged file and its log, in the place of an earlier damaged one.

    Raises `OSError`.
    """
    aside = path.with_name(path.name + _DAMAGED)
    for end in ("-wal", ""):
        found, wanted = Path(f"{path}{end}"), Path(f"{aside}{end}")
        if found.exists():
            found.replace(wanted)
        else:
            wanted.unlink(missing_ok=True)
    Path(f"{path}-shm").unlink(missing_ok=True)
    return aside


def _refuse_newer(path: Path) -> None:
    # A connection that may write would write its log into the file when it is closed.
    read_only = f"{path.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(read_only, timeout=BUSY_TIMEOUT_S, uri=True)) as connection:
        version = _version(connection)
    if version > len(MIGRATIONS):
        raise NewerFile(
            f"it was written by a newer smartlinkd (version {version} of the file, this one knows "
            f"{len(MIGRATIONS)}); install that one again, or move {path.name} away"
        )


def _configure(connection: sqlite3.Connection) -> None:
    connection.row_factory = sqlite3.Row
    # Before the first page is written: later it changes nothing.
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    # A power failure may lose the last entries, and damages nothing.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA secure_delete = FAST")
    connection.execute(f"PRAGMA journal_size_limit = {_WAL_KEPT_BYTES}")


def _migrate(connection: sqlite3.Connection) -> None:
    first = _version(connection)
    if first == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    for version, migration in enumerate(MIGRATIONS[first:], first + 1):
        for statement in migration:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {version}")
    connection.execute("COMMIT")


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)
