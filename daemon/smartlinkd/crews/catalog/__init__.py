"""The crews of a configuration, and the checks of what they need on the disk."""
