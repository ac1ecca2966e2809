"""Open files in forked and spawned processes, and after they were closed."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion.io.read_ahead import read_ahead
from tests.kit.processes import in_fork, spawned

ROWS = 40_000
COLUMNS = 4


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in batch mode of two stripes, big enough for threads to decode it."""
    found = tmp_path_factory.mktemp("processes") / "a.fermion"
    generator = np.random.default_rng(0)
    columns: dict[str, Any] = {"id": np.arange(ROWS)}
    columns |= {f"c{n}": generator.integers(0, 1 << 40, ROWS) for n in range(COLUMNS)}
    columns |= {"text": [str(n % 977) for n in range(ROWS)]}
    table = pa.table(columns)
    options = fermion.WriteOptions(stripe_rows=ROWS // 2)
    with fermion.Writer(found, table.schema, options=options) as writer:
        for batch_id in range(4):
            writer.append_batch(batch_id, table.slice(batch_id * ROWS // 4, ROWS // 4))
    return found


QUESTIONS: dict[str, Callable[[fermion.FermionFile], Any]] = {
    "read": lambda file: file.read(),
    "filter": lambda file: file.read(filter="c0 > 500000000000"),
    "iter_batches": lambda file: pa.Table.from_batches(file.iter_batches(batch_size=999)),
    "filtered iter_batches": lambda file: list(file.iter_batches(["id"], filter="text = '7'")),
    "take": lambda file: file.take(np.arange(0, ROWS, 7)),
    "count": lambda file: file.count("c1 > 500000000000"),
    "find": lambda file: file.find("c1 > 500000000000").to_indices().tolist(),
    "prune": lambda file: file.prune("c1 > 500000000000"),
    "verify": lambda file: file.verify().problems,
    "read_batch": lambda file: file.read_batch(2),
    "batches": lambda file: [each.tolist() for each in file.batches()],
    "column": lambda file: file.column("c0").name,
    "stream": lambda file: pa.table(file),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_file_answers_after_a_fork(path: Path, question: str):
    """Threads run before; the child gives the parent's answer, within a time limit."""
    options = fermion.ReadOptions(threads=4)
    with fermion.open(path, options=options) as file:
        file.read()
        expected = QUESTIONS[question](file)
        assert in_fork(lambda: QUESTIONS[question](file)) == expected
        assert QUESTIONS[question](file) == expected


def test_a_lock_that_another_thread_held_at_the_fork_is_free_in_the_child(path: Path):
    """A thread stops in the middle of loading a column; another process loads and reads it."""
    with fermion.open(path) as file:
        held, go_on = threading.Event(), threading.Event()
        source = file.index.source
        fetch = source._fetch

        def slow(offset: int, length: int) -> memoryview:
            held.set()
            go_on.wait()
            return fetch(offset, length)

        source._held = memoryview(b""), 0
        source._fetch = slow  # type: ignore[method-assign]
        thread = threading.Thread(target=lambda: file.index.blocks([0]))
        thread.start()
        held.wait()
        try:
            parent = os.getpid()

            def child() -> pa.Table:
                assert os.getpid() != parent
                source._fetch = fetch  # type: ignore[method-assign]
                return file.read(["id"])

            assert in_fork(child)["id"].to_pylist() == list(range(ROWS))
        finally:
            go_on.set()
            thread.join()


def test_attributes_that_another_thread_computes_at_the_fork_are_computed_in_the_child(path: Path):
    """Before Python 3.12 `functools.cached_property` holds a lock for all instances meanwhile."""
    with fermion.open(path) as file, fermion.open(path) as other:
        held, go_on = threading.Event(), threading.Event()
        section = file.index._section

        def slow(kind: Any) -> Any:
            held.set()
            go_on.wait()
            return section(kind)

        file.index._section = slow  # type: ignore[method-assign]
        thread = threading.Thread(target=lambda: file.index.stripe_rows)
        thread.start()
        held.wait()
        try:
            assert in_fork(lambda: other.stripe_rows) == (ROWS // 2, ROWS // 2)
        finally:
            go_on.set()
            thread.join()


def test_an_iterator_of_the_parent_goes_on_in_the_child(path: Path):
    """The rest of the batches, in both processes."""
    with fermion.open(path, options=fermion.ReadOptions(threads=4)) as file:
        batches = file.iter_batches(["id"], batch_size=1_000)
        first = next(batches)
        rest = in_fork(lambda: [*batches])
        assert pa.Table.from_batches([first, *rest])["id"].to_pylist() == list(range(ROWS))
        assert list(batches) == rest


def test_results_that_threads_of_the_parent_owe_are_computed_by_the_child():
    """Three tasks wait for an event that only the parent's threads would ever see."""
    go_on = threading.Event()
    parent = os.getpid()

    def task(number: int) -> int:
        if number and os.getpid() == parent:
            go_on.wait()
        return number

    results = read_ahead((lambda number=number: task(number) for number in range(9)), 4)
    assert next(results) == 0
    assert in_fork(lambda: list(results)) == list(range(1, 9))
    go_on.set()
    assert list(results) == list(range(1, 9))


def test_many_forked_workers_read_one_open_file(path: Path):
    """As data loaders do: a pool of forked processes takes rows of a file of the parent."""
    with fermion.open(path) as file:
        file.read()
        _shared.append(file)
        try:
            with multiprocessing.get_context("fork").Pool(2) as pool:
                parts = pool.map_async(_take_of_shared, range(0, ROWS, 1_000)).get(60)
        finally:
            _shared.clear()
    assert [row for part in parts for row in part] == list(range(0, ROWS, 100))


_shared: list[fermion.FermionFile] = []


def _take_of_shared(start: int) -> list[int]:
    return _take(_shared[0], start)


def _take(file: fermion.FermionFile, start: int) -> list[int]:
    found: list[int] = file.take(range(start, start + 1_000, 100), columns=["id"])["id"].to_pylist()
    return found


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Callable[..., Any]]:
    """A spawned process."""
    with spawned() as call:
        yield call


def _change_directory(path: str) -> None:
    os.chdir(path)


def _options(file: fermion.FermionFile) -> fermion.ReadOptions:
    return file.options


def test_a_pickled_file_reads_the_same_rows_in_another_process(
    path: Path, elsewhere, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """By path and options; a relative path is that of the process that pickled."""
    monkeypatch.chdir(path.parent)
    elsewhere(_change_directory, str(tmp_path))
    options = fermion.ReadOptions(threads=1, keep_dictionaries=True)
    for name in (path, path.name, f"file://{path}"):
        with fermion.open(name, options=options) as file:
            assert elsewhere(_take, file, 3_000) == _take(file, 3_000)
            assert elsewhere(_options, file) == options


def test_a_pickled_remote_file_goes_by_its_url_and_storage_options():
    """Loaded here, as memory is no other process's."""
    fermion.write_table(pa.table({"a": [1, 2]}), "memory://processes/a.fermion")
    file = fermion.open("memory://processes/a.fermion", storage_options={})
    with file, pickle.loads(pickle.dumps(file)) as loaded:
        assert loaded.read() == file.read()


def test_a_file_opened_from_bytes_is_not_pickled(path: Path):
    """A type error says why."""
    with fermion.open(path.read_bytes()) as file, pytest.raises(TypeError, match="from bytes"):
        pickle.dumps(file)


@pytest.mark.parametrize("question", [*QUESTIONS, "pickle", "enter"])
@pytest.mark.parametrize("kind", ["path", "bytes", "url"])
def test_a_closed_file_says_that_it_is_closed(path: Path, question: str, kind: str):
    """Every method, whatever was read before; a second close does nothing."""
    ask = {**QUESTIONS, "pickle": pickle.dumps, "enter": lambda file: file.__enter__()}[question]
    source: Any = {"path": path, "bytes": path.read_bytes(), "url": "memory://closed.fermion"}[kind]
    if kind == "url":
        fermion.write_table(pa.table({"a": [1]}), source)
    file = fermion.open(source)
    file.close()
    file.close()
    with pytest.raises(fermion.InvalidArgumentError, match=r"(fermion|<buffer>): file is closed"):
        ask(file)
    assert ", closed>" in repr(file)


def test_an_iterator_of_a_closed_file_says_so(path: Path):
    """At its next window."""
    file = fermion.open(path)
    batches = file.iter_batches()
    next(batches)
    file.close()
    with pytest.raises(fermion.InvalidArgumentError, match="file is closed"):
        list(batches)


def test_a_writer_stays_with_its_process(tmp_path: Path):
    """A forked child is told so, also at the end of ``with``; the parent's file loses nothing."""
    place, data = tmp_path / "a.fermion", pa.table({f"c{n}": range(90_000) for n in range(4)})
    options = fermion.WriteOptions(threads=4, stripe_rows=45_000)
    with fermion.Writer(place, data.schema, options=options) as writer:
        writer.write(data)

        def child() -> None:
            with writer:
                writer.write(data)

        with pytest.raises(fermion.InvalidArgumentError, match="is that of another process"):
            in_fork(child)
        with pytest.raises(fermion.InvalidArgumentError, match="is that of another process"):
            in_fork(writer.close)
        writer.write(data)
    assert fermion.read_table(place).equals(pa.concat_tables([data, data]))
