"""The position of a row in its batch stays what it was, whatever writes its file again."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fermion
from fermion.errors import InvalidArgumentError
from fermion_table import Table

SCHEMA = pa.schema([("v", pa.int64()), ("p", pa.int64())])
COLUMNS = ["batch_id", "index_in_batch", "v"]

Row = tuple[int, int, int]
"""Id of the batch, position in it, value."""


def positions(table: Table, **selection: Any) -> list[Row]:
    found = table.scan(columns=COLUMNS, **selection).to_arrow()
    return sorted(zip(*(found[name].to_pylist() for name in COLUMNS), strict=True))


def two_batches(path: Path, **options: Any) -> Table:
    """Batches 7 and 8 of ten rows, values 0 to 9 and 100 to 109; p is odd for odd values."""
    table = Table.create(path, SCHEMA, **options)
    for batch_id, first in ((7, 0), (8, 100)):
        values = range(first, first + 10)
        table.append_batch(batch_id, {"v": values, "p": [value % 2 for value in values]})
    return table


def all_but(*gone: int) -> list[Row]:
    rows = [(7, value, value) for value in range(10)]
    rows += [(8, value, 100 + value) for value in range(10)]
    return [row for row in rows if row[2] not in gone]


def test_a_compaction_of_deleted_rows_keeps_the_positions_of_the_others(table_path):
    table = two_batches(table_path)
    table.delete("v IN (1, 2, 100)")
    before = table.snapshot.id
    assert positions(table) == all_but(1, 2, 100)
    assert table.compact().groups == 1
    assert positions(table) == all_but(1, 2, 100)
    assert list(table.scan_changes(before).to_batches()) == []
    assert positions(table, filter="batch_id = 8 AND index_in_batch = 1") == [(8, 1, 101)]
    assert positions(table, filter="batch_id = 8 AND index_in_batch = 0") == []
    assert table.verify(data=True).ok


def test_a_second_delete_and_compaction_keep_positions_with_gaps(table_path):
    table = two_batches(table_path)
    table.delete("v < 3")
    table.compact()
    table.delete("v IN (4, 101, 109)")
    table.compact()
    assert positions(table) == all_but(0, 1, 2, 4, 101, 109)


def test_a_delete_that_rewrites_its_file_keeps_positions(table_path):
    """Of more than half of the rows."""
    table = two_batches(table_path)
    table.delete("v < 6")
    assert not any(entry.deletion_vector for entry in table.scan().entries[0])
    assert positions(table) == all_but(*range(6))


def test_updates_keep_positions(table_path):
    table = two_batches(table_path)
    table.delete("v IN (0, 100)")
    table.update("v = 5", {"p": 77})
    assert positions(table) == all_but(0, 100)
    assert positions(table, filter="p = 77") == [(7, 5, 5)]


def test_merges_keep_positions(table_path):
    table = two_batches(table_path)
    table.delete("v = 0")
    builder = table.merge({"v": [3, 5, 105], "p": [50, 60, 70]}, ["v"])
    builder = builder.when_matched_delete("source.p = 50").when_matched_update()
    builder.when_not_matched_by_source_delete("target.v = 108").execute()
    assert positions(table) == all_but(0, 3, 108)
    assert positions(table, filter="p >= 50") == [(7, 5, 5), (8, 5, 105)]


def test_columns_beside_a_file_and_their_compaction_keep_positions(table_path):
    table = two_batches(table_path)
    table.delete("v IN (0, 1)")
    table.compact()
    table.delete("v = 4")
    table.add_columns_with(
        lambda batch: {"w": batch["v"]}, read=["v"], schema=pa.schema([("w", pa.int64())])
    )
    wanted = all_but(0, 1, 4)
    found = table.scan(columns=["batch_id", "index_in_batch", "w"]).to_arrow().to_pylist()
    assert [tuple(row.values()) for row in found] == wanted
    table.compact(column_files_max=0)
    assert not any(entry.column_files for entry in table.scan().entries[0])
    assert positions(table) == wanted


def test_each_partition_counts_the_rows_of_a_batch_from_0(table_path):
    """Rows of a batch in two partitions are two batches of one id."""
    table = two_batches(table_path, partition_by="p")
    halves = [(7, value // 2, value) for value in range(10)]
    halves += [(8, value // 2, 100 + value) for value in range(10)]
    assert positions(table) == sorted(halves)
    table.delete("v IN (0, 1, 2, 103)")
    table.compact()
    left = sorted(row for row in halves if row[2] not in (0, 1, 2, 103))
    assert positions(table) == left
    assert positions(table, filter="p = 1 AND batch_id = 8 AND index_in_batch = 2") == [(8, 2, 105)]


def test_a_row_takes_its_position_to_another_partition(table_path):
    table = two_batches(table_path, partition_by="p")
    table.delete("v IN (0, 1)")
    table.update("v IN (4, 8, 9)", {"p": 5})
    assert positions(table, filter="p = 5") == [(7, 2, 4), (7, 4, 8), (7, 4, 9)]
    table.compact()
    assert positions(table, filter="p = 5") == [(7, 2, 4), (7, 4, 8), (7, 4, 9)]
    assert positions(table, filter="p = 0 AND batch_id = 7") == [(7, 1, 2), (7, 3, 6)]
    assert table.verify(data=True).ok


def test_equal_ids_in_several_files_stay_batches_of_their_own(table_path):
    table = Table.create(table_path, SCHEMA)
    for first in (0, 10, 20):
        table.append_batch(7, {"v": range(first, first + 4), "p": [0] * 4})
    table.delete("v IN (0, 12, 23)")
    table.compact()
    assert table.snapshot.totals.files == 1
    expected = [(7, at, first + at) for first in (0, 10, 20) for at in range(4)]
    assert positions(table, batch_id=7) == sorted(
        row for row in expected if row[2] not in (0, 12, 23)
    )


def test_files_without_gaps_are_of_the_version_before(table_path):
    """Deletes of whole batches, or of the end of one, leave nothing to be stored."""
    table = two_batches(table_path)
    table.delete("v < 10 OR v > 105")
    table.append_batch(9, {"v": [1], "p": [1]})
    table.compact()
    versions = []
    for deleted in (None, "v = 103"):
        if deleted is not None:
            table.delete(deleted)
            table.append_batch(9, {"v": [1], "p": [1]})
            table.compact()
        (entry,) = table.scan().entries[0]
        with fermion.open(io.BytesIO(table.store.read(entry.path)).getbuffer()) as file:
            versions.append(file.version)
    assert versions == [(1, 1), (1, 2)]


def test_a_writer_takes_positions_for_each_partition(table_path):
    table = Table.create(table_path, SCHEMA, partition_by="p")
    rows = {"v": [0, 1, 2, 3], "p": [1, 0, 1, 0]}
    with table.writer() as writer:
        writer.append_batch(7, rows, positions=pa.chunked_array([[1, 4], [6, 9]]))
        table.commit(writer.prepare_commit())
    assert positions(table) == [(7, 1, 0), (7, 4, 1), (7, 6, 2), (7, 9, 3)]


@pytest.mark.parametrize("partition_by", [(), "p"])
@pytest.mark.parametrize("given_", [[0], [1, 1], [0, -1], [0, 2**31]])
def test_wrong_positions_are_refused_and_leave_no_file(table_path, partition_by, given_):
    table = Table.create(table_path, SCHEMA, partition_by=partition_by)
    with pytest.raises(InvalidArgumentError, match="positions"), table.writer() as writer:
        writer.append_batch(7, {"v": [1, 2], "p": [0, 0]}, positions=given_)
    assert list(table.store.list("data")) == []


STEPS = st.one_of(
    st.tuples(
        st.just("append"),
        st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 9)), min_size=1, max_size=4),
    ),
    st.tuples(st.just("delete"), st.tuples(st.integers(2, 7), st.integers(0, 6))),
    st.tuples(st.just("update"), st.tuples(st.integers(2, 7), st.integers(0, 6))),
    st.tuples(st.just("compact"), st.just(())),
)


@pytest.mark.long
@settings(max_examples=40)
@given(st.lists(STEPS, min_size=3, max_size=12), st.booleans())
def test_positions_agree_with_a_plain_model(tmp_path_factory, steps, is_partitioned):
    """Appends, deletes, updates and compactions against rows with their positions in a list."""
    path = tmp_path_factory.mktemp("positions") / "table"
    partition_by = "p" if is_partitioned else ()
    table = Table.create(path, SCHEMA, partition_by=partition_by, durability="fast")
    model: dict[int, tuple[int, int]] = {}
    values = 0
    for kind, arguments in (*steps, ("compact", ())):
        before = table.snapshot.id
        if kind == "append":
            batches = []
            for batch_id, rows in arguments:
                own = np.arange(values, values + rows)
                batches.append((batch_id, {"v": own, "p": own % 2}))
                for place, value in enumerate(own.tolist()):
                    counted = sum(each % 2 == value % 2 for each in own[:place].tolist())
                    model[value] = batch_id, counted if is_partitioned else place
                values += rows
            table.append_batches(batches)
        elif kind == "compact":
            table.compact()
            assert list(table.scan_changes(before).to_batches()) == []
        else:
            modulus, rest = arguments
            chosen = [value for value in range(values) if value % modulus == rest % modulus]
            condition = f"v IN ({', '.join(map(str, chosen or [-1]))})"
            if kind == "delete":
                table.delete(condition)
                model = {value: row for value, row in model.items() if value not in chosen}
            else:
                table.update(condition, {"p": rest})
        assert positions(table) == sorted((*row, value) for value, row in model.items())
    for value, (batch_id, position) in list(model.items())[:5]:
        found = positions(table, filter=f"batch_id = {batch_id} AND index_in_batch = {position}")
        assert found == sorted(
            (*row, each) for each, row in model.items() if row == (batch_id, position)
        )
        assert (batch_id, position, value) in found
    assert table.verify(data=True).ok
