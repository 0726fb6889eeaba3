"""Data of the page's *System* view: the last log records, and a day of measurements."""
