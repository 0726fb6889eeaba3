"""The work of the commands that are small enough to need no part of the daemon of their own."""
