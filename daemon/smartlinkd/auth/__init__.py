"""Login, sessions, API keys and the second factor."""
