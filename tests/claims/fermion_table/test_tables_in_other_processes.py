"""Tables and scans in forked and spawned processes, on local disks and on S3."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import fermion
from fermion import col
from fermion_table import Table
from fermion_table.scanning.scan import FileScan
from fermion_table.storage.cache import shared_cache
from tests.kit.processes import in_fork, spawned
from tests.kit.tables.s3_servers import BUCKET, moto

FILES, ROWS = 6, 3_000


def fill(place: str, **options: Any) -> Table:
    """A table of several files; the last commit deletes some rows."""
    schema = pa.schema({"a": pa.int64(), "b": pa.string()})
    table = Table.create(place, schema, **options)
    for number in range(FILES):
        first = number * ROWS
        values = range(first, first + ROWS)
        table.append({"a": values, "b": [str(each % 7) for each in values]})
    table.delete("a < 10")
    return table


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return fill(str(tmp_path_factory.mktemp("processes") / "t"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """moto in a process of its own, as children of this one have none of its threads."""
    pytest.importorskip("moto.server", reason="the group dev brings moto")
    with moto(tmp_path_factory.mktemp("moto")) as options:
        yield options


@pytest.fixture(scope="module")
def remote(server: dict[str, Any]) -> Table:
    return fill(f"s3://{BUCKET}/t", storage_options=server)


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Callable[..., Any]]:
    with spawned() as call:
        yield call


def rows(table: Table) -> list[int]:
    found: list[int] = table.scan(columns=["a"], threads=3).to_arrow()["a"].to_pylist()
    return found


EXPECTED = list(range(10, FILES * ROWS))

QUESTIONS: dict[str, Callable[[Table], Any]] = {
    "rows": rows,
    "filter": lambda table: table.scan(filter="b = '3'", threads=3).to_arrow(),
    "count": lambda table: table.scan(filter="b = '3'", threads=3).count(),
    "min_max": lambda table: table.scan().min_max("a"),
    "history": lambda table: len(table.history()),
    "verify": lambda table: table.verify(data=True).problems,
    "refresh": lambda table: table.refresh().id,
    "changes": lambda table: table.scan_changes(0).count(),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("place", ["table", "remote"])
def test_a_table_answers_after_a_fork(place: str, question: str, request: pytest.FixtureRequest):
    """Threads and connections were in use before; the child gives the parent's answer."""
    table: Table = request.getfixturevalue(place)
    assert rows(table) == EXPECTED
    expected = QUESTIONS[question](table)
    assert in_fork(lambda: QUESTIONS[question](table)) == expected
    assert QUESTIONS[question](table) == expected


def test_a_scan_that_a_parent_began_goes_on_in_the_child(table: Table):
    """Threads of the parent owe it results that the child never gets."""
    batches = table.scan(columns=["a"], threads=2).to_batches()
    first = next(batches)["a"].to_pylist()
    rest = in_fork(lambda: [each for batch in batches for each in batch["a"].to_pylist()])
    assert first + rest == EXPECTED
    assert [each for batch in batches for each in batch["a"].to_pylist()] == rest


def test_the_cache_of_metadata_is_free_in_the_child(table: Table):
    """Another thread holds its lock at the fork, and never lets go of it there."""
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with shared_cache._lock.get():
            held.set()
            go_on.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert in_fork(lambda: rows(Table.open(table.location))) == EXPECTED
    finally:
        go_on.set()
        thread.join()


def test_a_remote_table_and_file_reconnect_after_a_fork(remote: Table, server: dict[str, Any]):
    """A child appends, and reads a file that its parent opened; the parent goes on, too."""
    table = Table.create(f"s3://{BUCKET}/appended", remote.schema, storage_options=server)
    table.append({"a": [1], "b": ["x"]})
    (entry,) = table.scan().entries[0]
    url = table.store.locate(entry.path)
    with fermion.open(url, storage_options=server) as file:
        assert file.read(["a"]).num_rows == 1

        def child() -> tuple[int, list[dict[str, Any]], int]:
            found = file.read().to_pylist()
            table.append({"a": [2], "b": ["y"]})
            return os.getpid(), found, table.snapshot.id

        pid, found, snapshot_id = in_fork(child)
        assert pid != os.getpid()
        assert (found, snapshot_id) == ([{"a": 1, "b": "x"}], 2)
        assert file.take([0], columns=["b"]).to_pylist() == [{"b": "x"}]
    assert table.snapshot.id == 1
    assert table.refresh().id == 2
    assert rows(table) == [1, 2]


