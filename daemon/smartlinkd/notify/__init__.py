"""Notices to the owner, by a request to their address or by a program of theirs."""
