"""Secondary indexes: scans with them give what scans without them give, whatever happens."""

from __future__ import annotations

import datetime as dt
import logging
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion.predicate import RowRanges
from fermion_table import Table, lit
from fermion_table.commit import commit as committing
from fermion_table.metadata.manifest import index_paths_of
from fermion_table.metadata.manifest_store import live_entries
from fermion_table.reading import index_files
from fermion_table.scanning import scan as scan_module
from fermion_table.storage.cache import shared_cache
from fermion_table.storage.local import LocalStore
from fermion_table.storage.paths import index_path, is_made_by_writers
from fermion_table.writing import index_writer
from tests.kit.stores import Crash, CrashingStore

SMALL = {"index.rows_min": "1"}
SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.string()), ("s", pa.struct([("x", pa.float64())]))])
NAN = float("nan")


@pytest.fixture(autouse=True)
def small_blocks() -> Iterator[None]:
    """Blocks of four values; an index is used whatever it leaves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_writer, "BLOCK_ROWS", 4)
        patch.setattr(index_writer, "BLOCKS_AT_ONCE", 2)
        patch.setattr(index_writer, "BLOOM_ROWS", 8)
        patch.setattr(index_files, "BLOCK_ROWS", 4)
        patch.setattr(index_files, "SHARE_MAX", 1)
        patch.setattr(index_files, "BLOCKS_SHARE_MAX", 1)
        yield


def rows(dice: random.Random, count: int) -> list[dict[str, Any]]:
    texts = [None, "", "a", "https://example.org/a", "https://example.org/b", "\u00e9"]
    numbers = [None, NAN, 0.0, -0.0, 1.5, -2.0, float("inf")]
    return [
        {"k": dice.randrange(12), "t": dice.choice(texts), "s": {"x": dice.choice(numbers)}}
        if dice.random() > 0.1
        else {"k": None, "t": None, "s": None}
        for _ in range(count)
    ]


FILTERS = [
    "k = 3",
    "k IN (1, 5, 100, NULL)",
    "k BETWEEN 2 AND 4",
    "k <> 3",
    "NOT (k < 10)",
    "k IS NULL",
    "t = 'https://example.org/a'",
    "t LIKE 'https://%'",
    "t LIKE 'a%' OR t = ''",
    "t > 'https://example.org/a'",
    "s.x = 0",
    "s.x >= 0 AND s.x < 2",
    "s.x IN (1.5, 7)",
    "s.x IS NULL",
    "k = 2 AND t = 'a' AND s.x < 1",
    "k = 2 OR t = 'a'",
    "length(t) = 1",
]


def ordered(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def assert_same(table: Table, filters: list[str] = FILTERS) -> None:
    """Every filter gives the same with indexes and without."""
    for text in filters:
        found = ordered(table.scan(filter=text).to_arrow())
        with mock.patch.object(index_files, "rows_by_index", return_value=None):
            assert found == ordered(table.scan(filter=text).to_arrow()), text
        assert len(found) == table.scan(filter=text).count()


def change(table: Table, dice: random.Random) -> None:
    match dice.randrange(9):
        case 0:
            table.delete(dice.choice(FILTERS))
        case 1:
            table.update(dice.choice(FILTERS), {"t": lit("changed")})
        case 2:
            table.compact()
        case 3 if not table.primary_key:
            some = {"k": [dice.randrange(12)], "t": ["filled"]}
            table.fill_columns(some, on="k", unmatched="ignore")
        case 4:
            table.indexes.rebuild(full=dice.random() < 0.5)
        case 5:
            name = dice.choice(["k", "t", "s.x"])
            if name in table.indexes:
                table.indexes.drop(name)
            else:
                table.indexes.create(name, kind=dice.choice(["btree", "bitmap", "bloom"]))
        case 6:
            branch = f"b{table.snapshot.id}"
            table.branches.create(branch)
            other = Table.open(table.location, branch=branch, durability="fast")
            write(other, dice)
            assert_same(other, dice.sample(FILTERS, 3))
            table.branches.merge(branch)
        case _:
            write(table, dice)


def write(table: Table, dice: random.Random) -> None:
    some = [each for each in rows(dice, dice.randrange(1, 40)) if each["k"] is not None]
    if table.primary_key:
        table.upsert(pa.Table.from_pylist(some, SCHEMA))
    else:
        table.append(pa.Table.from_pylist(rows(dice, 30), SCHEMA))


@pytest.mark.long
@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("seed", range(3))
def test_filters_give_the_same_with_indexes_and_without(
    tmp_path: Path, seed: int, key: str | None
) -> None:
    """Random commits, deletions, compactions, branches, fills, and indexes that come and go."""
    dice = random.Random(seed)
    table = Table.create(
        tmp_path / "t", SCHEMA, primary_key=key, properties=SMALL, durability="fast"
    )
    write(table, dice)
    for name, kind in (("k", "btree"), ("t", "btree"), ("s.x", "bitmap")):
        table.indexes.create(name, kind=kind)  # type: ignore[arg-type]
    for _ in range(5):
        change(table, dice)
        assert_same(table, dice.sample(FILTERS, 5))
    assert_same(table)
    assert_same(table.clone(tmp_path / "clone"), FILTERS[::3])
    report = table.verify(data=True)
    assert report.ok, report


def indexed(path: Path, *, count: int = 40) -> Table:
    table = Table.create(path / "t", SCHEMA, properties=SMALL, durability="fast")
    table.append(pa.Table.from_pylist(rows(random.Random(5), count), SCHEMA))
    for name, kind in (("k", "btree"), ("t", "bitmap")):
        table.indexes.create(name, kind=kind)  # type: ignore[arg-type]
    return table


def index_paths(table: Table) -> set[str]:
    entries = live_entries(table.store, table.snapshot)
    return {path for entry in entries for path in index_paths_of(entry)}


def test_flipped_and_cut_index_files_change_no_result(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Some bytes of each file flipped, and each cut at some places: same rows, or a warning."""
    table = indexed(tmp_path)
    table.indexes.create("s.x", kind="bloom")
    for path in sorted(index_paths(table)):
        file = Path(table.location) / path
        whole = file.read_bytes()
        damaged = [whole[:at] for at in range(0, len(whole), len(whole) // 5)]
        for at in range(0, len(whole), 97):
            damaged.append(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        for data in damaged:
            file.write_bytes(data)
            shared_cache.clear()
            for text in ("k = 3", "t = 'a'", "s.x = 1.5"):
                found = ordered(table.scan(filter=text).to_arrow())
                with mock.patch.object(index_files, "rows_by_index", return_value=None):
                    assert found == ordered(table.scan(filter=text).to_arrow())
        file.write_bytes(whole)
    assert any("index not used" in each.message for each in caplog.records)


def test_a_missing_index_file_costs_time_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows stay, the log and verify name the file, repair and rebuild do without and make it."""
    table = indexed(tmp_path)
    lost = min(index_paths(table))
    (Path(table.location) / lost).unlink()
    shared_cache.clear()
    with caplog.at_level(logging.WARNING):
        assert_same(table)
    assert any(lost in each.getMessage() for each in caplog.records)
    assert any(each.path == lost for each in table.verify().problems)
    table.indexes.rebuild(full=True)
    assert lost not in index_paths(table)
    assert len(index_paths(table)) == 2
    newest = Table.open(table.location)
    (Path(table.location) / min(index_paths(table))).unlink()
    newest.repair(leave_out_missing=True)
    newest.refresh()
    assert len(index_paths(newest)) == 1
    assert newest.count() == 40


@pytest.mark.parametrize("kind", ["btree", "bitmap", "bloom"])
def test_a_filter_reads_the_rows_that_an_index_names(tmp_path: Path, kind: Any) -> None:
    """Counts of requests: a file without the value is not opened, with prefixes all alike."""
    table = Table.create(tmp_path / "t", SCHEMA, properties=SMALL, durability="fast")
    for start in (0, 1):
        texts = [f"https://example.org/{each}" for each in range(start, 60, 2)]
        table.append({"k": [1] * 30, "t": texts, "s": [None] * 30})
    table.indexes.create("t", kind)
    scan = table.scan(filter="t = 'https://example.org/7'")
    assert scan.count() == 1
    assert scan.io_stats["files"] == 3


def test_rows_that_indexes_name_are_read_without_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: Any, **options: Any) -> Any:
        raise AssertionError("threads were started")

    monkeypatch.setattr(scan_module, "SMALL_FILE_BYTES", 0)
    monkeypatch.setattr(scan_module, "read_ahead", refuse)
    table = Table.create(tmp_path / "t", SCHEMA, properties=SMALL, durability="fast")
    for part in (["a", "b"], ["b", "c"], ["d", "b"]):
        table.append({"k": [1, 2], "t": part, "s": [None] * 2})
    table.indexes.create("t")
    table.delete("t = 'b' AND k = 1")
    for value, keys in {"a": [1], "b": [2, 2], "c": [2], "d": [1], "e": []}.items():
        found = table.scan(filter=f"t = '{value}'", threads=2).to_arrow()
        assert found["k"].to_pylist() == keys
    with pytest.raises(AssertionError, match="threads were started"):
        table.scan(filter="k = 1", threads=2).to_arrow()
    table.set_properties({"index.rows_min": "1000"})
    for _ in range(2):  # files without an index, behind those with one
        table.append({"k": [3], "t": ["a"], "s": [None]})
    with pytest.raises(AssertionError, match="threads were started"):
        table.scan(filter="t = 'a'", threads=2).to_arrow()


def test_expiry_and_orphan_removal_delete_index_files_that_nothing_names(tmp_path: Path) -> None:
    """Those of a dropped index, and those of files that were compacted."""
    table = indexed(tmp_path)
    table.append(pa.Table.from_pylist(rows(random.Random(6), 9), SCHEMA))
    table.indexes.drop("t")
    table.compact()
    stray = Path(table.location) / index_path("0" * 32)
    stray.write_bytes(b"")
    assert is_made_by_writers(index_path("0" * 32))
    past = dt.timedelta(days=-1)
    table.expire_snapshots(older_than=past, retain_last=1)
    table.remove_orphan_files(older_than=past)
    stored = {each.name for each in (Path(table.location) / "data").glob("index-*")}
    assert stored == {path.rpartition("/")[2] for path in index_paths(table)}
    assert len(stored) == 1


def test_an_index_of_a_column_that_was_filled_is_not_used_until_it_is_rebuilt(
    tmp_path: Path,
) -> None:
    """Also where software that knows no indexes has kept the entry's."""
    table = indexed(tmp_path)
    stale = live_entries(table.store, table.snapshot)[0].indexes
    table.fill_columns({"k": [3], "t": ["new"]}, on="k", unmatched="ignore")
    assert table.indexes.list()[1].files_indexed == 0
    (entry,) = live_entries(table.store, table.snapshot)
    kept = msgspec.structs.replace(entry, indexes=stale)
    snapshot = msgspec.structs.replace(table.snapshot, manifests=(), tail=(kept,))
    assert Table(table.store, snapshot).scan(filter="t = 'new'").count() > 0
    table.indexes.rebuild("t")
    assert table.indexes.list()[1].files_indexed == 1
    assert_same(table)


def test_an_index_follows_its_column_by_id(tmp_path: Path) -> None:
    """Renamed and widened it stays, with its column it goes."""
    schema = pa.schema([("n", pa.int32()), ("d", pa.date32()), ("v", pa.int64())])
    table = Table.create(tmp_path / "t", schema, properties=SMALL, durability="fast")
    days = [dt.date(2024, 1, 1 + each) for each in range(20)]
    table.append({"n": range(20), "d": days, "v": range(20)})
    for name in schema.names:
        table.indexes.create(name)
    with table.update_schema() as update:
        update.rename_column("n", "number")
        update.alter_column("number", type=pa.int64())
        update.alter_column("d", type=pa.timestamp("us"))
    table.append({"number": [2**40], "d": [dt.datetime(2024, 1, 3, 12)], "v": [7]})
    assert [each.name for each in table.indexes] == ["d", "number", "v"]
    for text, count in (
        ("number = 5", 1),
        ("number > 2000000000", 1),
        ("d = TIMESTAMP '2024-01-03 00:00:00'", 1),
        ("d >= TIMESTAMP '2024-01-03 06:00:00'", 18),
    ):
        assert table.scan(filter=text).count() == count, text
    table.drop_columns(["v"])
    assert [each.name for each in table.indexes] == ["d", "number"]
    assert len(table.schema.indexes) == 2


VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False, None]),
    (pa.decimal256(60, 2), [Decimal(10) ** 40, Decimal("-0.01"), None]),
    (pa.decimal32(5, 1), [Decimal("1.5"), Decimal("-2.0"), None]),
    (pa.uint64(), [2**64 - 1, 0, None]),
    (pa.float16(), [0.0, 1.5, None]),
    (pa.float32(), [0.1, -0.0, NAN]),
    (pa.binary(3), [b"abc", b"\0\0\0", None]),
    (pa.string_view(), ["a", "\U0001f600", None]),
    (pa.dictionary(pa.int8(), pa.string()), ["x", "y", None]),
    (pa.timestamp("ns", "UTC"), [0, 10**18, None]),
    (pa.time64("us"), [dt.time(1), dt.time(23), None]),
]


