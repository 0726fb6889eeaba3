"""The service manager, systemd. Without it all of this does nothing.

`environment.py` reads what systemd passed at the start, `manager.py` reports the daemon's state to
it. Its own documentation: sd_notify(3), sd_listen_fds(3), systemd.service(5).
"""
