"""Notices to the owner: by a request to their address, a program of theirs, or Apprise."""
