"""The history: every converted link, in an SQLite file of its own."""
