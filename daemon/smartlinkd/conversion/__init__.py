"""The conversion service: turns requests into as little portal work as will do."""
