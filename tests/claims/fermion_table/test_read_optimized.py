"""`Table.scan(mode=...)`: rows without merging, and how far they are behind."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from fermion.errors import InvalidArgumentError
from fermion_table import Table
from fermion_table.commit.commit import commit
from fermion_table.commit.request import CommitRequest
from fermion_table.storage.owned_files import OwnedFiles
from fermion_table.writing.incoming_rows import UNPARTITIONED
from fermion_table.writing.tree_writer import TreeWriter
from tests.kit.tables.trees import SCHEMA, key_of, keyed_table

STORED = SCHEMA.set(0, SCHEMA.field("k").with_nullable(False))
OLD = {1: "a", 2: "b", 3: "c"}
NEW = {2: "B", 4: "d"}


def write_level(table: Table, level: int, rows: dict[int, str]) -> None:
    """Commit rows as a run of a level."""
    batch = pa.RecordBatch.from_arrays(
        [pa.array(rows, pa.int64()), pa.array(rows.values(), pa.string())], schema=STORED
    )
    key = key_of(table)
    with OwnedFiles(table.store) as owned:
        writer = TreeWriter(owned, table.schema, key)
        run = [(batch, key.keys(batch), None)]
        added = writer.write_run(UNPARTITIONED, 0, level, run, has_kinds=False)
        owned.release()
    commit(table.store, CommitRequest(kind="upsert", added=added))
    table.refresh()


@pytest.fixture
def table(tmp_path) -> Table:
    return keyed_table(tmp_path / "t")


def test_read_optimized_shows_the_highest_level_alone_and_says_what_is_missing(table):
    write_level(table, 5, OLD)
    write_level(table, 0, NEW)
    scan = table.scan(mode="read_optimized")
    assert rows(scan) == OLD
    assert scan.count() == 3
    assert "2 newer rows are left out" in scan.explain()
    assert rows(pickle.loads(pickle.dumps(scan))) == OLD
    assert rows(table.scan(mode="read_optimized", filter="k >= 2")) == {2: "b", 3: "c"}
    assert rows(table.scan()) == rows(table.scan(mode="snapshot")) == OLD | NEW


def test_a_tree_that_was_never_compacted_shows_no_rows_read_optimized(table):
    write_level(table, 0, NEW)
    assert rows(table.scan(mode="read_optimized")) == {}
    assert rows(table.scan()) == NEW


def test_a_table_without_a_primary_key_shows_all_rows_in_both_modes(tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA)
    table.append(pa.table({"k": [1], "v": ["a"]}))
    assert rows(table.scan(mode="read_optimized")) == rows(table.scan()) == {1: "a"}


@pytest.mark.parametrize("mode", ["merged", "", None, 1, ["snapshot"]])
def test_other_modes_are_refused(table, mode):
    with pytest.raises(InvalidArgumentError, match=r"mode=.*expected one of snapshot, read_opt"):
        table.scan(mode=mode)


def rows(scan) -> dict[int, str]:
    """Return the rows of a scan, by key; a key is there once."""
    found = scan.to_arrow()
    shown = dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))
    assert len(shown) == found.num_rows
    return shown