@pytest.mark.parametrize("kind", ["btree", "bitmap", "bloom"])
@pytest.mark.parametrize(("dtype", "values"), VALUES, ids=[str(each) for each, _ in VALUES])
def test_every_type_with_an_order_can_be_indexed(
    tmp_path: Path, dtype: pa.DataType, values: list[Any], kind: Any
) -> None:
    """Each value is found; nulls are not; the index was read."""
    table = Table.create(tmp_path / "t", pa.schema([("c", dtype)]), properties=SMALL)
    given = pa.array(values, dtype)
    table.append(pa.table({"c": pa.concat_arrays([given] * 5)}))
    table.indexes.create("c", kind=kind)
    for value in given.to_pylist()[:2]:
        with mock.patch.object(index_files, "_log") as log:
            scan = table.scan(filter=[("c", "==", value)])
            assert scan.count() == 5, value
        assert not log.warning.called
        assert scan.io_stats["files"] == 2
    assert table.scan(filter="c IS NULL").count() == 5 * sum(v is None for v in values)


def test_what_can_not_be_indexed_is_refused(tmp_path: Path) -> None:
    """Lists and fields in them, columns that are not there, indexes that are; wrong kinds."""
    schema = pa.schema([("a", pa.int64()), ("l", pa.list_(pa.int64()))])
    table = Table.create(tmp_path / "t", schema)
    for column in ("l", "l.element"):
        with pytest.raises(InvalidArgumentError, match="expected booleans, numbers"):
            table.indexes.create(column)
    with pytest.raises(ColumnNotFoundError):
        table.indexes.create("b")
    table.indexes.create("a")
    with pytest.raises(InvalidArgumentError, match="has an index already, btree: drop it first"):
        Table.open(table.location).indexes.create("a", kind="bitmap")
    with pytest.raises(InvalidArgumentError, match="expected one of 'btree'"):
        table.indexes.create("a", kind="hash")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="no index of 'l': there are a"):
        table.indexes.drop("l")
    with pytest.raises(InvalidArgumentError, match="opened at version"):
        Table.open(table.location, version=0).indexes.create("a")


