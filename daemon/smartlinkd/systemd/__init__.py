"""The daemon's side of the service manager (systemd). Without one, all of it does nothing.

`given.py` takes over what the manager gave at the start; `messenger.py` is how it is told things.
Of the descriptors, sockets go to the doors (`sockets.py`), and the cookie, which the manager keeps
across restarts, to the vault (`cookie_store.py`). `link.py` is the daemon's end of the connection:
what it has said of itself, and still has to say. `reporter.py` is the supervised part that keeps it
current, and `watchdog.py` decides whether the daemon as a whole is alive (`whereabouts.py` tells
where a part that is not has stopped).

systemd's own text: sd_notify(3), sd_listen_fds(3), systemd.service(5).
"""
