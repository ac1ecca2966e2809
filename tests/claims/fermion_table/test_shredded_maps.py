"""Maps of a table whose keys have columns in its data files."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import fermion
from fermion import Shred, col
from fermion.errors import ColumnNotFoundError, InvalidArgumentError
from fermion_table import ColumnFunctionError, Table
from fermion_table.errors import CommitConflict

MAP = pa.map_(pa.string(), pa.float64())
MAPS = [[("age", 3.0), ("it's", 1.0)], None, [("age", 5.0)], []]
ROWS = pa.table({"id": range(4), "features": pa.array(MAPS, MAP)})
ALL = {"fermion.shred.features": "all"}


def keys_of(table: Table) -> list[list[str]]:
    """The keys with columns of the features in each data file."""
    found = []
    for entry in table.inspect.files()["path"].to_pylist():
        with fermion.open(Path(table.location) / entry) as file:
            found += [sorted(keys.keys) for keys in file.index.map_keys.values()]
    return found


@pytest.mark.parametrize(
    ("value", "keys"), [("all", ["age", "it's"]), ("1", ["age"]), ("it's, none", ["it's"])]
)
def test_files_are_shredded_as_the_property_says_and_stay_so_when_compacted(tmp_path, value, keys):
    properties = {"fermion.shred.features": value}
    table = Table.create(tmp_path / "t", ROWS, properties=properties)
    table.append(ROWS)
    assert keys_of(table) == [keys, keys]
    table.compact()
    assert keys_of(table) == [keys]
    assert table.scan().to_arrow()["features"].to_pylist() == MAPS * 2


def test_filters_by_a_key_read_its_column_and_agree_with_files_that_are_not_shredded(tmp_path):
    table = Table.create(tmp_path / "t", ROWS)
    table.set_properties(ALL)
    table.append(ROWS)
    assert keys_of(table) == [["age", "it's"]]
    for condition in ("features['age'] > 3", col("features")["age"] > 3, "features['age'] = 5"):
        assert table.scan(columns=["id"], filter=condition).to_arrow()["id"].to_pylist() == [2, 2]
        assert table.count(condition) == 2
    assert table.count("features['it''s'] IS NULL AND id < 3") == 4
    assert table.count("features['none'] = 1") == 0
    table.rename_column("features", "values")
    assert table.count("values['age'] > 3") == 2
    table.delete("values['age'] > 3")
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [0, 0, 1, 1, 3, 3]


def test_a_filter_by_a_key_reads_no_other_key(tmp_path):
    """Of a hundred keys with random values: the bytes requested are far from those of the map."""
    count, keys = 2_000, 100
    values = np.random.default_rng(7).random(count * keys)
    names = pa.array([f"k{at:02}" for at in range(keys)] * count)
    offsets = np.arange(0, count * keys + 1, keys, dtype=np.int32)
    maps = pa.MapArray.from_arrays(offsets, names, pa.array(values))
    rows = pa.table({"id": range(count), "features": maps})
    table = Table.create(tmp_path / "t", rows, properties=ALL)
    scan, whole = table.scan(columns=["id"], filter="features['k07'] > 0.99"), table.scan()
    assert 0 < scan.to_arrow().num_rows < 100
    assert whole.to_arrow().equals(rows)
    asked, everything = (each.io_stats["bytes_requested"] for each in (scan, whole))
    assert asked * 5 < everything


def test_sql_takes_an_integer_key_of_a_map_and_a_place_of_a_list(tmp_path):
    """Of a key it reads the column alone, as of a text; a list is what DuckDB says it is."""
    count, keys = 2_000, 100
    values = np.random.default_rng(7).random(count * keys)
    offsets = np.arange(0, count * keys + 1, keys, dtype=np.int32)
    items = pa.array(values), pa.array(np.tile(np.arange(keys), count))
    maps = pa.MapArray.from_arrays(offsets, items[1], items[0])
    lists = pa.array([[at, 7] for at in range(count)])
    rows = pa.table({"id": range(count), "features": maps, "l": lists})
    fermion.write_table(rows, tmp_path / "f", shred={"features": Shred()})
    table = Table.create(tmp_path / "t", rows, properties=ALL)
    matrix = values.reshape(count, keys)
    for condition, expected in {
        "features[7] > 0.99": matrix[:, 7] > 0.99,
        "0.99 < features[7] OR features[8] BETWEEN 0 AND 0.01": (matrix[:, 7] > 0.99)
        | (matrix[:, 8] <= 0.01),
        "features[100] IS NULL AND l[1] = 5": np.arange(count) == 5,
        "features[-7] = 1": np.zeros(count, bool),
        "features[7] + features[8] > 1.9": matrix[:, 7] + matrix[:, 8] > 1.9,
    }.items():
        scan = table.scan(columns=["id"], filter=condition)
        found = fermion.read_table(tmp_path / "f", columns=["id"], filter=condition)
        assert scan.to_arrow()["id"].to_pylist() == np.flatnonzero(expected).tolist()
        assert found["id"].to_pylist() == np.flatnonzero(expected).tolist()
        if "100" not in condition and "+" not in condition:
            assert scan.io_stats["bytes_requested"] * 5 < values.nbytes
    with pytest.raises(InvalidArgumentError, match="'x': expected a value of type int64"):
        table.count(col("features")["x"] > 1)


def test_keys_are_columns_of_scans_of_files_of_any_kind(tmp_path):
    """Of files that are shredded or not, that lack the map or the key, under old and new names."""
    table = Table.create(tmp_path / "t", ROWS.select(["id"]))
    table.add_columns(pa.schema([("features", MAP)]))
    table.append(ROWS)
    table.set_properties(ALL)
    table.append(ROWS)
    table.rename_column("features", "values")
    columns = ["values['age']", "id", ("values", "it's"), "values", "values['none']"]
    found = table.scan(columns=columns).to_arrow()
    names = ["values['age']", "id", "values['it''s']", "values", "values['none']"]
    assert found.column_names == names
    assert found["values['age']"].to_pylist() == [None] * 4 + [3.0, None, 5.0, None] * 2
    assert found["values['it''s']"].to_pylist() == [None] * 4 + [1.0, None, None, None] * 2
    assert found["values"].to_pylist() == [None] * 4 + MAPS * 2
    assert found["values['none']"].null_count == 12
    chosen = table.scan(columns=["values['age']"], filter="values['age'] > 3 AND id = 2")
    assert chosen.to_arrow().to_pylist() == [{"values['age']": 5.0}] * 2
    assert chosen.schema == pa.schema([("values['age']", pa.float64())])


@pytest.mark.parametrize("engine", ["deduplicate", "first_row", "partial_update", "aggregation"])
@pytest.mark.parametrize("properties", [{}, ALL])
def test_keys_are_columns_of_scans_of_rows_with_a_primary_key(tmp_path, engine, properties):
    """The same as those of whole maps: of files that are merged, and of one that is not."""
    settings = {**properties, "merge_engine": engine}
    table = Table.create(tmp_path / "t", ROWS.schema, primary_key=["id"], properties=settings)
    age, name = "features['age']", "features['it''s']"
    for first, values in ((0, MAPS), (2, [None, [("age", 9.0)]]), (2, [[("age", 7.0)]])):
        ids = range(first, first + len(values))
        table.upsert(pa.table({"id": ids, "features": pa.array(values, MAP)}))
        for columns in ([age], ["id", name, age], [age, "features"], [name, "id", "features", age]):
            for condition in (None, "id > 0", f"{age} > 4", f"{name} IS NULL"):
                whole = table.scan(filter=condition).to_arrow().to_pylist()
                rows = []
                for row in whole:
                    found = dict(row["features"] or [])
                    rows.append({**row, age: found.get("age"), name: found.get("it's")})
                scan = table.scan(columns=columns, filter=condition)
                expected = [{column: row[column] for column in columns} for row in rows]
                assert scan.to_arrow().to_pylist() == expected
                assert scan.count() == len(expected)
        every = table.scan().to_arrow()
        found = table.lookup([3, 0, 9, 3], columns=[name, "features", age]).to_pylist()
        maps = dict(zip(every["id"].to_pylist(), every["features"].to_pylist(), strict=True))
        assert found == [
            {name: dict(each or []).get("it's"), "features": each, age: dict(each or []).get("age")}
            for each in (maps[3], maps[0], maps[3])
        ]
    table.compact(full=True)
    assert table.scan(columns=[age]).to_arrow().num_rows == 4


def test_keys_of_any_text_are_columns_and_filters(tmp_path):
    """Also one with an asterisk, which was taken for a pattern of names of columns."""
    keys = ["", "a.b", "it's", 'q"', "[x]", "a*b", "日本", "['y']", "a,b", " s "]
    entries = [(key, float(number)) for number, key in enumerate(keys)]
    rows = pa.table({"id": range(3), "features": pa.array([entries, None, []], MAP)})
    for properties in ({}, ALL):
        table = Table.create(tmp_path / "t", rows, mode="overwrite", properties=properties)
        for key, value in entries:
            name = "features['{}']".format(key.replace("'", "''"))
            for column in (name, (name,), ("features", key)):
                found = table.scan(columns=[column]).to_arrow()
                assert found.to_pydict() == {name: [value, None, None]}
            assert table.count(f"{name} = {value}") == 1
            assert table.count(col("features")[key].is_null()) == 2


def test_keys_of_rows_with_a_primary_key_are_shredded_too(tmp_path):
    table = Table.create(tmp_path / "t", ROWS.schema, primary_key=["id"], properties=ALL)
    table.upsert(ROWS)
    table.upsert(ROWS.slice(2, 1))
    assert table.count("features['age'] > 3") == 1
    assert table.scan().to_arrow().sort_by("id")["features"].to_pylist() == MAPS
    table.compact()
    assert ["age", "it's"] in keys_of(table)
    assert table.scan().to_arrow().sort_by("id")["features"].to_pylist() == MAPS


def test_keys_of_what_is_no_map_are_refused_when_the_property_is_set(tmp_path):
    """By create, replacements and changes of properties: no writer is the first to find it."""
    wide = ROWS.schema.append(pa.field("n", pa.map_(pa.int8(), pa.int8())))
    table = Table.create(tmp_path / "t", wide)
    for name, value, kind, message in (
        ("id", "all", InvalidArgumentError, "shred: column 'id' is int64, expected a map"),
        ("feature", "all", ColumnNotFoundError, r"shred.feature'.*matches: 'features'"),
        ("features.key", "all", ColumnNotFoundError, "no column .features.key."),
        ("n", "1,x", InvalidArgumentError, "key 'x': expected a value of type int8"),
    ):
        properties = {f"fermion.shred.{name}": value}
        with pytest.raises(kind, match=message):
            table.set_properties(properties)
        with pytest.raises(kind, match=message):
            Table.create(tmp_path / "new", wide, properties=properties)
    assert not (tmp_path / "new").exists()
    with table.update_schema() as update:
        update.add_column("more", MAP).set_properties({"fermion.shred.more": "all"})
    assert table.schema.properties == {"fermion.shred.more": "all"}


def test_the_property_of_keys_goes_with_its_column(tmp_path):
    """Renamed with it, dropped with it; a snapshot of before has the property of before."""
    table = Table.create(tmp_path / "t", ROWS, properties=ALL)
    table.rename_column("features", "it's.new")
    assert table.schema.properties == {"fermion.shred.it's.new": "all"}
    table.append(ROWS.rename_columns(["id", "it's.new"]))
    assert keys_of(table) == [["age", "it's"]] * 2
    first = table.snapshots()[0]
    assert Table.open(tmp_path / "t", version=first.id).schema.properties == ALL
    table.drop_columns(["it's.new"])
    table.add_columns(pa.schema([("it's.new", pa.int8())]))
    assert table.schema.properties == {}
    table.append(pa.table({"id": [1], "it's.new": pa.array([1], pa.int8())}))


def test_maps_are_no_partitions_and_no_keys(tmp_path):
    for setting in ({"partition_by": ["features"]}, {"primary_key": ["features"]}):
        with pytest.raises(InvalidArgumentError, match="'features' is map<string, double>"):
            Table.create(tmp_path / "t", ROWS.schema, **setting)


@pytest.mark.parametrize("properties", [{}, ALL, {"fermion.shred.features": "age"}])
def test_a_key_is_added_beside_the_data_files(tmp_path, properties):
    """Also beside a null, over a value that is there, and taken away; no data file is rewritten."""
    table = Table.create(tmp_path / "t", ROWS, properties=properties)
    table.append_batch(8, ROWS)
    table.delete("id = 2")
    files, first = table.inspect.files()["path"].to_pylist(), table.snapshot.id
    table.branches.create("before")
    new, given = "features['new']", {0: 9.0, 1: 7.0, 3: None}

    def function(rows):
        assert rows.schema.names == ["id"]
        found = [given[each] for each in rows["id"].to_pylist()]
        return {new: found, "more": rows["id"], "features['age']": [None] * len(found)}

    columns = {new: pa.float64(), "more": pa.int64(), "features['age']": pa.float64()}
    table.add_columns_with(function, read=["id"], schema=pa.schema(columns))
    maps = [[("it's", 1.0), ("new", 9.0)], [("new", 7.0)], []] * 2
    for _ in range(2):
        rows = table.scan(columns=["id", "features", new, "more"]).to_arrow().to_pylist()
        assert [sorted(row["features"]) for row in rows] == maps
        assert [row[new] for row in rows] == [given[row["id"]] for row in rows]
        assert [row["more"] for row in rows] == [0, 1, 3] * 2
        assert table.count(f"{new} > 8") == 2
        assert table.count("features['age'] IS NULL AND id < 3") == 4
        assert table.verify(data=True).ok
        assert table.inspect.files()["path"].to_pylist() == files
        table.add_columns_with({new: f"{new} + 0"})  # reads what it writes
        table.add_columns_with(
            lambda rows: {new: rows[new]}, read=[new], schema=pa.schema({new: pa.float64()})
        )
    before = [MAPS[0], MAPS[1], MAPS[3]] * 2
    assert table.scan(snapshot_id=first).to_arrow()["features"].to_pylist() == before
    assert (
        Table.open(tmp_path / "t", branch="before").scan().to_arrow()["features"].to_pylist()
        == before
    )
    changes = table.scan_changes(first, columns=["id", new]).to_arrow()
    assert changes.num_rows == 8  # of two rows a file before and after
    table.compact(column_files_max=1)
    assert [sorted(each) for each in table.scan().to_arrow()["features"].to_pylist()] == maps
    if properties == ALL:
        assert {"it's", "new"} <= {key for keys in keys_of(table) for key in keys}


def test_integer_keys_of_maps_that_are_never_null_are_added(tmp_path):
    """With deleted rows, whose maps are empty; by a pickle of the function, as engines send it."""
    dtype = pa.map_(pa.int16(), pa.field("value", pa.list_(pa.string()), nullable=False))
    schema = pa.schema([pa.field("m", dtype, nullable=False), ("id", pa.int8())])
    maps = [[(5, ["a"]), (-1, [])], [], [(7, ["b", None])]]
    table = Table.create(tmp_path / "t", pa.table({"m": maps, "id": [0, 1, 2]}, schema))
    table.delete("id >= 1")
    table.append(pa.table({"m": maps, "id": [3, 4, 5]}, schema))

    def run(task, entries):
        for entry in entries:
            yield pickle.loads(pickle.dumps(task)).compute(entry)

    expressions = {"m[-1]": "[id::VARCHAR]", "m[6]": "m[7]"}
    table.add_columns_with(expressions, runner=run)
    expected = [[(5, ["a"]), (-1, [str(at)])] for at in (0, 3)]
    expected += [[(-1, ["4"])], [(7, ["b", None]), (-1, ["5"]), (6, ["b", None])]]
    assert table.scan().to_arrow()["m"].to_pylist() == expected
    assert table.verify(data=True).ok


def test_keys_that_can_not_be_added(tmp_path):
    """Values of another type, a map beside its key, and keys that the map cannot have."""
    table = Table.create(
        tmp_path / "t", ROWS.append_column("m", pa.nulls(4, pa.map_(pa.int8(), MAP)))
    )
    new = pa.field("features['new']", pa.float64())
    for schema, message in (
        ([new.with_type(pa.int8())], "'new'.*: expected type double, that of the map's values"),
        ([new, pa.field("features", MAP)], "'features' is there already"),
        ([pa.field("m['x']", MAP)], "key 'x': expected a value of type int8"),
        ([new, new], "is there twice"),
        ([new.with_nullable(False)], "NOT NULL"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            table.add_columns_with(lambda rows: {}, read=["id"], schema=pa.schema(schema))
    with pytest.raises(ColumnFunctionError, match="expected columns"):
        table.add_columns_with(
            lambda rows: {"features": rows["id"]}, read=["id"], schema=pa.schema([new])
        )
    assert table.snapshot.id == 1


def test_maps_that_others_change_while_a_key_is_added(tmp_path):
    """Values are read again; a map that is renamed, or another one, is a conflict, also later."""
    table = Table.create(tmp_path / "t", ROWS)
    new, calls = pa.schema([("features['new']", pa.float64())]), []

    def add(other, **options):
        def function(rows):
            calls.append(1)
            if len(calls) == 1:
                other(Table.open(tmp_path / "t"))
            return pa.array([1.0] * rows.num_rows) if len(calls) < 3 else 1 / 0

        table.add_columns_with(function, read=["id"], schema=new, threads=1, **options)

    given = {"id": [1, 3], "features": pa.array([[("new", 5.0), ("a", 6.0)], None], MAP)}
    add(lambda other: other.fill_columns(pa.table(given), on="id"))
    assert len(calls) == 2
    maps = [[*MAPS[0], ("new", 1.0)], [("a", 6.0), ("new", 1.0)], [*MAPS[2], ("new", 1.0)]]
    assert table.scan().to_arrow()["features"].to_pylist() == [*maps, [("new", 1.0)]]
    calls.clear()
    with pytest.raises(CommitConflict, match="'features', whose keys get values, was changed"):
        add(lambda other: other.rename_column("features", "f"))
    table.refresh()
    table.rename_column("f", "features")
    table.append(ROWS)
    calls[:] = [1]
    with pytest.raises(ColumnFunctionError) as caught:
        add(None)
    assert len(caught.value.finished) == 1
    table.drop_columns("features")
    table.add_columns({"features": MAP})
    with pytest.raises(CommitConflict, match="'features', whose keys get values, was changed"):
        add(None, resume=caught.value.finished)


def test_a_key_is_no_column_that_can_be_added(tmp_path):
    """A column of its name would hide the key; values of keys are what columns are made of."""
    table = Table.create(tmp_path / "t", ROWS, properties=ALL)
    name, before = "features['new']", table.schema
    for change in (
        lambda: table.add_columns(pa.schema([(name, pa.int64())])),
        lambda: table.append(ROWS.append_column(name, ROWS["id"]), schema_mode="merge"),
        lambda: table.rename_column("id", name),
    ):
        with pytest.raises(InvalidArgumentError, match="the map 'features' has the key 'new'"):
            change()
    for other in (
        "'features'['new']",
        '"features"["new"]',
        " features [new]",
        "features['a']['b']",
    ):
        with pytest.raises(InvalidArgumentError, match=r"names keys as features\['name'\]"):
            table.add_columns_with({other: "features['age'] + 1"})
    assert table.schema == before
    table.add_columns(pa.schema([("x['new']", pa.int64()), ("id[7]", pa.int64())]))
    table.add_columns_with({"more": "features['age'] + 1"})
    assert table.scan(columns=["more"]).to_arrow()["more"].to_pylist()[0] == MAPS[0][0][1] + 1


def test_parquet_has_whole_maps(tmp_path):
    """Both ways: a map becomes Parquet's, which is shredded on request."""
    first, second, third = (tmp_path / name for name in ("a.fermion", "b.parquet", "c.fermion"))
    fermion.write_table(ROWS, first, shred={"features": Shred()})
    fermion.to_parquet(first, second)
    options = fermion.WriteOptions(shred={"features": Shred(1)})
    fermion.from_parquet(second, third, options=options)
    with fermion.open(third) as file:
        assert file.index.map_keys[1].keys == ["age"]
        assert file.read()["features"].to_pylist() == MAPS
