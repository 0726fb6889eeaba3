"""Webhooks: whom an execution calls about what happens in it, at least once and in order."""
