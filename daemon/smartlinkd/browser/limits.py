"""The bounds of the browser's room. Facts of the protocol, and what a page may take, are beside the
code that uses them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BrowserLimits:
    """Bounds of the room: numbers, rates and times in seconds.

    Attributes:
        concurrent_jobs: jobs at the same time, of all accounts.
        min_queue: jobs that may wait, however short the configured queue is. An account whose links
            are made calls for a submit and three readings at once.
        first_steps_s: for the first calls to a new browser, together.
        poll_interval_s: between two looks at a browser that is ready.
        failures_before_alarm: ends in a row, each before a healthy time was over. With the waits
            between them (`Backoff`) that is six seconds at least.
        probe_interval_s: between two scripts on the probe page.
        probe_timeout_s: for one such script. It takes a millisecond; a busy machine may need more.
        probe_failures: failed probes in a row after which the browser counts as unresponsive.
        exit_wait_s: for the process to end after its websocket has closed. Its exit status says
            more than the closed socket.
        sandbox_timeout_s: for new renderers to be confined. It takes milliseconds.
        measure_interval_s: between two measurements of the browser's memory.
        concurrent_starts: contexts and tabs that are created at the same time. A tab starts a
            process; a dozen at once stop a small machine, and the browser, for seconds.
        trusted_for_s: after its last use a tab is taken for well, without a probe.
        tab_probe_timeout_s: for the probe of a tab that was idle.
        tab_failures: tabs in a row that did not open before the browser is replaced. The probe page
            is open already, and says nothing of new tabs.
        tab_failure_s: what a tab takes to open before it counts as one of these. It takes a tenth
            of a second, and seconds on a busy machine.
        dispose_timeout_s: for the browser to dispose of a context. It takes milliseconds.
    """

    concurrent_jobs: int = 16
    min_queue: int = 32
    first_steps_s: float = 45.0
    poll_interval_s: float = 5.0
    failures_before_alarm: int = 5
    probe_interval_s: float = 1.0
    probe_timeout_s: float = 2.0
    probe_failures: int = 2
    exit_wait_s: float = 0.5
    sandbox_timeout_s: float = 5.0
    measure_interval_s: float = 30.0
    concurrent_starts: int = 2
    trusted_for_s: float = 30.0
    tab_probe_timeout_s: float = 2.0
    tab_failures: int = 2
    tab_failure_s: float = 5.0
    dispose_timeout_s: float = 2.0

    @property
    def unresponsive_after_s(self) -> float:
        """The time within which the probe page finds that a browser is unresponsive."""
        return self.probe_failures * (self.probe_interval_s + self.probe_timeout_s)
