"""Who is whose child, and who is there."""

from __future__ import annotations

from pathlib import Path


def alive(pid: int) -> bool:
    """Whether there is such a process, zombies included."""
    return Path(f"/proc/{pid}").exists()


def running(pid: int) -> bool:
    """As `alive`, but for a zombie that is another process's to reap."""
    try:
        return _stat(pid)[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def parent(pid: int) -> int:
    return int(_stat(pid)[1])


def _stat(pid: int) -> list[str]:
    """From its state on; proc(5)."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    return text.rpartition(")")[2].split()
