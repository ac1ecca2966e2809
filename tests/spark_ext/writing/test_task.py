"""Tasks may get their rows in memory that is used again for the next batch."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from fermion_table import Table
from spark_ext.writing.batch_runs import batch_runs
from spark_ext.writing.task import WriteTask
from tests.kit.refilled_memory import batches_of_one_memory

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])


def pieces(count: int = 4) -> list[pa.Table]:
    return [
        pa.table([range(first, first + 30), [f"t{each}" for each in range(30)]], schema=SCHEMA)
        for first in range(1, 30 * count, 30)
    ]


@pytest.mark.parametrize("key", [None, "1", "3"])
def test_a_task_writes_the_rows_that_it_was_given(tmp_path: Path, key: str | None) -> None:
    keyed = {"primary_key": ["id"], "properties": {"bucket": key}} if key else {}
    table = Table.create(tmp_path / "t", SCHEMA, **keyed)  # type: ignore[arg-type]
    task = WriteTask(table.writer_factory(), SCHEMA)
    table.commit(task.write(batches_of_one_memory(pieces())))
    found = table.scan().to_arrow().sort_by("id")
    assert found.to_pylist() == pa.concat_tables(pieces()).to_pylist()


def test_a_task_writes_the_batches_that_it_was_given(tmp_path: Path) -> None:
    """A batch of rows may go over several record batches."""
    table = Table.create(tmp_path / "t", SCHEMA)
    numbered = [
        piece.append_column("batch", pa.array([at // 2] * 30)) for at, piece in enumerate(pieces())
    ]
    task = WriteTask(table.writer_factory(), SCHEMA, batch_id=2)
    table.commit(task.write(batches_of_one_memory(numbered)))
    for number in (0, 1):
        expected = pa.concat_tables(pieces()[2 * number : 2 * number + 2])
        assert table.lookup_batch(number).to_pylist() == expected.to_pylist()


def test_runs_of_batches_keep_their_rows() -> None:
    numbered = [piece.append_column("batch", pa.array([7] * 30)) for piece in pieces(3)]
    ((number, parts),) = batch_runs(batches_of_one_memory(numbered), 2)
    assert number == 7
    assert pa.Table.from_batches(parts).to_pylist() == pa.concat_tables(numbered).to_pylist()
