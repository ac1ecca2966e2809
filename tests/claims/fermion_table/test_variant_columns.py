"""Variant columns of tables: everything that other columns do, but no key, order or index."""

from __future__ import annotations

import pickle
from collections.abc import Sequence

import pyarrow as pa
import pytest

from fermion.columns.variants import STORAGE, VariantType
from fermion.errors import InvalidArgumentError
from fermion_table import Table


@pytest.fixture
def event() -> pa.Field:
    """A field of Variant."""
    return pa.field("event", VariantType())


def rows(event: pa.Field, ids: Sequence[int], values: Sequence[int | None]) -> pa.Table:
    """Numbers as Variant values; None: the row has none. A chunk for each row."""
    made = [
        None if value is None else {"metadata": b"\x01\x00\x00", "value": bytes((12, value))}
        for value in values
    ]
    chunks = [pa.array([each], STORAGE) for each in made]
    chunks = [pa.ExtensionArray.from_storage(event.type, chunk) for chunk in chunks]
    schema = pa.schema([pa.field("id", pa.int64()), event])
    column = pa.chunked_array(chunks, event.type)
    return pa.table([pa.array(ids, pa.int64()), column], schema=schema)


def numbers(table: pa.Table, name: str = "event") -> dict[int, int | None]:
    """The number of each row by its id."""
    values = []
    for chunk in table[name].chunks:
        values += [each and each["value"][1] for each in chunk.storage.to_pylist()]
    return dict(zip(table["id"].to_pylist(), values, strict=True))


def test_rows_are_appended_changed_compacted_and_renamed(event, tmp_path):
    table = Table.create(tmp_path / "t", rows(event, [1, 2, 3], [7, None, 0]).slice(1))
    table.append(rows(event, [1], [9]))
    table.append(rows(event, [], []))
    assert table.to_arrow().schema.field("event").type == event.type
    assert numbers(table.to_arrow()) == {1: 9, 2: None, 3: 0}
    assert table.count(filter="event IS NULL") == 1
    table.rename_column("event", "e")
    table.add_columns(pa.schema([event]))
    assert numbers(table.to_arrow()) == {1: None, 2: None, 3: None}
    table.drop_columns(["event"])
    table.delete("id = 3")
    table.compact()
    assert numbers(table.to_arrow(), "e") == {1: 9, 2: None}
    assert numbers(pickle.loads(pickle.dumps(table)).to_arrow(), "e") == {1: 9, 2: None}
    assert table.verify().ok


def test_of_a_key_the_last_value_counts_as_one(event, tmp_path):
    """Merged as any value, with changes before and after it."""
    first = rows(event, [1, 2], [1, 2])
    table = Table.create(tmp_path / "t", first.schema, primary_key=["id"])
    table.append(first)
    table.append(rows(event, [2, 3], [5, None]))
    assert numbers(table.to_arrow()) == {1: 1, 2: 5, 3: None}
    table.compact()
    assert numbers(table.to_arrow()) == {1: 1, 2: 5, 3: None}


@pytest.mark.parametrize("use", ["partition_by", "primary_key", "sort_by"])
def test_keys_partitions_and_orders_refuse_it(event, use, tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"column 'event'.* expect"):
        Table.create(tmp_path / "t", rows(event, [1], [1]), **{use: ["event"]})
    assert not Table.exists(tmp_path / "t")


def test_indexes_comparisons_and_other_types_refuse_it(event, tmp_path):
    table = Table.create(tmp_path / "t", rows(event, [1], [1]))
    with pytest.raises(InvalidArgumentError, match=r"column 'event'.*expected booleans"):
        table.indexes.create("event")
    with pytest.raises(InvalidArgumentError, match=r"event is .*has no order"):
        table.count(filter="event = 'x'")
    with pytest.raises(InvalidArgumentError, match="'event' can't change"):
        table.alter_column("event", type=pa.string())
