"""smartlinkd: a marketplace account's affiliate links, made in the owner's own session."""

__version__ = "0.2.0"
