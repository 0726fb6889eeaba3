"""What the commands do: all but `sandbox`, which is a part of its own."""
