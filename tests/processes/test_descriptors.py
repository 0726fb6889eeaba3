"""A daemon that is started by hand has as many descriptors as the service."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from smartlinkd.processes.descriptors import ENOUGH

UNIT = Path(__file__).parents[2] / "systemd" / "smartlinkd.service"
PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
from smartlinkd.processes.descriptors import allow_enough
allow_enough()
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "then"),
    [(256, 16384, ENOUGH), (256, 4096, 4096), (9000, 16384, 9000), (256, 256, 256)],
)
def test_the_soft_limit_becomes_enough_or_what_may_be_had(soft: int, hard: int, then: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != most < hard:
        pytest.skip(f"no more than {most} may be had here")
    words = [sys.executable, "-c", PROGRAM, str(soft), str(hard)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert done.stdout.split() == [str(then), str(hard)]


def test_it_is_what_the_service_has() -> None:
    limit = re.search(r"^LimitNOFILE=(\d+)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
    assert limit is not None
    assert int(limit[1]) == ENOUGH