def test_an_index_can_be_made_while_others_write(tmp_path: Path) -> None:
    """Appends and deletions come between: their rows are found, the files changed get theirs."""
    table = indexed(tmp_path)
    table.indexes.drop("k")
    real, calls = committing.Commit._create, []

    def raced(self: Any, snapshot: Any, *others: Any) -> Any:
        if snapshot.message == "index k" and not calls:
            calls.append(snapshot)
            other = Table.open(table.location, durability="fast")
            other.delete("k = 3")
            other.append(pa.Table.from_pylist([{"k": 3, "t": "late", "s": None}], SCHEMA))
        return real(self, snapshot, *others)

    with mock.patch.object(committing.Commit, "_create", raced):
        made = table.indexes.create("k")
    assert calls
    assert made.files == made.files_indexed == 2
    assert table.scan(filter="k = 3").to_arrow()["t"].to_pylist() == ["late"]
    assert_same(table)
    held = {each.name for each in (Path(table.location) / "data").glob("index-*")}
    past = dt.timedelta(days=-1)
    table.remove_orphan_files(older_than=past)
    assert held == {each.name for each in (Path(table.location) / "data").glob("index-*")}


def test_a_scan_goes_on_while_its_index_is_dropped(tmp_path: Path) -> None:
    """It reads its snapshot; once the index files are gone, without them."""
    table = indexed(tmp_path)
    scan = table.scan(filter="k = 3")
    count = scan.count()
    Table.open(table.location).indexes.drop("k")
    assert scan.count() == count
    for path in (Path(table.location) / "data").glob("index-*"):
        path.unlink()
    shared_cache.clear()
    assert table.scan(filter="k = 3").count() == count == scan.count()


