"""The history's tables.

`texts` holds what is searched, and `search` is the index over it (FTS5's external content). `texts`
is apart from `entries`, because a word of one or two signs is looked for in each row, and its rows
are short.
"""

from __future__ import annotations

from typing import Final

from smartlinkd.store.sqlite import Schema

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

# A power failure may lose the last entries, and damages nothing.
SCHEMA: Final = Schema(
    migrations=(_VERSION_1,), synchronous="NORMAL", wal_bytes=4 * 1024 * 1024, keeps_copy=False
)
