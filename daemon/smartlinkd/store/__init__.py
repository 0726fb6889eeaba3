"""Executions, their events and the outbox of webhook calls, in one SQLite file.

The file is `journal.sqlite3` in the state directory, and its actor is called `journal` in the log.
"""
