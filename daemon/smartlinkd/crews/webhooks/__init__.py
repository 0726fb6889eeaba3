"""Webhooks of executions: the calls and their bodies, and the dispatcher that makes them."""
