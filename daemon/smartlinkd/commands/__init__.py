"""The commands of the program, but for `sandbox`, which is a room of its own."""
