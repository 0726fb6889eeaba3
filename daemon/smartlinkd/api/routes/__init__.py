"""The operations of the HTTP API, a module for each group (docs/api.md)."""
