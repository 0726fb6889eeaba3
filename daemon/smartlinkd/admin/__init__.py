"""The owner's view of the running daemon, and the commands of the owner's shell."""
