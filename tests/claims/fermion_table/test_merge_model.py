"""Merges of any clauses against the same merge of Python rows, one by one."""

from __future__ import annotations

import tempfile
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fermion.errors import InvalidArgumentError
from fermion_table import Table
from tests.kit.merge_model import (
    CLAUSES,
    GROUPS,
    LISTS,
    NUMBERS,
    OF_SOURCE,
    SCHEMA,
    SOURCE,
    TAKE_ALL,
    VALUES,
    Repeated,
    Row,
    counted,
    expected,
    rows_of,
)

TARGET_ROWS = st.lists(
    st.fixed_dictionaries({"id": NUMBERS, "g": GROUPS, "v": NUMBERS, "t": LISTS}), max_size=8
)
SOURCE_ROWS = st.lists(
    st.fixed_dictionaries(
        {"id": NUMBERS, "g": GROUPS, "v": NUMBERS, "t": LISTS}
        | {"op": st.sampled_from([None, "d", "u"])}
    ),
    max_size=6,
)
FILES = st.lists(st.tuples(TARGET_ROWS, st.booleans()), max_size=3)


def made_table(path: str, files: Any, *, is_partitioned: bool) -> Table:
    table = Table.create(
        path, SCHEMA, partition_by="g" if is_partitioned else None, durability="fast"
    )
    for number, (rows, in_batches) in enumerate(files):
        data = pa.Table.from_pylist(rows, SCHEMA)
        if in_batches:
            middle = len(rows) // 2
            table.append_batches([(number, data[:middle]), (number + 10, data[middle:])])
        else:
            table.append(data)
    return table


def batches_of(table: Table) -> Counter[Any]:
    found = table.scan(columns=["id", "batch_id"]).to_arrow().to_pylist()
    return Counter(row["batch_id"] for row in found if row["batch_id"] is not None)


@pytest.mark.long
@given(
    files=FILES,
    source_rows=SOURCE_ROWS,
    on=st.sampled_from([["id"], ["id", "g"], ["g"]]),
    clauses=CLAUSES,
    is_partitioned=st.booleans(),
    deleted=st.integers(0, 6),
)
def test_a_merge_does_what_the_same_merge_of_single_rows_does(
    files, source_rows, on, clauses, is_partitioned, deleted
):
    """Rows, counts and snapshots; where the model sees a repeated row, nothing changes."""
    with tempfile.TemporaryDirectory() as folder:
        table = made_table(f"{folder}/t", files, is_partitioned=is_partitioned)
        table.delete(f"v = {deleted}")
        before, version, batches = rows_of(table), table.snapshot.id, batches_of(table)
        builder = table.merge(pa.Table.from_pylist(source_rows, SOURCE), on)
        takes_all = False
        reads_op = False
        for step in (step for case in clauses for step in case):
            step.add_to(builder)
            takes_all |= step.values is TAKE_ALL
            reads_op |= step.condition is OF_SOURCE[0] or step.values is VALUES[2]
        if takes_all and not reads_op:
            builder = rebuilt(table, source_rows, on, clauses)
        try:
            rows, counts = expected(before, source_rows, on, clauses)
        except Repeated:
            with pytest.raises(InvalidArgumentError, match="match the same row"):
                builder.execute()
            assert counted(rows_of(table.refresh() and table)) == counted(before)
            assert table.snapshot.id == version
            return
        result = builder.execute()
        assert counted(rows_of(table)) == counted(rows)
        assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == counts
        assert result.snapshot.id == version + any(counts)
        assert table.snapshot.id == result.snapshot.id
        assert table.verify(data=True).ok
        if not counts[2]:
            assert batches_of(table) == batches


def rebuilt(table: Table, source_rows: list[Row], on: list[str], clauses: Any) -> Any:
    """The same merge of a source without the column that nothing reads."""
    builder = table.merge(pa.Table.from_pylist(source_rows, SOURCE).drop_columns("op"), on)
    for step in (step for case in clauses for step in case):
        step.add_to(builder)
    return builder
