"""`sudo ./run install`: the daemon as a service of systemd, and its upgrades.

The new version's own program installs it (`__main__.py`), from an environment that `run` has made
below /opt/smartlinkd. See docs/decisions/034-installation.md.
"""
