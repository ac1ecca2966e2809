"""What tables keep after a call is their own: callers refill their memory.

Every way to write rows is given rows in memory that is zeroed after the call, or, where it takes a
producer, after each batch of it. The table must show what the rows were.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fermion_table import Table
from tests.kit.refilled_memory import RefilledMemory, batches_of_one_memory

WORDS = pa.dictionary(pa.int16(), pa.string())
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("part", pa.string()),
        ("view", pa.string_view()),
        ("word", WORDS),
        ("list", pa.list_(pa.float64())),
    ]
)


def rows(first: int, count: int = 40) -> pa.Table:
    """Rows whose every value tells its number."""
    ids = range(first, first + count)
    words = pa.array([f"w{each}" for each in ids]).dictionary_encode().cast(WORDS)
    columns = [
        pa.array(ids, pa.int64()),
        pa.array([f"p{each % 3}" for each in ids]),
        pa.array([f"a long text, number {each}" for each in ids], pa.string_view()),
        words,
        pa.array([[each, each / 2] for each in ids], pa.list_(pa.float64())),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


PIECES = [rows(1 + 40 * number) for number in range(4)]
ALL = pa.concat_tables(PIECES)
Way = Callable[[Table], object]


def producer() -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(SCHEMA, batches_of_one_memory(PIECES))


def shown(table: Table) -> list[dict[str, Any]]:
    return sorted(table.scan().to_arrow().to_pylist(), key=itemgetter("id"))


def memories() -> Iterator[pa.Table]:
    """Each piece in memory of its own, which is zeroed when the next one is asked for."""
    for piece in PIECES:
        memory = RefilledMemory(piece)
        yield memory.table
        memory.zero()


def write_each(table: Table) -> None:
    with table.writer() as writer:
        for each in memories():
            writer.write(each)
        table.commit(writer.prepare_commit())


def write_producer(table: Table) -> None:
    with table.writer() as writer:
        writer.write(producer())
        table.commit(writer.prepare_commit())


def append_in_transaction(table: Table) -> None:
    with table.transaction() as changes:
        for each in memories():
            changes.append(each)


def insert_by_merge(table: Table) -> None:
    table.merge(producer(), "id").when_not_matched_insert().execute()


def merge_later(table: Table) -> None:
    """The rows of a merge are those that were there when it was begun."""
    for piece in PIECES:
        memory = RefilledMemory(piece)
        merge = table.merge(memory.table, "id").when_not_matched_insert()
        memory.zero()
        merge.execute()


WAYS: dict[str, Way] = {
    "append": lambda table: table.append(producer()),
    "append, merging the schema": lambda table: table.append(producer(), schema_mode="merge"),
    "overwrite": lambda table: table.overwrite(producer()),
    "writer, each": write_each,
    "writer, producer": write_producer,
    "transaction": append_in_transaction,
    "merge": insert_by_merge,
    "merge later": merge_later,
}
KEYED = {"upsert": lambda table: table.upsert(producer())}
TABLES: dict[str, dict[str, object]] = {
    "plain": {},
    "partitioned": {"partition_by": ["part"]},
    "sorted": {"sort_by": ["view"]},
    "keyed": {"primary_key": ["id"], "properties": {"bucket": "1"}},
    "buckets": {"primary_key": ["id"], "properties": {"bucket": "3"}},
}


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("way", [*WAYS, *KEYED])
def test_rows_in_memory_that_is_refilled_are_stored_as_they_were(
    tmp_path: Path, kind: str, way: str
) -> None:
    if way in KEYED and "primary_key" not in TABLES[kind]:
        way = "append"
    table = Table.create(tmp_path / "t", SCHEMA, **TABLES[kind])  # type: ignore[arg-type]
    {**WAYS, **KEYED}[way](table)
    assert shown(table) == ALL.to_pylist()


def test_a_table_that_is_created_with_rows_of_a_producer_has_them(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", producer())
    assert table.scan().to_arrow().to_pylist() == ALL.to_pylist()


@pytest.mark.parametrize("way", ["append_batches", "append_batch", "writer", "in parts"])
def test_batches_in_memory_that_is_refilled_are_stored_as_they_were(
    tmp_path: Path, way: str
) -> None:
    table = Table.create(tmp_path / "t", SCHEMA)
    if way == "append_batches":
        table.append_batches(enumerate(memories()))
    elif way == "append_batch":
        for number, each in enumerate(memories()):
            table.append_batch(number, each)
    elif way == "writer":
        with table.writer() as writer:
            for number, each in enumerate(memories()):
                writer.append_batch(number, each)
            table.commit(writer.prepare_commit())
    else:
        table.append_batch(0, producer())
    assert table.scan().to_arrow().to_pylist() == ALL.to_pylist()


def test_a_data_frame_that_is_refilled_keeps_all_keys(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = Table.create(tmp_path / "t", schema, primary_key=["id"], properties={"bucket": "1"})
    frame = pd.DataFrame({"id": np.arange(1000)})
    with table.writer() as writer:
        for _ in range(5):
            writer.write(frame)
            frame["id"].to_numpy()[:] += 1000
        table.commit(writer.prepare_commit())
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(5000))


def test_keys_and_changes_in_memory_that_is_refilled_are_those_that_were_there(
    tmp_path: Path,
) -> None:
    table = Table.create(tmp_path / "t", SCHEMA, primary_key=["id"], properties={"bucket": "2"})
    table.append(ALL)
    keys = pa.schema([SCHEMA.field("id")])
    gone = [piece.select(["id"]).slice(0, 10) for piece in PIECES]
    found = table.lookup(batches_of_one_memory(gone), columns=["id"])
    assert found.sort_by("id").to_pylist() == pa.concat_tables(gone).to_pylist()
    key = {}
    generated = (key.update(id=number) or key for number in (1, 2, 3))
    assert table.lookup(generated, columns=["id"])["id"].to_pylist() == [1, 2, 3]
    changes = [each.append_column("kind", pa.array(["-D"] * each.num_rows)) for each in PIECES]
    half = [each.slice(20) for each in changes]
    kinds = SCHEMA.append(pa.field("kind", pa.string()))
    table.upsert(
        pa.RecordBatchReader.from_batches(kinds, batches_of_one_memory(half)), change_type="kind"
    )
    table.delete_keys(pa.RecordBatchReader.from_batches(keys, batches_of_one_memory(gone)))
    expected = [piece.slice(10, 10) for piece in PIECES]
    assert shown(table) == pa.concat_tables(expected).to_pylist()


def test_what_a_function_gives_is_kept_as_it_was(tmp_path: Path) -> None:
    """A function may give the same buffer, filled again, at every call."""
    table = Table.create(tmp_path / "t", pa.schema([("id", pa.int64())]))
    table.append({"id": np.arange(1000)})
    table.append({"id": np.arange(1000, 3000)})
    buffer = np.zeros(100, np.int64)

    def doubled(batch: pa.RecordBatch) -> pa.Array:
        filled = buffer[: batch.num_rows]
        filled[:] = batch["id"].to_numpy() * 2
        return pa.array(filled)

    new = pa.schema([("twice", pa.int64())])
    table.add_columns_with(doubled, read=["id"], schema=new, batch_rows=100, threads=1)
    found = table.scan().to_arrow().sort_by("id")
    assert found["twice"].to_pylist() == list(range(0, 6000, 2))

    values = np.zeros(3000, np.int64)

    def added(batch: pa.RecordBatch) -> pa.Array:
        filled = values[: batch.num_rows]
        filled[:] = batch["id"].to_numpy() + 7
        return pa.array(filled)

    table.update("id >= 500", {"twice": added})
    found = table.scan().to_arrow().sort_by("id")
    expected = [each * 2 if each < 500 else each + 7 for each in range(3000)]
    assert found["twice"].to_pylist() == expected


def test_values_filled_in_from_memory_that_is_refilled_are_as_they_were(tmp_path: Path) -> None:
    table = Table.create(tmp_path / "t", pa.schema([("id", pa.int64())]))
    table.append(ALL.select(["id"]))
    schema = pa.schema([SCHEMA.field("id"), SCHEMA.field("view")])
    given_rows = [piece.select(["id", "view"]) for piece in PIECES]
    table.fill_columns(
        pa.RecordBatchReader.from_batches(schema, batches_of_one_memory(given_rows)), on="id"
    )
    assert table.scan().to_arrow().to_pylist() == ALL.select(["id", "view"]).to_pylist()


def test_a_merge_that_is_tried_again_has_its_rows(tmp_path: Path) -> None:
    """A commit that comes first makes a transaction merge again, after the source was refilled."""
    table = Table.create(tmp_path / "t", SCHEMA)
    table.append(PIECES[0])
    memory = RefilledMemory(PIECES[1])
    with table.transaction() as changes:
        changes.merge(memory.table, "id").when_not_matched_insert().execute()
        memory.zero()
        Table.open(table.location).append(PIECES[1].slice(0, 5))
    assert shown(table) == pa.concat_tables(PIECES[:2]).to_pylist()


@given(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.sampled_from(sorted(TABLES)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_mix_of_writers_keeps_what_it_was_given(
    tmp_path_factory: pytest.TempPathFactory, calls: list[int], kind: str
) -> None:
    """One writer takes data frames, tables and producers by turns."""
    path = tmp_path_factory.mktemp("mix")
    table = Table.create(path / "t", SCHEMA, **TABLES[kind])  # type: ignore[arg-type]
    expected = []
    with table.writer() as writer:
        for number, call in enumerate(calls):
            piece = rows(1 + 40 * number)
            expected.append(piece)
            memory = RefilledMemory(piece)
            if call == 0:
                writer.write(memory.table)
            elif call == 1:
                writer.write(batches_of_one_memory([piece.slice(0, 10), piece.slice(10)]))
            else:
                writer.write(memory.table.to_reader(max_chunksize=7))
            memory.zero()
        table.commit(writer.prepare_commit())
    assert shown(table) == pa.concat_tables(expected).to_pylist()


def test_literals_of_pyarrow_expressions_that_a_merge_sets_are_the_callers_no_longer(
    tmp_path: Path,
) -> None:
    """A literal list is a view of memory that is filled again before the merge is executed."""
    memory = np.array([7], dtype=np.int64)
    values = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(memory)])
    literal = pc.scalar(pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), values)[0])
    table = Table.create(tmp_path / "t", pa.table({"id": [1], "list": [[1]]}))
    merge = table.merge(pa.table({"id": [1]}), "id").when_matched_update({"list": literal})
    memory[0] = 9
    merge.execute()
    assert table.to_arrow()["list"].to_pylist() == [[7]]
