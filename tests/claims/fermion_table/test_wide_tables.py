"""What wide schemas cost: each name, and each run of field ids, is looked at a few times.

Without that 20,000 columns take minutes. Names and runs that count are passed in place of time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import acero

from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import Table
from fermion_table.commit.branch_schema import merged_schema, new_ids
from fermion_table.merge_engines.aggregation import Aggregation
from fermion_table.merge_engines.key_groups import StoredRows, group_rows
from fermion_table.merge_engines.partial_update import PartialUpdate
from fermion_table.metadata.manifest import ColumnFile, Entry, fields_by_file
from fermion_table.operations.assignments import assigned
from fermion_table.operations.merge_clauses import (
    Clause,
    MergeClauses,
    MergeSides,
    bind_clause,
)
from fermion_table.schema.changes import drop_columns
from fermion_table.schema.field_functions import FieldFunction, SequenceGroup
from fermion_table.schema.from_arrow import schema_from_arrow
from fermion_table.schema.key_options import KeyOptions
from fermion_table.schema.property_kinds import check_no_repeats
from fermion_table.schema.schema import TableSchema, check_names
from fermion_table.schema.selection import select_paths
from tests.kit.counting import CountedName, CountedRuns

COLUMNS = 1_000
MOST = 20 * COLUMNS
"""Comparing each with each would take half a million."""
NAMES = [CountedName(f"c{number}") for number in range(COLUMNS)]
VALUES = pa.array([1, 2, 3])
BATCH = pa.RecordBatch.from_arrays([VALUES] * COLUMNS, names=[str(name) for name in NAMES])
GROUPS = group_rows(np.array([0, 0, 1]), np.arange(3))
STORED = StoredRows(BATCH, GROUPS, (), None, is_oldest=True)


def counted(schema: TableSchema, prefix: str = "") -> TableSchema:
    """A schema whose columns have names that count."""
    fields = (
        msgspec.structs.replace(field, name=CountedName(prefix + field.name))
        for field in schema.fields
    )
    return msgspec.structs.replace(schema, fields=tuple(fields))


SCHEMA = counted(schema_from_arrow(BATCH.schema, properties={}))
STRUCT = schema_from_arrow(
    pa.schema([("s", pa.struct([(str(name), pa.int64()) for name in NAMES]))]), properties={}
)


def merge_branches() -> None:
    def side(name: str) -> TableSchema:
        added = [
            msgspec.structs.replace(
                field, id=COLUMNS + field.id, name=CountedName(name + field.name)
            )
            for field in SCHEMA.fields
        ]
        return msgspec.structs.replace(
            SCHEMA, fields=(*SCHEMA.fields, *added), last_field_id=2 * COLUMNS
        )

    branch, target = side("mine"), side("theirs")
    merged = merged_schema(SCHEMA, new_ids(SCHEMA, branch, target).schema(branch), target)
    assert len(merged.fields) == 3 * COLUMNS


def drop_half() -> None:
    dropped = drop_columns(SCHEMA, [(name,) for name in NAMES[::2]])
    assert len(dropped.fields) == COLUMNS // 2


def find_each() -> None:
    assert [SCHEMA.find(str(name)).id for name in NAMES] == [each.id for each in SCHEMA.fields]


def name_a_column_twice() -> None:
    with pytest.raises(InvalidArgumentError, match=f"called '{NAMES[-1]}'"):
        check_names([*NAMES, NAMES[-1]], "schema")
    with pytest.raises(InvalidArgumentError, match="named twice"):
        check_no_repeats("sequence.field", (*NAMES, NAMES[-1]))


def fold_aggregates() -> None:
    functions = {name: FieldFunction(name="sum") for name in NAMES}
    options = KeyOptions(merge_engine="aggregation", functions=functions)
    folded = Aggregation().fold(STORED, options)
    assert len(folded.values) == COLUMNS


def fold_sequence_groups() -> None:
    groups = [
        SequenceGroup(sequence=(NAMES[at],), columns=tuple(NAMES[at + 1 : at + 10]), functions={})
        for at in range(0, COLUMNS, 10)
    ]
    options = KeyOptions(merge_engine="partial_update", sequence_groups=tuple(groups))
    folded = PartialUpdate().fold(STORED, options)
    assert len(folded.values) == COLUMNS


def assign_half() -> None:
    made = assigned(BATCH, dict.fromkeys(NAMES[::2], 5), SCHEMA)
    assert made.column(0).to_pylist() == [5, 5, 5]


def merge_all_columns() -> None:
    sides = MergeSides(SCHEMA, BATCH.schema, MergeClauses({NAMES[0]: NAMES[0]}))
    clause = Clause(case="matched", action="update")
    assert len(bind_clause(clause, sides).values) == COLUMNS


def select_fields_of_a_struct() -> None:
    (field,) = STRUCT.fields
    field = field.with_children(
        msgspec.structs.replace(child, name=CountedName(child.name)) for child in field.children
    )
    paths = [("s", name) for name in NAMES[::2]]
    (chosen,) = select_paths([field], paths, where="t")
    assert len(chosen.children) == COLUMNS // 2


@pytest.mark.parametrize(
    "call",
    [
        merge_branches, drop_half, find_each, name_a_column_twice, fold_aggregates,
        fold_sequence_groups, assign_half, merge_all_columns, select_fields_of_a_struct,
    ],
)  # fmt: skip
def test_each_name_of_a_wide_schema_is_compared_a_few_times(call: Callable[[], None]) -> None:
    CountedName.compared = 0
    call()
    assert CountedName.compared < MOST


def test_each_run_of_ids_of_a_wide_file_is_looked_at_a_few_times() -> None:
    """Every second column holds data, so there are as many runs."""
    runs = CountedRuns((field.id, field.id) for field in SCHEMA.fields[::2])
    ids = [field.id for field in SCHEMA.fields]
    entry = Entry(path="f", size=1, rows=3, columns=runs)
    file = ColumnFile(path="b", size=1, rows=3, fields=runs)
    CountedRuns.visited = 0
    assert entry.with_data(ids) == set(ids[::2])
    own, beside = fields_by_file({0: SCHEMA.fields}, 0, ((0, file.fields),))
    assert [field.id for field in own] == ids[1::2]
    assert [field.id for field in beside] == ids[::2]
    moved = new_ids(SCHEMA, SCHEMA, msgspec.structs.replace(SCHEMA, last_field_id=9_999))
    assert moved.entry(entry, {0: SCHEMA}, {}) == entry
    assert 0 < CountedRuns.visited < MOST


def test_columns_of_the_last_of_several_files_count() -> None:
    """Runs in any order, overlapping ones, and fields that no run names."""
    fields = SCHEMA.fields[:6]
    layout = ((0, ((5, 5), (2, 3))), (1, ((3, 4),)), (0, ((1, 1), (1, 2))))
    found = fields_by_file({0: fields, 1: fields[1:]}, 0, layout)
    assert [[field.id for field in each] for each in found] == [[6], [5], [3, 4], [1, 2]]


def test_fields_are_dropped_one_after_the_other() -> None:
    """As single drops would: a field and then its struct, nothing twice, never the last."""
    schema = schema_from_arrow(
        pa.schema([("a", pa.int64()), ("s", pa.struct([("x", pa.int64()), ("y", pa.int64())]))]),
        properties={},
    )
    assert drop_columns(schema, [("s", "x"), ("s",)]).names == ["a"]
    assert drop_columns(schema, []) == schema
    for paths, match in (
        ([("a",), ("a",)], "no column 'a'"),
        ([("s", "x"), ("s", "x")], r"no column 's\.x'"),
        ([("s",), ("s", "x")], "no column"),
    ):
        with pytest.raises(ColumnNotFoundError, match=match):
            drop_columns(schema, paths)
    for paths, match in (
        ([("a",), ("s",)], "drop column 's': it is the last of the table"),
        ([("s", "x"), ("s", "y")], r"drop column 's\.y': it is the last of struct 's'"),
    ):
        with pytest.raises(InvalidArgumentError, match=match):
            drop_columns(schema, paths)


def test_a_merge_of_a_wide_table_takes_no_look_at_all_fields_for_each_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow's `struct_field` does; the fields of source and table are taken without it."""
    table = Table.create(tmp_path / "t", BATCH.schema, durability="fast")
    table.append(BATCH)
    calls: list[Any] = []
    real = pc.struct_field
    monkeypatch.setattr(pc, "struct_field", lambda *given: calls.append(given) or real(*given))
    source = pa.Table.from_batches([BATCH]).set_column(1, "c1", pa.array([7, 8, 9]))
    table.merge(source, on="c0").when_matched_update().execute()
    assert table.scan(columns=["c1"]).to_arrow()["c1"].to_pylist() == [7, 8, 9]
    assert len(calls) < 20


def test_an_expression_is_computed_from_the_columns_that_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table.create(tmp_path / "t", BATCH.schema, durability="fast")
    table.append(BATCH)
    widths: list[int] = []
    real = acero.TableSourceNodeOptions

    def watched(rows: pa.Table) -> Any:
        widths.append(rows.num_columns)
        return real(rows)

    monkeypatch.setattr(acero, "TableSourceNodeOptions", watched)
    expressions = {
        "c1": pc.add(pc.field("c2"), pc.field("c3")), "c4": pc.scalar(8), "c5": pc.field("c6"),
    }  # fmt: skip
    table.update("c0 > 1", expressions)
    assert table.scan(columns=["c1", "c4", "c5"], filter="c0 = 3").to_arrow().to_pylist() == [
        {"c1": 6, "c4": 8, "c5": 3}
    ]
    assert set(widths) == {1, 2}