FILTERS: dict[str, Any] = {
    "text": "b = '3' and a > 100",
    "expression": (col("b") == "3") & col("a").is_null().__invert__(),
    "tuples": [("a", "in", [20, 30])],
    "arrow": pc.field("a") * 2 < 100,
    "none": None,
}


def _to_arrow(scan: Any) -> pa.Table:
    return scan.to_arrow()


def _snapshot_id(table: Table) -> int:
    return table.snapshot.id


@pytest.mark.parametrize("filter", FILTERS.values(), ids=FILTERS)
@pytest.mark.parametrize("used", [False, True], ids=["new", "used"])
def test_a_pickled_scan_gives_the_same_rows_elsewhere(
    table: Table, elsewhere: Callable[..., Any], filter: Any, used: bool
):
    """Before and after it was used here."""
    scan = table.scan(columns=["b", "a"], filter=filter, limit=500)
    expected = scan.to_arrow() if used else None
    found = elsewhere(_to_arrow, scan)
    assert found.equals(scan.to_arrow() if expected is None else expected)
    assert found.num_rows


def test_scans_of_changes_and_of_files_pickle(table: Table, elsewhere: Callable[..., Any]):
    """Those that no one asks `Table.scan` for."""
    changes = table.scan_changes(FILES - 1)
    files = FileScan(
        store=table.store,
        snapshot=table.snapshot,
        schemas=changes.schemas,
        table_schema=table.schema,
        files=tuple(table.scan().entries[0]),
    )
    for scan in (changes, files):
        assert elsewhere(_to_arrow, scan).equals(scan.to_arrow())


@pytest.mark.parametrize("place", ["local", "s3"])
def test_a_pickled_table_and_scan_keep_their_snapshot(
    place: str, tmp_path: Path, elsewhere: Callable[..., Any], request: pytest.FixtureRequest
):
    """Another commit follows before they are loaded."""
    options: dict[str, Any] = {}
    where = str(tmp_path / "t")
    if place == "s3":
        options = {"storage_options": request.getfixturevalue("server")}
        where = f"s3://{BUCKET}/pinned"
    table = Table.create(where, pa.schema({"a": pa.int64()}), **options)
    table.append({"a": [1]})
    old = pickle.loads(pickle.dumps(table))
    scan = table.scan()
    table.append({"a": [2]})
    assert elsewhere(rows, old) == [1]
    assert elsewhere(_snapshot_id, old) == 1
    assert elsewhere(_to_arrow, scan)["a"].to_pylist() == [1]
    assert old.refresh().id == 2


def test_no_repr_of_a_table_shows_credentials(server: dict[str, Any], remote: Table):
    """Neither those of its options nor those of its URL."""
    options = {**server, "secret": "hunter2", "client_kwargs": dict(server["client_kwargs"])}
    table = Table.open(f"s3://{BUCKET}/t", storage_options=options)
    scan = table.scan(filter="a > 3")
    things = [table, table.store, scan, scan.reader, scan.reader.request, scan.plan()]
    things += [scan.to_dataset(), table.scan_changes(0), table.writer(), table.snapshot]
    assert not [each for each in things if "hunter2" in f"{each!r}{each}"]


@pytest.mark.long
def test_no_message_of_a_table_shows_credentials_of_its_url():
    """The query of the table's URL, which may hold a signature."""
    url = f"memory://credentials/{datetime.now(UTC).timestamp()}?sig=hunter2"
    table = Table.create(url, pa.schema({"a": pa.int64()}))
    shown = [repr(table), repr(table.store), repr(table.scan()), table.scan().explain()]
    for mistake in (
        lambda: table.scan(columns=["b"]),
        lambda: table.scan(snapshot_id=7),
        lambda: table.scan(tag="x"),
        lambda: Table.create(url, pa.schema({"a": pa.int64()})),
        lambda: Table.open(url + "x"),
    ):
        with pytest.raises(fermion.FermionError) as error:
            mistake()
        shown += [str(error.value), repr(error.value)]
    assert not [each for each in shown if "hunter2" in each]
