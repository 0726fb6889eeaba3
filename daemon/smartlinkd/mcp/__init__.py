"""MCP (modelcontextprotocol.io): the daemon's tools for language models, over HTTP and stdio.

A tool is a client of the public API, with the key of its caller. So it can do what the key may do.
"""
