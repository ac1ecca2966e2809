"""What tasks aggregate: small batches that follow each other become one before."""

from __future__ import annotations

import pyarrow as pa

from spark_ext.aggregation import task
from spark_ext.aggregation.task import joined_batches


def batches(*rows: int) -> list[pa.RecordBatch]:
    """Return batches of so many rows, which are numbered through all of them."""
    starts = [sum(rows[:place]) for place in range(len(rows))]
    return [
        pa.record_batch([pa.array(range(start, start + count), pa.int64())], ["n"])
        for start, count in zip(starts, rows, strict=True)
    ]


def test_small_batches_are_joined_and_large_ones_are_not_copied(monkeypatch):
    """The lengths are compared, the rows, and the address of a large batch."""
    monkeypatch.setattr(task, "JOINED_ROWS", 10)
    given = batches(3, 4, 5, 30, 2, 1)
    joined = list(joined_batches(given))
    assert [batch.num_rows for batch in joined] == [12, 30, 3]
    assert joined[1].column(0).buffers()[1].address == given[3].column(0).buffers()[1].address
    assert pa.Table.from_batches(joined)["n"].to_pylist() == list(range(45))
    assert list(joined_batches([])) == []


def test_batches_are_joined_up_to_a_number_of_bytes(monkeypatch):
    """Of long texts even a few rows may be too many bytes for one batch of Arrow."""
    monkeypatch.setattr(task, "JOINED_BYTES", 100)  # 12 numbers
    joined = joined_batches(batches(5, 6, 7, 20, 1))
    assert [batch.num_rows for batch in joined] == [11, 7, 20, 1]
