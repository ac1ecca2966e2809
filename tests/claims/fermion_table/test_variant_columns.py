"""Variant columns of tables: everything that other columns do, but no key, order or index."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence

import pyarrow as pa
import pytest

import fermion
from fermion import col, variant
from fermion.columns.variants import STORAGE, VariantType
from fermion.errors import ColumnNotFoundError, FermionError, InvalidArgumentError
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
    for use in (
        lambda: table.count(filter=col("event")["user"] == 7),
        lambda: table.count("event.user > 7"),
        lambda: table.scan(columns=["event.user"]),
    ):
        with pytest.raises(ColumnNotFoundError, match=r"write variant_get\(event, '\$.user'"):
            use()
    with pytest.raises(InvalidArgumentError, match="'event' can't change"):
        table.alter_column("event", type=pa.string())


def test_paths_get_columns_as_a_property_says(tmp_path):
    """Filters read them, also of a column that was renamed, and of rows that were compacted."""
    texts = [
        json.dumps({"body": "x" * (at % 50), "user": {"id": at}}, separators=(",", ":"))
        for at in range(2_000)
    ]
    data = pa.table({"id": range(2_000), "event": variant.from_json(texts)})
    table = Table.create(tmp_path / "t", data.schema)
    table.append(data[:500])
    table.set_properties({"fermion.shred.event": "user.id"})
    table.append(data[500:])
    for name in ("event", "what"):
        user = col(name)["user"]["id"].cast(pa.int64())
        assert table.scan(filter=user == 700).to_arrow()["id"].to_pylist() == [700]
        assert table.count(f"variant_get({name}, '$.user.id', 'bigint') BETWEEN 499 AND 501") == 3
        if name == "event":
            table.rename_column("event", "what")
            assert table.properties["fermion.shred.what"] == "user.id"
    table.compact()
    (file,) = table.inspect.files()["path"].to_pylist()
    with fermion.open(tmp_path / "t" / file) as opened:
        (paths,) = opened.index.map_keys.values()
        assert paths.keys == [("user", "id")]
    assert table.count(col("what")["user"]["id"].cast(pa.int64()) < 10) == 10
    assert variant.to_json(table.scan().to_arrow()["what"]).to_pylist() == texts
    with pytest.raises(InvalidArgumentError, match="is no path"):
        table.set_properties({"fermion.shred.what": "user..id"})
    table.drop_columns(["what"])
    assert "fermion.shred.what" not in table.properties


PATH = "variant_get({}, '$.user.id', 'bigint')"


@pytest.mark.parametrize("properties", [{}, {"fermion.shred.event": "all"}])
def test_paths_are_columns_of_scans_of_files_of_any_kind(tmp_path, properties):
    """Of files that lack the column, have it in a file beside them, or under another name."""
    texts = [json.dumps({"user": {"id": at}}) for at in range(4)]
    data = pa.table({"id": range(4), "event": variant.from_json(texts)})
    table = Table.create(tmp_path / "t", data.select(["id"]), properties={})
    table.add_columns(pa.schema([data.schema.field("event")]))
    table.set_properties(properties)
    table.append(data)
    table.add_columns_with(
        lambda rows: pa.table({"beside": rows["event"]}),
        schema=pa.schema([data.schema.field("event").with_name("beside")]),
        read=["event"],
    )
    table.rename_column("event", "what")
    value = col("what")["user"]["id"].cast(pa.int64())
    expected = [None] * 4 + list(range(4))
    columns = [value, "id", PATH.format("beside"), "try_variant_get(what, '$.user', 'int')", "what"]
    found = table.scan(columns=columns).to_arrow()
    names = [PATH.format("what"), "id", PATH.format("beside"), columns[3], "what"]
    assert found.column_names == names
    assert found[0].to_pylist() == found[2].to_pylist() == expected
    assert found[3].to_pylist() == [None] * 8
    assert found["what"].null_count == 4
    some = table.scan(columns=[PATH.format("what")], filter=(value > 1) & (col("id") < 3))
    assert some.to_arrow().to_pylist() == [{names[0]: 2}]
    assert some.schema == pa.schema([(names[0], pa.int64())])
    assert pickle.loads(pickle.dumps(some)).select([value, "id"]).to_arrow()["id"].to_pylist() == [
        2
    ]
    table.branches.create("b")
    other = Table.open(table.location, branch="b")
    other.append(pa.table({"id": [9], "what": data["event"].slice(3)}))
    assert other.scan(columns=[value]).to_arrow()[0].to_pylist() == [*expected, 3]
    assert sorted(table.scan(columns=[value]).sample(8, seed=1)[0].to_pylist()[4:]) == [0, 1, 2, 3]
    assert table.scan(columns=[value]).take([5, 0])[0].to_pylist() == [1, None]
    for wrong, message in (
        (PATH.format("id"), "column 'id' is int64, expected a Variant column"),
        (PATH.format("none"), "no column 'none'"),
    ):
        with pytest.raises(FermionError, match=message):
            table.scan(columns=[wrong])


@pytest.mark.parametrize("engine", ["deduplicate", "partial_update"])
@pytest.mark.parametrize("properties", [{}, {"fermion.shred.event": "all"}])
def test_paths_are_columns_of_rows_with_a_primary_key(tmp_path, engine, properties):
    """The same as of whole values: of files that are merged, and of one that is not."""
    properties = {**properties, "merge_engine": engine}
    schema = pa.schema([("id", pa.int64()), ("event", VariantType())])
    table = Table.create(tmp_path / "t", schema, primary_key=["id"], properties=properties)
    name = PATH.format("event")
    for first, texts in ((0, ['{"user":{"id":1}}', None, "5"]), (2, ['{"user":{"id":7}}', "{}"])):
        ids = range(first, first + len(texts))
        table.upsert(pa.table({"id": ids, "event": variant.from_json(texts)}))
        whole = table.to_arrow()
        expected = variant.get(whole["event"], "$.user.id", pa.int64()).to_pylist()
        for columns in ([name], [name, "id"], ["event", name]):
            found = table.scan(columns=columns).to_arrow()
            assert found.column_names == columns
            assert found[name].to_pylist() == expected
        some = table.scan(columns=[name], filter=f"{name} > 1").to_arrow()[0].to_pylist()
        assert some == [each for each in expected if each is not None and each > 1]
        ids = whole["id"].to_pylist()
        numbers = [expected[ids.index(each)] for each in (0, 2)]
        assert table.lookup([0, 2], columns=[name])[name].to_pylist() == numbers


@pytest.mark.parametrize("producer", [None, "none", "input", "lookup"])
def test_parts_and_keys_are_columns_of_changes(tmp_path, producer):
    """Of an append table, and of keyed ones, where a row changes that has the same parts."""

    def state(ids: Sequence[int], other: int) -> pa.Table:
        events = [json.dumps({"user": {"id": at * 10}, "other": other}) for at in ids]
        maps = pa.array([[("a", at / 2)] for at in ids], pa.map_(pa.string(), pa.float64()))
        return pa.table({"id": ids, "event": variant.from_json(events), "f": maps})

    keyed = {} if producer is None else {"primary_key": ["id"]}
    properties = {"fermion.shred.event": "all"}
    if producer is not None:
        properties["changelog_producer"] = producer
    table = Table.create(tmp_path / "t", state([1], 0).schema, properties=properties, **keyed)
    write = table.append if producer is None else table.upsert
    start = write(state([1, 2], 0)).id
    write(state([2, 3], 1))
    part = col("event")["user"]["id"].cast(pa.int64())
    found = table.scan_changes(start, columns=[part, "f['a']", part], filter="id < 9").to_arrow()
    assert found.column_names[:2] == [part.to_sql(), "f['a']"]
    rows = sorted(zip(*(found[at].to_pylist() for at in range(3)), strict=True))
    inserted = [(20, 1.0, "insert"), (30, 1.5, "insert")]
    assert rows == (inserted if producer in (None, "input") else inserted[1:])


def test_columns_are_computed_from_parts_and_keys(tmp_path):
    """Also where another commit renames the columns that they are of."""
    events = variant.from_json(['{"user": {"id": 1}}', '{"user": {"id": 2}}'])
    maps = pa.array([[("a", 0.5)], []], pa.map_(pa.string(), pa.float64()))
    table = Table.create(tmp_path / "t", pa.table({"event": events, "f": maps}))
    part = col("event")["user"]["id"].cast(pa.int64())
    schema = pa.schema([("n", pa.int64()), ("x", pa.float64())])
    calls = []

    def computed(batch: pa.RecordBatch) -> dict[str, pa.Array]:
        if not calls:
            other = Table.open(tmp_path / "t")
            other.rename_column("event", "e")
            other.rename_column("f", "g")
        calls.append(batch.schema.names)
        return {"n": batch.column(0), "x": batch.column("f['a']")}

    table.add_columns_with(computed, read=[part, "f['a']"], schema=schema)
    assert set(map(tuple, calls)) == {(part.to_sql(), "f['a']")}
    assert table.to_arrow().drop_columns(["e", "g"]).to_pylist() == [
        {"n": 1, "x": 0.5},
        {"n": 2, "x": None},
    ]
