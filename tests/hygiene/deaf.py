"""A test that nothing but the end of its process can end, and two after it. They are no part of the
test run: `test_deadline.py` runs them.
"""

from __future__ import annotations

import logging
import signal
import time


def test_hangs_without_hearing_the_alarm() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(1000)


def test_passes_after_it() -> None:
    pass


def test_passes_with_half_a_character() -> None:
    logging.getLogger().warning("a lone surrogate: \ud800")
