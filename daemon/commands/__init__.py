"""What the commands do: all but `serve` and `sandbox`, which are parts of their own."""
