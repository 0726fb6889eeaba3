"""The conversion desk: turns requests into as little portal work as will do."""
