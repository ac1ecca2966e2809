"""What commands share: how a signal stops them."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from fermion_table.cli.arguments import stopped_by


@pytest.mark.timeout(60)
def test_a_signal_stops_a_command_that_begins_to_wait_just_then() -> None:
    """The main thread has the event's lock while the handler runs: `Event.wait` takes it first."""
    assert threading.current_thread() is threading.main_thread()
    with stopped_by(signal.SIGUSR1) as stop:
        with stop._cond:  # type: ignore[attr-defined]
            os.kill(os.getpid(), signal.SIGUSR1)
        assert stop.wait(30)
