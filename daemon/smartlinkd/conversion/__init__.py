"""Conversion: turns links into affiliate links, with as little work at the portal as possible."""
