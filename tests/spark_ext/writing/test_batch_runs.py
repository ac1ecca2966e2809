"""Sorted rows are cut into whole batches, wherever record batches happen to end."""

from __future__ import annotations

from itertools import groupby, pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion.errors import InvalidArgumentError
from spark_ext.writing.batch_runs import batch_runs


def record_batches(ids, cuts):
    table = pa.table(
        {"row": pa.array(range(len(ids)), pa.int64()), "id": pa.array(ids, pa.int32())}
    )
    edges = [0, *sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]
    return [
        pa.RecordBatch.from_arrays(
            [column.combine_chunks() for column in table.slice(start, stop - start).columns],
            schema=table.schema,
        )
        for start, stop in pairwise(edges)
    ]


@given(st.lists(st.integers(-3, 6)).map(sorted), st.lists(st.integers(0, 100), max_size=5))
def test_batches_are_those_that_groupby_finds(ids, cuts):
    runs = [
        (number, [row for part in parts for row in part.column("row").to_pylist()])
        for number, parts in batch_runs(record_batches(ids, cuts), 1)
    ]
    expected = [
        (number, [row for row, _ in group])
        for number, group in groupby(enumerate(ids), key=lambda pair: pair[1])
    ]
    assert runs == expected


def test_a_row_without_a_batch_id_is_refused():
    with pytest.raises(InvalidArgumentError, match="'id' holds 1 nulls"):
        list(batch_runs(record_batches([1, None], []), 1))


def test_rows_out_of_order_are_refused():
    with pytest.raises(InvalidArgumentError, match="batch id 1 after 2"):
        list(batch_runs(record_batches([1, 2, 1], [2]), 1))
