"""Iceberg mirrors, read with pyiceberg: field ids, partition functions, operations, catalogs."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable
from pyiceberg.utils.config import Config

from fermion.errors import InvalidArgumentError, UnsupportedTypeError
from fermion_table import CommitConflict, CorruptMetadata, Table
from fermion_table.mirrors import iceberg
from tests.kit.tables.mirrored import (
    SCHEMA,
    history,
    iceberg_versions,
    newest_metadata,
    rows,
    shown,
    source_rows,
)


def opened(location: Path) -> StaticTable:
    return StaticTable.from_metadata(newest_metadata(location))


def test_renaming_dropping_and_adding_columns_copies_no_file(tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA, durability="fast")
    table.append(rows(range(10)))
    table.mirrors.create("iceberg", tmp_path / "i")
    table.mirrors.publish()
    table.rename_column("v", "w")
    table.drop_columns(["w"])
    table.add_columns({"v": pa.float64()})
    table.rename_column("id", "number")
    (done,) = table.mirrors.publish()
    assert (len(done.snapshots), done.files_added) == (4, 0)
    found = opened(tmp_path / "i")
    assert shown(found.scan().to_arrow()) == shown(table.to_arrow())
    ids = {each.name: each.field_id for each in found.schema().fields}
    assert ids == {each.name: each.id for each in table.schema.fields}


def test_fields_inside_columns_keep_their_ids(tmp_path):
    inner = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.map_(pa.string(), pa.int64())))])
    table = Table.create(tmp_path / "t", pa.schema([("x", pa.int8()), ("s", inner)]))
    table.append(
        pa.table({"x": [1], "s": [{"a": 1, "b": [[("k", 2)]]}]}, schema=table.scan().schema)
    )
    table.mirrors.create("iceberg", tmp_path / "i")
    table.mirrors.publish()
    found = opened(tmp_path / "i")
    assert set(found.schema().field_ids) == set(table.schema.paths)
    table.rename_column("s.a", "z")
    (done,) = table.mirrors.publish()
    assert done.files_added == 0
    assert shown(opened(tmp_path / "i").scan().to_arrow()) == shown(table.to_arrow())


def test_operations_of_snapshots_are_those_of_the_commits(tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA, durability="fast")
    table.append(rows(range(10)))
    table.append(rows(range(10, 20)))
    table.delete("id < 10")
    table.delete("id = 12")
    table.append(rows([1]))
    table.compact()
    table.mirrors.create("iceberg", tmp_path / "i", history=True)
    table.mirrors.publish()
    summaries = [each.summary for each in opened(tmp_path / "i").snapshots()]
    assert [each.operation.value for each in summaries] == [
        *("append", "append", "append", "delete", "overwrite", "append", "replace", "append")
    ]
    assert [int(each["total-records"]) for each in summaries] == [0, 10, 20, 10, 9, 10, 10, 10]
    assert [int(each["total-data-files"]) for each in summaries] == [0, 1, 2, 1, 1, 2, 1, 1]
    (file,) = opened(tmp_path / "i").scan().plan_files()
    assert int(summaries[-1]["total-files-size"]) == file.file.file_size_in_bytes


PARTITIONS = {
    "number": pa.array([1, -2, None], pa.int16()),
    "day": pa.array([datetime.date(2020, 1, 1), None, datetime.date(1960, 5, 5)]),
    "flag": pa.array([True, False, None]),
    "text": pa.array(["a/b=c", "", None], pa.large_string()),
    "bytes": pa.array([b"\x00abc", b"", None], pa.large_binary()),
    "price": pa.array(
        [decimal.Decimal("1.25"), decimal.Decimal("-9.99"), None], pa.decimal128(6, 2)
    ),
    "at": pa.array([datetime.datetime(2020, 1, 1, 5), None, None], pa.timestamp("us", "UTC")),
    "second": pa.array([datetime.datetime(1969, 12, 31, 23), None, None], pa.timestamp("s")),
    "value": pa.array([1, 2, 3]),
}
FUNCTIONS = [
    *(f"{name}" for name in list(PARTITIONS)[:-1]),
    *(f"bucket(3, {name})" for name in ("number", "day", "text", "bytes", "price", "at")),
    *(f"truncate(2, {name})" for name in ("number", "text", "bytes", "price")),
    *(f"{unit}({name})" for unit in ("year", "month", "day") for name in ("day", "at", "second")),
    *("hour(at)", "hour(second)"),
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_partition_values_are_those_that_iceberg_computes_itself(tmp_path, function):
    """pyiceberg's own transform of each row's value, beside the value of its file."""
    given = pa.table(PARTITIONS)
    table = Table.create(tmp_path / "t", given.schema, partition_by=[function], durability="fast")
    table.append(given)
    table.mirrors.create("iceberg", tmp_path / "i")
    table.mirrors.publish()
    found = opened(tmp_path / "i")
    assert shown(found.scan().to_arrow()) == shown(given)
    (part,) = found.spec().fields
    source = found.schema().find_field(part.source_id)
    computed = part.transform.transform(source.field_type)
    for task in found.scan().plan_files():
        file = pq.read_table(task.file.file_path)
        listed = file[source.name].to_pylist() if source.name in file.column_names else [None]
        assert {computed(_internal(each)) for each in listed} == {task.file.partition[0]}


def _internal(value):
    """A value as functions of pyiceberg take it."""
    if isinstance(value, datetime.datetime):
        since = value.replace(tzinfo=None) - datetime.datetime(1970, 1, 1)
        return since // datetime.timedelta(microseconds=1)
    if isinstance(value, datetime.date):
        return (value - datetime.date(1970, 1, 1)).days
    return value


@pytest.mark.parametrize("function", ["bucket(3, second)", "float", "bucket(2, ms)"])
def test_functions_that_iceberg_computes_in_another_way_are_left_out(tmp_path, function):
    given = pa.table(
        {
            "second": pa.array([5, None], pa.timestamp("s")),
            "ms": pa.array([7, None], pa.time32("ms")),
            "float": [1.5, float("nan")],
        }
    )
    table = Table.create(tmp_path / "t", given.schema, partition_by=[function])
    table.append(given)
    table.mirrors.create("iceberg", tmp_path / "i")
    table.mirrors.publish()
    found = opened(tmp_path / "i")
    assert found.spec().is_unpartitioned()
    assert shown(found.scan().to_arrow()) == shown(given)


def test_a_filter_reads_only_files_that_may_match(tmp_path):
    table = Table.create(tmp_path / "t", SCHEMA, durability="fast")
    for start in range(0, 30, 10):
        table.append(rows(range(start, start + 10)))
    table.mirrors.create("iceberg", tmp_path / "i")
    table.mirrors.publish()
    found = opened(tmp_path / "i").scan(row_filter="id = 15")
    assert len(list(found.plan_files())) == 1
    assert found.to_arrow()["id"].to_pylist() == [15]


@pytest.mark.parametrize(
    "dtype",
    [
        *(pa.uint64(), pa.timestamp("ns"), pa.time64("ns"), pa.duration("s"), pa.null()),
        *(pa.decimal256(50, 2), pa.month_day_nano_interval(), pa.struct([]), pa.uuid()),
    ],
    ids=str,
)
def test_types_that_iceberg_lacks_are_refused_before_anything_is_written(tmp_path, dtype):
    table = Table.create(tmp_path / "t", pa.schema([("good", pa.int64()), ("bad", dtype)]))
    with pytest.raises(UnsupportedTypeError, match=r"iceberg mirror .*column 'bad"):
        table.mirrors.create("iceberg", tmp_path / "i")
    assert not (tmp_path / "i").exists()


def test_times_of_day_and_odd_names_are_kept(tmp_path):
    given = pa.table(
        {
            "a b;=": pa.array([1, None], pa.time32("s")),
            "A B;=": pa.array([2, None], pa.time64("us")),
        }
    )
    table = Table.create(tmp_path / "t", given.schema)
    table.append(given)
    table.mirrors.create("iceberg", tmp_path / "i")
    table.mirrors.publish()
    assert shown(opened(tmp_path / "i").scan().to_arrow()) == shown(given)


def test_many_manifests_become_one(tmp_path, monkeypatch):
    monkeypatch.setattr(iceberg, "MANIFESTS_MAX", 3)
    table = Table.create(tmp_path / "t", SCHEMA, partition_by=["kind"], durability="fast")
    for number in range(9):
        table.append(rows([number], "ab"[number % 2]))
    table.delete("id = 4")
    table.mirrors.create("iceberg", tmp_path / "i", history=True)
    table.mirrors.publish()
    for _, snapshot_id, found in iceberg_versions(tmp_path / "i"):
        assert shown(found) == source_rows(table, snapshot_id)
    found = opened(tmp_path / "i")
    counts = [len(each.manifests(found.io)) for each in found.snapshots()]
    assert max(counts) == 4
    assert counts.count(2) > 1


def test_another_writer_is_noticed_and_named(tmp_path):
    table = history(tmp_path / "t")
    table.mirrors.create("iceberg", tmp_path / "i")
    table.mirrors.publish()
    newest = Path(newest_metadata(tmp_path / "i"))
    data = newest.read_text().replace("fermion.snapshot-id", "someone.else")
    (newest.parent / "v2.metadata.json").write_text(data)
    with pytest.raises(CommitConflict, match=r"snapshot \d+ \(append\) was not written by"):
        table.mirrors.publish()


def test_metadata_that_is_broken_or_points_elsewhere_is_told(tmp_path):
    table = history(tmp_path / "t")
    table.mirrors.create("iceberg", tmp_path / "i")
    table.mirrors.publish()
    newest = Path(newest_metadata(tmp_path / "i"))
    (newest.parent / "v2.metadata.json").write_text("{")
    with pytest.raises(CorruptMetadata, match=r"v2\.metadata\.json: expected metadata of Iceberg"):
        table.mirrors.publish()
    moved = newest.read_text().replace(f"{tmp_path}/i/metadata/snap", "/elsewhere/snap")
    (newest.parent / "v2.metadata.json").write_text(moved)
    with pytest.raises(CorruptMetadata, match=r"expected files below .*, found /elsewhere"):
        table.mirrors.publish()


def test_a_table_of_somebody_else_is_never_a_mirror(tmp_path):
    other = history(tmp_path / "o")
    other.mirrors.create("iceberg", tmp_path / "i")
    other.mirrors.publish()
    table = history(tmp_path / "t")
    with pytest.raises(InvalidArgumentError, match="no mirror of this table's branch 'main'"):
        table.mirrors.create("iceberg", tmp_path / "i")


def test_a_replaced_table_is_shown_with_its_new_columns_and_partitions(tmp_path):
    table = history(tmp_path / "t", partition_by=["kind"])
    table.mirrors.create("iceberg", tmp_path / "i")
    table.mirrors.publish()
    other = Table.create(
        tmp_path / "t", {"city": ["x", "y"]}, partition_by=["bucket(2, city)"], mode="overwrite"
    )
    other.mirrors.create("iceberg", tmp_path / "i")
    other.mirrors.publish()
    for _, snapshot_id, found in iceberg_versions(tmp_path / "i"):
        assert shown(found) == source_rows(other, snapshot_id)


@pytest.fixture
def sql_catalog(tmp_path, monkeypatch):
    uri = f"sqlite:///{tmp_path}/catalog.db"
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", uri)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", str(tmp_path / "warehouse"))
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    return SqlCatalog("lake", uri=uri, warehouse=str(tmp_path / "warehouse"))


@pytest.mark.parametrize(
    "settings", [{}, {"primary_key": ["id"]}, {"partition_by": ["kind"]}], ids=str
)
def test_a_catalog_of_pyiceberg_has_the_mirror_as_a_table(tmp_path, sql_catalog, settings):
    table = history(tmp_path / "t", **settings)
    table.mirrors.create("iceberg", tmp_path / "i", catalog="lake", table="db.sales", history=True)
    (done,) = table.mirrors.publish()
    assert len(done.snapshots) == len(table.snapshots())
    found = sql_catalog.load_table("db.sales")
    for snapshot in found.snapshots():
        source = int(snapshot.summary["fermion.snapshot-id"])
        read = found.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
        assert shown(read) == source_rows(table, source)
    found.append(table.to_arrow().slice(0, 1).cast(found.schema().as_arrow()))
    with pytest.raises(CommitConflict, match="was not written by the mirror"):
        table.mirrors.publish()


@pytest.mark.parametrize(
    "options", [{"catalog": "lake"}, {"table": "db.t"}, {"catalog": "lake", "table": "t"}]
)
def test_half_of_a_catalog_is_refused(tmp_path, options):
    table = Table.create(tmp_path / "t", SCHEMA)
    with pytest.raises(InvalidArgumentError, match="expected both"):
        table.mirrors.create("iceberg", tmp_path / "i", **options)
