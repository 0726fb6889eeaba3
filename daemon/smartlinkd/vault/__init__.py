"""The one affiliate cookie: parsed strictly, kept in memory, never written to a disk."""
