"""One limit of time for all requests of a call, told by a clock that only the storage moves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import fsspec
import msgspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem

import fermion
from fermion.deadline import TIMEOUT_S, NoTimeLeft, carried, deadline, time_left
from fermion.forks import ThreadPool
from fermion.io.read_ahead import read_ahead
from fermion.io.remote import ask, connect
from fermion_table import CommitStateUnknown, StorageAccess, Table
from fermion_table.commit import next_snapshot
from fermion_table.commit.create_if_absent import create_snapshot_file
from fermion_table.metadata import history
from fermion_table.metadata.history import latest
from fermion_table.options import CommitOptions
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.fsspec import FsspecStore
from fermion_table.storage.location import refuse_nested
from fermion_table.storage.paths import MAIN, snapshot_path
from fermion_table.storage.store import CreateResult

LIMIT_S = 10.0
ACCESS = StorageAccess(timeout_s=LIMIT_S)


class Clock:
    """Stands for the module `time`."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class SlowFileSystem(MemoryFileSystem):  # type: ignore[misc]
    """The files of ``memory://``; each request takes some time and gives up at the deadline."""

    protocol = "slow"
    cachable = False
    clock = Clock()
    seconds = 0.0
    requests: ClassVar[list[str]] = []
    spoiled: ClassVar[list[str]] = []
    """Ends of names whose next reply has a wrong byte."""
    loses_replies = False

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return super()._strip_protocol(path.removeprefix("slow://"))

    def _wait(self, what: str) -> None:
        self.requests.append(what)
        left = time_left(TIMEOUT_S)
        type(self).clock.now += min(self.seconds, left)
        if self.seconds > left:
            raise TimeoutError

    def cat_file(self, path: str, *arguments: Any, **further: Any) -> bytes:
        self._wait(f"read {path}")
        data = bytearray(super().cat_file(path, *arguments, **further))
        for ending in self.spoiled:
            if path.endswith(ending):
                self.spoiled.remove(ending)
                data[len(data) // 2] ^= 0x40
        return bytes(data)

    def info(self, path: str, **further: Any) -> Any:
        self._wait(f"info {path}")
        return super().info(path, **further)

    def ls(self, path: str, **further: Any) -> Any:
        self._wait(f"list {path}")
        return super().ls(path, **further)

    def find(self, path: str, **further: Any) -> Any:
        self._wait(f"find {path}")
        return super().find(path, **further)

    def pipe_file(self, path: str, value: bytes, **further: Any) -> None:
        if self.loses_replies:
            super().pipe_file(path, value, **further)
        self._wait(f"write {path}")
        super().pipe_file(path, value, **further)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[SlowFileSystem]]:
    """Answers at once, and counts from the moment on when a test sets its ``seconds``."""
    clock = Clock()
    monkeypatch.setattr("fermion.deadline.time", clock)
    monkeypatch.setattr(next_snapshot, "INLINE_ENTRIES_MAX", 1)
    monkeypatch.setattr(next_snapshot, "MERGE_FANOUT", 100)
    for name, value in (
        ("clock", clock),
        ("seconds", 0.0),
        ("requests", []),
        ("spoiled", []),
        ("loses_replies", False),
    ):
        monkeypatch.setattr(SlowFileSystem, name, value)
    fsspec.register_implementation("slow", SlowFileSystem, clobber=True)
    yield SlowFileSystem
    MemoryFileSystem.store.clear()
    MemoryFileSystem.pseudo_dirs[:] = [""]


def made(files: int = 2) -> Table:
    table = Table.create("memory://t", pa.schema([("a", pa.int64())]))
    for value in range(files):
        table.append({"a": [value]})
    return table


def start(slow: type[SlowFileSystem], seconds: float) -> None:
    shared_cache.clear()
    slow.requests.clear()
    slow.clock.now, slow.seconds = 0.0, seconds


def opened() -> Table:
    return Table.open("slow://t", access=ACCESS)


def data_file() -> str:
    (found, *_) = (name for name in MemoryFileSystem.store if name.endswith(".fermion"))
    return f"slow:/{found}"


def open_file() -> fermion.FermionFile:
    return fermion.open(data_file(), options=fermion.ReadOptions(timeout_s=LIMIT_S))


