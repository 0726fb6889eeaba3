from pathlib import Path


def test_pid_one() -> None:
    assert Path("/proc/1/comm").read_text() == "systemd\n"
