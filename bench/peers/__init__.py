"""What the daemon is measured beside, as a good engineer would write it."""