CALLS: dict[str, Callable[[Table], Any]] = {
    "open": lambda _: opened(),
    "open at a version": lambda _: Table.open("slow://t", version="main~1", access=ACCESS),
    "latest": lambda table: latest(table.store),
    "refresh": lambda table: table.refresh(),
    "plan": lambda table: table.scan().plan(),
    "splits": lambda table: list(table.scan().plan().splits),
    "a file": lambda _: open_file(),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("seconds", [LIMIT_S + 1, 0.7 * LIMIT_S])
def test_a_call_ends_in_its_time_however_many_requests_it_sends(
    slow: type[SlowFileSystem], call: str, seconds: float
) -> None:
    """A silent server is asked once; of one that takes most of the time the second is cut off."""
    made(files=6)
    table = opened()
    start(slow, seconds)
    with pytest.raises(fermion.StorageTimeout):
        CALLS[call](table)
    assert slow.clock.now == LIMIT_S
    assert len(slow.requests) == (1 if seconds > LIMIT_S else 2)
    assert time_left() == float("inf")  # the next call has its own


@pytest.mark.parametrize("seconds", [LIMIT_S + 1, 0.7 * LIMIT_S])
def test_the_search_for_other_tables_ends_in_its_time(
    slow: type[SlowFileSystem], seconds: float
) -> None:
    """What does not answer counts as empty, as what can't be seen does."""
    made()
    start(slow, seconds)
    refuse_nested(FsspecStore("slow://a/b/c", access=ACCESS))
    assert slow.clock.now == LIMIT_S
    assert len(slow.requests) == (1 if seconds > LIMIT_S else 2)


def test_looking_for_a_table_on_a_silent_server_sends_one_request(
    slow: type[SlowFileSystem],
) -> None:
    for call in (
        lambda: Table.exists("slow://t"),
        lambda: Table.create("slow://t", pa.schema([("a", pa.int64())])),
    ):
        start(slow, TIMEOUT_S + 1)
        with pytest.raises(fermion.StorageTimeout):
            call()
        assert slow.clock.now == TIMEOUT_S
        assert len(slow.requests) == 1


def test_reading_a_whole_table_may_take_longer_than_one_request(
    slow: type[SlowFileSystem],
) -> None:
    """Every request takes a twentieth of the limit, and all of them more than the limit."""
    made(files=12)
    table = opened()
    start(slow, LIMIT_S / 20)
    found = table.scan(threads=1).to_arrow()
    assert sorted(found["a"].to_pylist()) == list(range(12))
    assert slow.clock.now > 1.5 * LIMIT_S


@pytest.mark.parametrize("part", ["snapshot", "data"])
def test_what_is_read_again_has_no_time_of_its_own(slow: type[SlowFileSystem], part: str) -> None:
    """The first reply has a wrong byte after most of the time: the second is cut off."""
    made()
    if part == "snapshot":
        store, path = opened().store, snapshot_path(1)
        read: Callable[[], Any] = lambda: history.load_snapshot(store, 1)  # noqa: E731
    else:
        path = data_file()
        file = open_file()
        source = file._index.source

        def read() -> Any:
            return source.read_checked([(0, 8)], refuse)

        def refuse(_: Any) -> Any:
            raise fermion.ChecksumError("wrong")

        source.hold(memoryview(b""), 0)
    start(slow, 0.7 * LIMIT_S)
    slow.spoiled.append(path)
    with pytest.raises(fermion.StorageTimeout):
        read()
    assert slow.clock.now == LIMIT_S
    assert len(slow.requests) == 2


def next_of(table: Table) -> Any:
    known = table.snapshot
    return msgspec.structs.replace(known, id=known.id + 1, uuid="0" * 32, parent=known.reference)


def writable() -> Table:
    made()
    table = opened()
    table.store._trusted = True  # type: ignore[attr-defined]
    return table


def test_a_commit_whose_reply_is_lost_has_time_to_find_out(slow: type[SlowFileSystem]) -> None:
    """The slot is created, and the reply does not come in all of its time: it is read back."""
    table = writable()
    start(slow, LIMIT_S + 1)
    slow.loses_replies = True
    snapshot, read = next_of(table), SlowFileSystem.cat_file

    def recovered(self: SlowFileSystem, *arguments: Any, **further: Any) -> bytes:
        slow.seconds = 1.0
        return read(self, *arguments, **further)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SlowFileSystem, "cat_file", recovered)
        creation = create_snapshot_file(table.store, snapshot, MAIN, CommitOptions())
    assert creation.stored is not None
    assert creation.stored.uuid == snapshot.uuid
    assert slow.clock.now == LIMIT_S + 1


