"""Splits of any kind: scans, readers, threads and tasks know of them what the protocol says."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

from fermion_table import Scan, Table
from fermion_table.engine import FileSplit, Split
from fermion_table.options import OPEN_COST_BYTES
from fermion_table.planning.split import FileReader, first_rows, tasks

SCHEMA = pa.schema({"key": pa.int64(), "value": pa.string()})


@dataclass(frozen=True)
class MergedRuns:
    """Several files with sorted keys, read as one: the row of the last file that has a key."""

    files: Sequence[FileSplit]
    row_bounds: None = None
    is_exact: bool = False

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def cost(self) -> int:
        return self.bytes + OPEN_COST_BYTES

    @property
    def rows_wanted(self) -> int:
        return sum(file.rows_wanted for file in self.files)

    def part(self, start: int, stop: int) -> Split:
        raise AssertionError("it has no row bounds")

    def head(self, rows: int) -> Split:
        return self

    def read(self, reader: FileReader, *, threads: int | None = None) -> Iterator[pa.RecordBatch]:
        rows: dict[int, dict[str, object]] = {}
        for file in self.files:
            for batch in reader.read_file(file, threads=threads):
                rows |= {row["key"]: row for row in batch.to_pylist()}
        yield pa.RecordBatch.from_pylist([rows[key] for key in sorted(rows)], schema=SCHEMA)

    def count(self, reader: FileReader, *, threads: int | None = None) -> int:
        return sum(batch.num_rows for batch in self.read(reader, threads=threads))


@pytest.fixture
def scan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scan:
    """A scan of four files, which reads them as two splits of two runs each."""
    table = Table.create(tmp_path / "table", SCHEMA)
    for start, value in ((0, "old"), (1, "new"), (10, "old"), (11, "new")):
        table.append({"key": [start, start + 1], "value": [value, value]})
    scan = table.scan()
    files = [file for split in scan.plan().splits for file in split.files]
    runs = (MergedRuns(files[:2]), MergedRuns(files[2:]))
    monkeypatch.setattr(type(scan), "plan", lambda self: replace(self._plan, splits=runs))
    return scan


def test_a_scan_reads_splits_of_another_kind(scan: Scan):
    """By one thread, by several, up to a limit, and as a plan in words."""
    rows = {0: "old", 1: "new", 2: "new", 10: "old", 11: "new", 12: "new"}
    merged = [{"key": key, "value": value} for key, value in rows.items()]
    assert replace(scan, threads=1).to_arrow().to_pylist() == merged
    assert replace(scan, threads=2).to_arrow().to_pylist() == merged
    assert scan.head(4).to_pylist() == merged[:4]
    assert scan.count() == len(merged)
    assert scan.explain(files=4).count("0 of 2 rows to look at") == 0
    assert scan.explain(files=4).count("2 of 2 rows to look at") == 4
    assert scan.explain(files=1).count("2 of 2 rows to look at") == 1


def test_a_plan_adds_up_and_shares_out_splits_of_another_kind(scan: Scan):
    plan = scan.plan()
    assert (plan.rows, plan.bytes) == (8, sum(file.size for s in plan.splits for file in s.files))
    assert sorted(plan.tasks(1), key=repr) == sorted(((s,) for s in plan.splits), key=repr)
    assert plan.tasks() == [tuple(plan.splits)]


def test_a_reader_takes_a_split_of_another_kind_from_another_process(scan: Scan):
    reader, splits = pickle.loads(pickle.dumps((scan.reader, scan.plan().splits)))
    assert [reader.count(split) for split in splits] == [3, 3]
    batches = [batch for split in splits for batch in reader.read(split, threads=1)]
    assert pa.Table.from_batches(batches).equals(scan.to_arrow())


def test_what_cannot_be_cut_is_not():
    """Neither into tasks nor at a limit, as it may have fewer rows; a file beside it is cut."""
    big = FileSplit(location="a", file="a", size=40 * OPEN_COST_BYTES, rows=10**7)
    merged = MergedRuns([big, big])
    planned = [split for task in tasks([merged, big], 10 * OPEN_COST_BYTES) for split in task]
    assert planned.count(merged) == 1
    assert len(planned) > 3
    assert first_rows([merged, big], 5) == [merged, big.part(0, 5)]


def test_a_file_gives_the_first_rows_only_where_none_are_deleted(tmp_path: Path):
    table = Table.create(tmp_path / "table", SCHEMA)
    table.append({"key": range(10), "value": ["a"] * 10})
    (whole,) = table.scan().plan().splits
    assert whole.head(3).row_bounds == (0, 3)
    assert whole.head(10) is whole
    assert whole.part(2, 8).head(3).row_bounds == (2, 5)
    table.delete("key = 1")
    (deleted,) = table.scan().plan().splits
    assert deleted.head(3) is deleted
    assert (deleted.rows_wanted, deleted.rows) == (9, 10)
    assert [whole.is_exact, whole.part(0, 5).is_exact, deleted.is_exact] == [True, True, True]
    assert not deleted.part(0, 5).is_exact


def test_the_first_rows_are_not_missed_where_a_part_may_have_fewer_than_it_says(tmp_path: Path):
    """Of five rows of the first file three are deleted: the second file has to be read too."""
    table = Table.create(tmp_path / "table", SCHEMA)
    for start in (0, 10):
        table.append({"key": range(start, start + 10), "value": ["a"] * 10})
    table.delete("key < 3")
    first, second = table.scan().plan().splits
    chosen = first_rows([first.part(0, 5), second], 4)
    assert len(chosen) == 2
