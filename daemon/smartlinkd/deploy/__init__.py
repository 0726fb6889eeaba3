"""`sudo ./run install`: the daemon as a service of systemd's, for months.

The program that does it is that of the new version: `run` makes an environment for it below
/opt/smartlinkd and starts it there (`__main__.py`). Nothing of a version that runs is touched until
the new one is known to be whole and to understand the configuration; then one link is replaced and
the service restarted, and if it does not come up, the link is put back (`service.py`). So it may be
interrupted anywhere and run again.

What belongs to the owner is only made where it is missing (`configuration.py`). What is ours is
below /opt/smartlinkd and /usr/local, and is replaced each time (where all is: `service_paths.py`).
"""
