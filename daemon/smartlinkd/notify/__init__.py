"""Telling the owner of what needs them: by a request to their address, by a program of theirs."""
