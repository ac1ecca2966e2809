"""Compaction joins the rows of small files before it writes them, and looks at columns once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from fermion.writing import file as file_writer
from fermion_table import Table
from fermion_table.compaction import small_files
from fermion_table.compaction.small_files import joined
from fermion_table.engine import DataWriter


def batch(start: int, rows: int) -> pa.RecordBatch:
    return pa.record_batch({"a": pa.array(np.arange(start, start + rows))})


def test_batches_are_joined_in_order_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten values are 80 bytes: three such batches fit, and one of 100 values stays alone."""
    monkeypatch.setattr(small_files, "JOINED_BYTES_MAX", 250)
    monkeypatch.setattr(small_files, "JOINED_BATCH_BYTES_MAX", 200)
    sizes = [10, 10, 10, 10, 100, 10, 10]
    starts = np.cumsum([0, *sizes])
    found = list(joined(batch(int(at), rows) for at, rows in zip(starts, sizes, strict=False)))
    assert [each.num_rows for each in found] == [30, 10, 100, 20]
    assert pa.Table.from_batches(found)["a"].to_pylist() == list(range(sum(sizes)))
    assert list(joined([])) == []


def test_dictionaries_that_do_not_fit_together_stay_apart() -> None:
    """Indices of one byte number 128 values: two batches have 100 different ones each."""
    kind = pa.dictionary(pa.int8(), pa.string())
    batches = [
        pa.record_batch({"a": pa.array([f"{at} {n}" for n in range(100)]).cast(kind)})
        for at in range(2)
    ]
    found = list(joined(iter(batches)))
    assert [each.num_rows for each in found] == [100, 100]
    assert [each["a"].to_pylist() for each in found] == [each["a"].to_pylist() for each in batches]


def test_many_small_wide_files_are_written_as_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values of many types keep their order, and no column goes the way around."""
    random = np.random.default_rng(3)

    def rows(at: int) -> pa.Table:
        numbers = {f"real {n}": random.normal(size=150) for n in range(40)}
        return pa.table(
            {
                **numbers,
                "int": np.arange(150) + 150 * at,
                "text": [f"row {n} of {at}" for n in range(150)],
                "money": pa.array(random.integers(0, 10**6, 150)).cast(pa.decimal128(20, 0)),
            }
        )

    tables = [rows(at) for at in range(10)]
    table = Table.create(tmp_path / "t", tables[0].schema)
    for each in tables:
        table.append(each)
    calls = {"write": 0, "encode_column": 0}
    real_write, real_encode = DataWriter.write, file_writer.encode_column

    def write(writer: DataWriter, data: pa.RecordBatch, *, copy: bool = True) -> None:
        calls["write"] += 1
        real_write(writer, data, copy=copy)

    def encode(*arguments: object) -> object:
        calls["encode_column"] += 1
        return real_encode(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(DataWriter, "write", write)
    monkeypatch.setattr(file_writer, "encode_column", encode)
    result = table.compact()
    assert (result.files_before, result.files_after) == (10, 1)
    assert calls == {"write": 1, "encode_column": 0}
    expected = pa.concat_tables(tables)
    assert table.scan().to_arrow().cast(expected.schema).equals(expected)


def test_batches_of_many_rows_are_not_joined():
    many = pa.record_batch({"a": range(small_files.JOINED_BATCH_ROWS_MAX + 1)})
    few = many.slice(0, 10)
    batches = [few, few, many, few, few]
    assert [each.num_rows for each in small_files.joined(batches)] == [20, many.num_rows, 20]