def test_an_unknown_outcome_is_looked_up_for_one_limit(slow: type[SlowFileSystem]) -> None:
    """One request creates, one reads back; then the time is over, and nothing more is sent."""
    table = writable()
    start(slow, LIMIT_S + 1)
    with pytest.raises(CommitStateUnknown):
        create_snapshot_file(table.store, next_of(table), MAIN, CommitOptions())
    assert slow.clock.now == 2 * LIMIT_S
    assert [each.split()[0] for each in slow.requests] == ["write", "read"]


def test_what_was_not_sent_has_created_nothing(slow: type[SlowFileSystem]) -> None:
    """Without time for it a create is refused, rather than unknown."""
    table = writable()
    start(slow, 1.0)
    with deadline(2.0):
        slow.clock.now = 3.0
        with pytest.raises(fermion.StorageTimeout, match="not sent"):
            table.store.create_if_absent("snapshot/9.json", b"{}")
    assert not slow.requests
    result = table.store.create_if_absent("snapshot/9.json", b"{}")
    assert result is CreateResult.CREATED


def test_of_two_deadlines_the_earlier_counts() -> None:
    clock = Clock()
    with deadline(5, clock.monotonic) as outer:
        with deadline(60, clock.monotonic) as inner:
            assert inner == outer == 5
        with deadline(2, clock.monotonic) as inner:
            assert inner == 2
        with pytest.raises(KeyError), deadline(1, clock.monotonic):
            raise KeyError
        assert ask(Told(clock), "told", clock=clock.monotonic) == 5
        clock.now = 5.0
        with pytest.raises(NoTimeLeft):
            ask(Told(clock), "told", clock=clock.monotonic)
    assert time_left(7) == 7
    assert ask(Told(clock), "told", timeout_s=3, clock=clock.monotonic) == 3


class Told:
    """An asynchronous file system, as `ask` sees it: gives back the time that it is given."""

    protocol = "told"
    async_impl = True

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def told(self, timeout: float) -> float:
        return timeout


def test_threads_of_a_pool_keep_to_the_deadline_of_who_asked_them() -> None:
    """Within the block, and not after it, though the threads are the same."""
    pool = ThreadPool(1)

    def left(_: Any = None) -> tuple[float, int]:
        return time_left(), threading.get_ident()

    with deadline(100):
        found = [pool.submit(left).result(), *pool.map(left, [1])]
        found += read_ahead([left] * 3, 2)
        run = carried(left)
    assert all(each <= 100 for each, _ in found)
    assert run()[0] <= 100
    later = [pool.submit(left).result(), *pool.map(left, [1])]
    assert [each for each, _ in later] == [float("inf")] * 2
    assert later[0][1] == found[0][1] != threading.get_ident()
    pool.shutdown()


def test_a_request_to_hdfs_takes_what_is_left_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("requests")
    clock = Clock()
    monkeypatch.setattr("fermion.deadline.time", clock)
    filesystem, _ = connect("webhdfs://127.0.0.1:1/t")
    sent: list[float] = []

    def request(*_: Any, timeout: float, **__: Any) -> Any:
        sent.append(timeout)
        clock.now += 4
        raise OSError

    monkeypatch.setattr(filesystem.session.request, "_request", request)
    store = FsspecStore("webhdfs://127.0.0.1:1/t", access=ACCESS)
    with pytest.raises(fermion.StorageError):
        store.read("snapshot/LATEST")
    with pytest.raises(fermion.StorageError), deadline(3):
        store.read("snapshot/LATEST")
    with deadline(10):
        for _ in range(3):
            with pytest.raises(fermion.StorageError):
                store.read("snapshot/LATEST")
        with pytest.raises(TimeoutError):  # within one call of the client, too
            filesystem.session.request("GET", "http://127.0.0.1:1/")
    assert sent == [LIMIT_S, 3, 10, 6, 2]
