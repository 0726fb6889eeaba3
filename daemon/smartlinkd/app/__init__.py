"""The process as a whole: its parts, their supervision tree, the listening sockets, the signals."""
