"""The programs that the daemon is measured beside, as a good engineer would write them."""
