"""Any set of rows of a file, with and without a filter, against a plain table."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fermion
from fermion.errors import InvalidArgumentError
from fermion.predicate import RowRanges

ROWS = 3_000
FILTERS = {
    "a < 500": lambda t: pc.less(t["a"], 500),
    "b = 3 OR s IS NULL": lambda t: pc.or_kleene(pc.equal(t["b"], 3), pc.is_null(t["s"])),
    "a >= 0": lambda t: pc.greater_equal(t["a"], 0),
    "b > 100": lambda t: pc.greater(t["b"], 100),
}


@pytest.fixture(scope="module")
def table() -> pa.Table:
    rng = np.random.default_rng(5)
    texts = [None if n % 7 == 0 else f"text {n}" for n in range(ROWS)]
    lists = [list(range(n % 4)) for n in range(ROWS)]
    return pa.table(
        {"a": np.arange(ROWS), "b": rng.integers(0, 9, ROWS), "s": texts, "list": lists}
    )


@pytest.fixture(scope="module")
def path(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.fermion"
    fermion.write_table(table, path, stripe_rows=1_100, page_bytes=4_096)
    return path


@st.composite
def row_sets(draw) -> RowRanges:
    """Scattered rows, long runs, everything and nothing."""
    if draw(st.booleans()):
        rows = draw(st.lists(st.integers(0, ROWS - 1), max_size=30))
        found = RowRanges.from_indices(np.array(rows, np.int64))
    else:
        starts = draw(st.lists(st.integers(0, ROWS), max_size=3))
        stops = [min(start + draw(st.integers(0, ROWS)), ROWS) for start in starts]
        found = RowRanges.from_bounds(starts, stops)
    return found.complement(ROWS) if draw(st.booleans()) else found


@settings(max_examples=60)
@given(row_sets(), st.sampled_from([None, *FILTERS]), st.sampled_from([["s"], ["a", "list"], []]))
def test_any_rows_are_read_counted_and_found(path, table, rows, filter, columns):
    mask = rows.to_mask(ROWS)
    if filter is not None:
        selected = pc.fill_null(FILTERS[filter](table), False)
        mask &= selected.to_numpy(zero_copy_only=False).astype(bool)
    expected = table.filter(pa.array(mask))
    with fermion.open(path) as file:
        assert file.count(filter, rows=rows) == expected.num_rows
        assert file.find(filter, rows=rows) == RowRanges.from_indices(np.flatnonzero(mask))
        found = file.read(columns, filter=filter, rows=rows)
        assert found.num_rows == expected.num_rows
        batches = list(file.iter_batches(columns, filter=filter, rows=rows, batch_size=700))
        assert sum(batch.num_rows for batch in batches) == expected.num_rows
        if columns:
            assert found.equals(expected.select(columns))
            assert pa.Table.from_batches(batches, found.schema).equals(found)


def test_rows_far_apart_cost_only_their_pages(path):
    """Opened by a short tail, which holds none of the data."""
    options = fermion.ReadOptions(prefetch_bytes=1024)
    with fermion.open(path, options=options) as file:
        file.read(["a"])
        all_bytes = file.io_stats.bytes_requested
    with fermion.open(path, options=options) as file:
        found = file.read(["a"], rows=RowRanges.from_indices(np.array([5, 2_900])))
        assert found.column("a").to_pylist() == [5, 2_900]
        assert file.io_stats.bytes_requested < all_bytes


def test_rows_outside_the_file_are_refused(path):
    with fermion.open(path) as file:
        for rows in (RowRanges.from_bounds([0], [ROWS + 1]), RowRanges.from_bounds([-1], [2])):
            with pytest.raises(InvalidArgumentError, match=r"rows .*expected"):
                file.read(rows=rows)
            with pytest.raises(InvalidArgumentError):
                file.count("a > 1", rows=rows)


def test_finding_is_settled_by_statistics_where_they_can(path):
    """Opened by a short tail, which holds none of the data."""
    options = fermion.ReadOptions(prefetch_bytes=1024)
    with fermion.open(path, options=options) as file:
        before = file.io_stats.bytes_requested
        assert file.find("a >= 0") == RowRanges.all(ROWS)
        assert not file.find("a > 100000")
        metadata_only = file.io_stats.bytes_requested - before
    with fermion.open(path, options=options) as file:
        before = file.io_stats.bytes_requested
        file.find("b = 3")
        assert file.io_stats.bytes_requested - before > metadata_only


def test_bug_long_lists_were_listed_value_by_value(monkeypatch, tmp_path):
    """A file of a few bytes may claim any number of equal values; their places took gigabytes."""
    lists = pa.array([[0.0] * 50_000] * 10)
    pages = {"page_bytes": 2**23, "page_rows_max": 2**20}
    fermion.write_table(pa.table({"list": lists}), tmp_path / "lists.fermion", **pages)
    listed, to_indices = [], RowRanges.to_indices

    def counted(self):
        listed.append(self.total)
        return to_indices(self)

    monkeypatch.setattr(RowRanges, "to_indices", counted)
    with fermion.open(tmp_path / "lists.fermion") as file:
        found = file.take([0, 9])
    assert found["list"].to_pylist() == [[0.0] * 50_000] * 2
    assert max(listed, default=0) <= 10


@given(st.lists(st.integers(0, 60)))
def test_listed_rows_are_the_same_set_as_found_ones(numbers):
    """Ascending and each once, as they must be; the array itself comes back."""
    rows = np.unique(np.array(numbers, np.int64))
    listed = RowRanges.from_listed(rows)
    assert listed == RowRanges.from_indices(rows)
    assert listed.to_indices().tolist() == rows.tolist()
    assert (listed & RowRanges.all(30)).to_indices().tolist() == rows[rows < 30].tolist()
    assert listed.shift(3).to_indices().tolist() == (rows + 3).tolist()
