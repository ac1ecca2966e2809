"""Locks that neither a fork nor an interrupt leaves held."""

import dis
import sys
from types import FrameType
from typing import Any

from fermion.forks import Lock

CHECKED = ("CALL", "RESUME", "JUMP_BACKWARD")
"""After instructions of these names Python looks whether there was an interrupt."""


def test_an_interrupt_wherever_python_looks_for_one_leaves_a_lock_free():
    """A trace function raises as Ctrl-C does, at each of these places once."""
    places = 0
    while _is_interrupted_at(places):
        places += 1
    assert places >= 3  # at least after the calls in `_take`


def _is_interrupted_at(place: int) -> bool:
    """Take a lock and raise at a place; False if there are fewer places."""
    lock = Lock()
    left = place
    last: dict[FrameType, str] = {}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            if last.get(frame, "").startswith(CHECKED):
                left -= 1
            if left < 0:
                raise KeyboardInterrupt
            last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        return trace

    before, is_interrupted = sys.gettrace(), False
    sys.settrace(trace)
    try:
        _take(lock)
    except KeyboardInterrupt:
        is_interrupted = True
    finally:
        sys.settrace(before)
    assert not lock.get().locked(), f"held after an interrupt at place {place}"
    return is_interrupted


def _take(lock: Lock) -> None:
    with lock.get():
        id(lock)
