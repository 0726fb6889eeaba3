"""The browser: its process, its protocol, its tabs. Knows nothing of any marketplace."""
