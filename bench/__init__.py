"""The daemon's speed, measured beside what a user would take instead: `./run bench`."""
