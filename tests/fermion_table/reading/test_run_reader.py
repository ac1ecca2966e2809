"""Sorted runs read piece by piece: the same rows, each file opened once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion.predicate import RowRanges
from fermion_table import Table
from fermion_table.reading import run_reader
from fermion_table.reading.run_reader import merging_reader, run_batches
from fermion_table.trees.section_reader import SectionSplit, merged_rows
from fermion_table.writing import tree_writer
from tests.kit.tables.tree_rows import put

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.string())])
ROWS = 100


@pytest.fixture
def table(tmp_path) -> Table:
    """Return a table of a run of two files and a newer one."""
    engine = {"merge_engine": "aggregation", "fields.t.aggregate_function": "listagg"}
    table = Table.create(
        tmp_path / "t", SCHEMA, primary_key=["k"], properties=engine, durability="fast"
    )
    for first in (0, ROWS):
        put(table, [{"k": first + k, "t": f"{k}" * (k % 9)} for k in range(ROWS)], level=5)
    put(table, [{"k": k, "t": "x"} for k in range(2 * ROWS)])
    return table


def read(scan, run, bytes_max: int, **options) -> list[pa.RecordBatch]:
    """Return the batches of a run, with the numbers of rows."""
    reader = merging_reader(scan.reader, ["k", "t"], row_ids=True)
    return list(run_batches(run, reader, 1, bytes_max=bytes_max, **options))


@pytest.mark.parametrize("chosen", [None, "k >= 30 AND k < 130", "k = 7", "k > 999"])
@pytest.mark.parametrize("in_part", [False, True])
def test_pieces_are_small_and_together_all_rows(table, monkeypatch, chosen, in_part):
    monkeypatch.setattr(run_reader, "STEP_ROWS_MIN", 4)
    scan = table.scan(filter=chosen)
    for split in scan.plan().splits:
        assert isinstance(split, SectionSplit)
        for run in split.runs:
            rows = None
            if in_part:
                places = range(3, ROWS, 7)
                rows = {run[-1].location: RowRanges.from_bounds(places, [at + 2 for at in places])}
            (whole, pieces) = (read(scan, run, size, rows=rows) for size in (10**9, 400))
            assert [row for batch in pieces for row in batch.to_pylist()] == [
                row for batch in whole for row in batch.to_pylist()
            ]
            assert max((batch.num_rows for batch in pieces), default=0) <= 32
            if chosen is None and not in_part:
                assert max(batch.num_rows for batch in whole) == run[0].rows
                assert max(batch.nbytes for batch in pieces) < 2_000


def test_a_merge_holds_as_many_rows_as_it_is_told(table, monkeypatch):
    """The fewer bytes of the runs are held, the more windows there are, of the same rows."""
    monkeypatch.setattr(run_reader, "STEP_ROWS_MIN", 4)
    scan = table.scan()
    (split,) = scan.plan().splits
    few, many = (
        list(merged_rows(split.runs, scan.reader, is_oldest=True, held_bytes=held))
        for held in (10**9, 800)
    )
    assert len(few) < 4 < 2 * ROWS // 32 <= len(many)
    assert pa.Table.from_batches(each.rows for each in few).equals(
        pa.Table.from_batches(each.rows for each in many)
    )


def test_files_are_opened_and_counted_once(table, monkeypatch):
    monkeypatch.setattr(run_reader, "STEP_ROWS_MIN", 4)
    monkeypatch.setattr(run_reader, "STEP_ROWS_MAX", 8)
    scan = table.scan(filter="k < 150")
    assert scan.to_arrow().num_rows == 150
    assert scan.io_stats["files"] == 3


def test_pieces_are_cut_where_stripes_begin(tmp_path, monkeypatch):
    """Else the pages at the ends of pieces are read twice: they are cut from there on, too."""
    monkeypatch.setattr(run_reader, "STEP_ROWS_MIN", 8)
    monkeypatch.setattr(run_reader, "STEP_ROWS_MAX", 8)
    monkeypatch.setattr(tree_writer, "STRIPE_BYTES", 16 * 43)
    table = Table.create(tmp_path / "t", SCHEMA, primary_key=["k"], durability="fast")
    put(table, [{"k": k, "t": "xxxx"} for k in range(200)])
    scan = table.scan(columns=["k", "t"])
    (split,) = scan.plan().splits
    with fermion.open(split.location) as file:
        starts = np.cumsum((0, *file.stripe_rows[:-1]))
        assert len(starts) > 2
        assert any(starts % 8)
    batches = read(scan, [split], 100)
    firsts = np.array([batch["k"][0].as_py() for batch in batches])
    own = starts[np.searchsorted(starts, firsts, "right") - 1]
    assert not ((firsts - own) % 8).any()
    sizes = [batch.num_rows for batch in batches]
    assert sum(sizes) == 200
    assert min(sizes[:-1]) > 8 // 4 - 1
    assert max(sizes) < 8 + 8 // 4 + 1