CHANGES: list[Callable[[Table], Any]] = [
    lambda table: table.indexes.create("s.x"),
    lambda table: table.indexes.drop("k"),
    lambda table: table.indexes.rebuild(full=True),
]


@pytest.mark.parametrize("change", CHANGES, ids=["create", "drop", "rebuild"])
def test_a_crash_after_any_storage_call_leaves_exact_filters_and_can_be_made_good(
    tmp_path: Path, change: Callable[[Table], Any]
) -> None:
    """Each call of two files' change: the table is whole, goes on, and `rebuild` does the rest."""
    made = indexed(tmp_path)
    made.append(pa.Table.from_pylist(rows(random.Random(6), 9), SCHEMA))
    expected = ordered(made.scan().to_arrow())
    states = set()
    for calls in range(1, 100):
        path = tmp_path / f"crash-{calls}"
        shutil.copytree(made.location, path)
        store = CrashingStore(LocalStore(str(path), durability="fast"), calls)
        table = Table(store, Table.open(path).snapshot)
        with suppress(Crash):
            change(table)
            break
        left = Table.open(path, durability="fast")
        states.add((tuple(map(repr, left.indexes)), frozenset(index_paths(left))))
        assert left.verify().ok, calls
        assert ordered(left.scan().to_arrow()) == expected
        assert_same(left, ["k < 3 AND s.x < 2"])
        assert all(each.files_indexed == each.files for each in left.indexes.rebuild())
        past = dt.timedelta(days=-1)
        left.expire_snapshots(older_than=past, retain_last=1)
        left.remove_orphan_files(older_than=past)
        stored = {f"data/{each.name}" for each in (path / "data").glob("index-*")}
        assert stored == index_paths(left), calls
    else:
        pytest.fail("never finished")
    assert len(states) > 1


