"""What the page's *System* view shows: the last log records, and a day of measurements."""
