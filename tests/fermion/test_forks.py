"""Locks that neither a fork nor an interrupt leaves held; threads that go from file to file."""

import dis
import sys
import threading
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import fermion
from fermion import forks
from fermion.forks import Lock, ThreadPool

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


@pytest.fixture
def none_given_back(monkeypatch):
    monkeypatch.setattr(forks, "_given_back", [])


def test_threads_of_a_closed_file_read_the_next(tmp_path, monkeypatch, none_given_back):
    path, made = tmp_path / "x.fermion", []
    fermion.write_table(pa.table({"a": range(10)}), path)
    start = forks.executor
    monkeypatch.setattr(forks, "executor", lambda threads: made.append(threads) or start(threads))
    options = fermion.ReadOptions(threads=3)
    pools = []
    for _ in range(3):
        with fermion.open(path, options=options) as file:
            pools.append(file._executor)
            assert file._executor.submit(int, "7").result() == 7
        file.close()  # a second time: the threads may be another file's by now
    assert len(set(map(id, pools))) == 1
    assert made == [3]
    with fermion.open(path, options=options) as one, fermion.open(path, options=options) as other:
        assert one._executor is not other._executor
    assert len(forks._given_back) == 1


def test_a_pool_whose_thread_is_at_work_is_not_lent_again(none_given_back):
    pool, go = ThreadPool.lent(2), threading.Event()
    waits = pool.submit(go.wait, 60)
    while not pool._running:
        pass
    pool.give_back()
    assert forks._given_back == []
    go.set()
    assert waits.result()
    with pytest.raises(RuntimeError, match="after shutdown"):
        pool.submit(int)


def test_a_pool_of_another_size_is_not_lent(none_given_back):
    ThreadPool.lent(2).give_back()
    assert ThreadPool.lent(3).threads == 3
    assert forks._given_back == []