@pytest.mark.parametrize("key", [None, "k"])
def test_merges_use_indexes_and_change_what_they_change_without(
    tmp_path: Path, key: str | None
) -> None:
    """On an indexed column: the same rows, of which the index named one in a file of forty."""
    found: list[RowRanges | None] = []
    real = index_files.rows_by_index

    def watched(*given: Any) -> RowRanges | None:
        found.append(real(*given))
        return found[-1]

    changed = []
    for use in (watched, lambda *_: None):
        path = tmp_path / f"t{len(changed)}"
        table = Table.create(path, SCHEMA, primary_key=key, properties=SMALL, durability="fast")
        texts = [f"https://example.org/{each}" for each in range(40)]
        table.append({"k": range(40), "t": texts, "s": [None] * 40})
        table.indexes.create("t")
        source = {"k": [6, 100], "t": [texts[6], "new"], "s": [{"x": 1.5}, {"x": 2.5}]}
        with mock.patch.object(index_files, "rows_by_index", use):
            table.merge(pa.table(source), on="t").when_matched_update({"s": "source.s"}).execute()
        changed.append(ordered(table.scan().to_arrow()))
    assert changed[0] == changed[1]
    assert sum("1.5" in each for each in changed[0]) == 1
    assert RowRanges.from_indices(np.array([6])) in found
