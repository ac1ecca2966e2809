"""Names of tables in a catalog: RENAME, LOCATION, and the list that the warehouse keeps."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException

import spark_ext
from fermion.errors import InvalidArgumentError
from fermion_table import Catalog, StorageAccess, Table, TableExists, TableNotFound
from spark_ext.catalog.directory import WarehouseDirectory

SHOWN = pytest.mark.spark


@pytest.fixture
def directory(tmp_path):
    """A warehouse with tables a.t and b.u, each with a row that has its name."""
    for space, name in (("a", "t"), ("b", "u")):
        table = Table.create(tmp_path / "w" / space / name, pa.schema([("name", pa.string())]))
        table.append({"name": [f"{space}.{name}"]})
    return WarehouseDirectory(str(tmp_path / "w"), None, StorageAccess())


def content(directory, *parts: str) -> list:
    return directory.open(parts, None, {}).scan().to_arrow()["name"].to_pylist()


def everything(directory) -> dict[str, list[str]]:
    """The tables of every namespace."""
    found = {}
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        space = waiting.pop()
        found[".".join(space)] = directory.tables(space)
        waiting += [(*space, name) for name in directory.namespaces(space)]
    return {space: names for space, names in found.items() if names}


def test_a_renamed_table_keeps_its_files_readers_and_writers(directory):
    """Into another namespace, to a name that was another's, and back, when no row is left."""
    reader = directory.open(["a", "t"], None, {})
    directory.rename(["a", "t"], ["new", "x"])
    assert everything(directory) == {"b": ["u"], "new": ["x"]}
    assert directory.is_namespace(["new"])
    assert not directory.exists(["a", "t"])
    with pytest.raises(TableNotFound, match=r"no table a\.t"):
        directory.open(["a", "t"], None, {})
    reader.append({"name": ["more"]})
    assert content(directory, "new", "x") == ["a.t", "more"]
    directory.rename(["b", "u"], ["a", "t"])
    directory.rename(["new", "x"], ["b", "u"])
    assert (content(directory, "a", "t"), content(directory, "b", "u")) == (
        ["b.u"],
        ["a.t", "more"],
    )
    directory.rename(["b", "u"], ["b", "v"])
    directory.rename(["a", "t"], ["b", "u"])
    directory.rename(["b", "v"], ["a", "t"])
    assert everything(directory) == {"a": ["t"], "b": ["u"]}
    assert Catalog.open(directory.root).tables() == ["a.t", "b.u"]


def test_python_and_sql_have_the_same_names(directory):
    """Those of the catalog in Python; also one whose name can't be that of a directory."""
    catalog = Catalog.open(directory.root)
    catalog.rename_table("a.t", "c.x")
    catalog.create_table(["c", "x/y.z"], pa.schema([("name", pa.string())]))
    catalog.drop_table("b.u")
    assert everything(directory) == {"c": ["x", "x/y.z"]}
    assert content(directory, "c", "x") == ["a.t"]
    assert content(directory, "c", "x/y.z") == []
    catalog.snapshots.create("q1", ["c.x"])
    directory.open(["c", "x"], None, {}).append({"name": ["more"]})
    assert directory.open(["c", "x"], "q1", {}).scan().count() == 1
    with pytest.raises(InvalidArgumentError, match="snapshots of the catalog hold"):
        directory.drop(["c", "x"])
    directory.drop(["c", "x/y.z"])
    directory.make_namespace(["d"])
    assert (catalog.tables(), "d" in catalog.namespaces()) == (["c.x"], True)


def test_names_that_are_taken_or_impossible_are_refused(directory):
    directory.rename(["a", "t"], ["a", "x"])
    for old, new, error in (
        (["a", "x"], ["b", "u"], TableExists),
        (["b", "u"], ["a", "x"], TableExists),
        (["a", "x"], ["a", "x"], TableExists),
        (["a", "t"], ["a", "y"], TableNotFound),
        (["a", "none"], ["a", "y"], TableNotFound),
        (["a", "x"], ["b"], InvalidArgumentError),
        (["b", "u"], ["a", "x", "y"], InvalidArgumentError),
        (["b", "u"], ["a", "t", "y"], InvalidArgumentError),
        (["b", "u"], ["_catalog", "tables"], InvalidArgumentError),
        (["b", "u"], ["b", ".hidden"], InvalidArgumentError),
        (["b", "u"], ["b", "x/y"], InvalidArgumentError),
    ):
        with pytest.raises(error):
            directory.rename(old, new)
    assert everything(directory) == {"a": ["x"], "b": ["u"]}
    with pytest.raises(InvalidArgumentError, match=r"a\.t is a table"):
        directory.make_namespace(["a", "t"])  # its directory
    with pytest.raises(TableExists, match=r"inside the table a\.x"):
        directory.place(["a", "x", "y"], None)
    place = directory.place(["a", "t"], None)
    assert place.startswith(f"{directory.root}/_catalog/data/a.t-")
    Table.create(place, pa.schema([("name", pa.string())]))
    directory.register(["a", "t"], place)
    assert everything(directory) == {"a": ["t", "x"], "b": ["u"]}


def test_of_two_renames_at_once_one_wins(directory):
    """To one name from two tables, and of one table to two names; both threads begin together."""
    for attempts in (
        [(["a", "t"], ["c", "one"]), (["b", "u"], ["c", "one"])],
        [(["c", "one"], ["c", "two"]), (["c", "one"], ["c", "three"])],
    ):
        outcomes: list[str] = []
        barrier = threading.Barrier(2)

        def attempt(old, new, outcomes=outcomes, barrier=barrier) -> None:
            other = WarehouseDirectory(directory.root, None, StorageAccess())
            barrier.wait()
            try:
                other.rename(old, new)
                outcomes.append("done")
            except (TableExists, TableNotFound):
                outcomes.append("refused")

        threads = [threading.Thread(target=attempt, args=each) for each in attempts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == ["done", "refused"]
        assert sum(len(names) for names in everything(directory).values()) == 2


def test_dropping_follows_the_names(directory, tmp_path):
    """Only the named table's files go; a namespace that holds another's files is not dropped."""
    directory.rename(["a", "t"], ["b", "x"])
    with pytest.raises(
        InvalidArgumentError, match=r"a/t \(a table of another name\) belong to no table"
    ):
        directory.drop_namespace(["a"])
    assert not directory.is_empty(["b"])
    Table.create(tmp_path / "out" / "r", pa.schema([("name", pa.string())]))
    directory.register(["b", "r"], str(tmp_path / "out" / "r"))
    assert not directory.is_inside(directory.find(["b", "r"]))
    with pytest.raises(InvalidArgumentError, match=r"registered.*PURGE"):
        directory.drop(["b", "r"], purge=True)
    directory.drop_namespace(["b"])
    assert everything(directory) == {}
    assert not (tmp_path / "w" / "a" / "t").exists()
    assert Table.exists(tmp_path / "out" / "r")
    assert directory.namespaces([]) == ["a"]


def test_a_registered_table_that_is_gone_can_be_dropped(directory, tmp_path):
    """Until then its name is taken, and the error says where it was."""
    there = tmp_path / "out"
    Table.create(there, pa.schema([("name", pa.string())]))
    directory.register(["a", "r"], str(there))
    there.rename(tmp_path / "moved")
    assert directory.exists(["a", "r"])
    with pytest.raises(TableNotFound, match=r"out, where no table lies any more"):
        directory.open(["a", "r"], None, {})
    directory.drop(["a", "r"])
    assert everything(directory) == {"a": ["t"], "b": ["u"]}


def test_places_that_can_not_be_registered(directory, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "w")
    for location, said in (
        (f"file:{tmp_path}/w/b/u", "lies in the warehouse"),
        (f"{tmp_path}/link/b/u", "lies in the warehouse"),
        (str(tmp_path), "or around it"),
        ("s3://key:secret@bucket/t", "storage_options"),
    ):
        with pytest.raises(InvalidArgumentError, match=said) as caught:
            directory.place(["a", "r"], location)
        assert "secret" not in str(caught.value)
    assert directory.place(["a", "r"], f"file:{tmp_path}/w/a/r") == f"{tmp_path}/w/a/r"
    assert directory.place(["a", "r"], f"file:{tmp_path}/a b") == f"{tmp_path}/a b"


@pytest.fixture(scope="module")
def warehouse(spark, tmp_path_factory):
    """The directory of catalog `named`."""
    directory = tmp_path_factory.mktemp("named")
    spark_ext.install_catalog(spark, "named", directory)
    return directory


def tables(spark, space: str) -> list[str]:
    return sorted(row.tableName for row in spark.sql(f"SHOW TABLES IN named.{space}").collect())


@SHOWN
def test_sql_renames_a_table(spark, warehouse):
    """Every spelling of the new name; a view and a cached frame of the old name; then CREATE."""
    spark.sql("CREATE TABLE named.db.t AS SELECT 1 AS a")
    for place, new, found in (
        ("db", "u", "db.u"),
        ("db.u", "other.v", "other.v"),
        ("other.v", "named.db.w", "db.w"),
    ):
        old = "db.t" if place == "db" else place
        spark.sql(f"ALTER TABLE named.{old} RENAME TO {new}")
        assert spark.table(f"named.{found}").collect() == [(1,)]
        with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
            spark.table(f"named.{old}")
    for statement, said in (
        ("ALTER TABLE named.db.w RENAME TO spark_catalog.default.w", "can't move from catalog"),
        ("ALTER TABLE named.db.none RENAME TO w2", "TABLE_OR_VIEW_NOT_FOUND"),
    ):
        with pytest.raises(PySparkException, match=said):
            spark.sql(statement)
    spark.sql("CREATE TABLE named.db.t AS SELECT 2 AS a")
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        spark.sql("ALTER TABLE named.db.t RENAME TO w")
    with pytest.raises(AnalysisException, match="ALREADY_EXISTS"):
        spark.sql("CREATE TABLE named.db.w (a INT)")
    spark.sql("INSERT INTO named.db.w VALUES (3)")
    spark.sql("CREATE OR REPLACE TABLE named.db.t AS SELECT a + 1 AS b FROM named.db.w")
    assert sorted(spark.table("named.db.t").collect()) == [(2,), (4,)]
    assert spark.sql("SELECT count(*) FROM named.db.w.snapshots").collect() == [(3,)]
    assert tables(spark, "db") == ["t", "w"]
    spark.sql("DROP TABLE named.db.t")
    spark.sql("DROP TABLE named.db.w")
    assert tables(spark, "db") == []
    assert not [path for path in warehouse.rglob("*.fermion") if "_catalog" not in path.parts]


@SHOWN
def test_sql_registers_a_table_elsewhere_or_makes_it_there(spark, warehouse, tmp_path):
    made = Table.create(tmp_path / "r", pa.schema([("a", pa.int32())]), partition_by=["a"])
    made.append({"a": [1]})
    there = f"LOCATION '{tmp_path}/r'"
    spark.sql(f"CREATE TABLE named.ext.r {there}")
    spark.sql("INSERT INTO named.ext.r VALUES (2)")
    assert made.refresh().totals.rows == 2
    (shown,) = spark.sql("SHOW CREATE TABLE named.ext.r").collect()[0]
    assert there in shown
    for statement, said in (
        (f"CREATE TABLE named.ext.s (a STRING) {there}", "columns: expected"),
        (
            f"CREATE TABLE named.ext.s (a INT) PARTITIONED BY (bucket(2, a)) {there}",
            "PARTITIONED BY: expected",
        ),
        (
            f"CREATE TABLE named.ext.s TBLPROPERTIES ('x.x' = '1') {there}",
            "property x.x: expected 1",
        ),
        (f"CREATE TABLE named.ext.s {there} AS SELECT 1 AS a", "exists here"),
        (
            f"CREATE OR REPLACE TABLE named.ext.s {there} AS SELECT 1 AS a",
            "exists here",
        ),
        (
            f"CREATE OR REPLACE TABLE named.ext.r LOCATION '{tmp_path}/s' AS SELECT 1 AS a",
            "the table lies in",
        ),
        (f"ALTER TABLE named.ext.r SET LOCATION '{tmp_path}/s'", "location can't be set"),
        ("DROP TABLE named.ext.r PURGE", "is registered"),
    ):
        with pytest.raises(PySparkException, match=said):
            spark.sql(statement)
    query = "AS SELECT * FROM named.ext.r"
    spark.sql(f"CREATE OR REPLACE TABLE named.ext.r PARTITIONED BY (a) {there} {query}")
    spark.sql("DROP TABLE named.ext.r")
    assert made.refresh().totals.rows == 2
    spark.sql(shown)
    assert spark.table("named.ext.r").count() == 2
    spark.sql(f"CREATE TABLE named.ext.new (a INT) LOCATION '{tmp_path}/a b/new'")
    spark.sql(f"CREATE TABLE named.ext.rows LOCATION '{tmp_path}/rows' AS SELECT 7 AS a")
    spark.sql("ALTER TABLE named.ext.rows RENAME TO named.ext.rows2")
    assert spark.table("named.ext.rows2").collect() == [(7,)]
    assert Table.exists(tmp_path / "a b" / "new")
    assert tables(spark, "ext") == ["new", "r", "rows2"]
    spark.sql("DROP NAMESPACE named.ext CASCADE")
    assert [Table.exists(tmp_path / each) for each in ("r", "rows", "a b/new")] == [True] * 3


@SHOWN
def test_tables_of_another_format_are_refused(spark, warehouse):
    """But Spark itself names its default format where the user has named none."""
    for statement, said in (
        ("CREATE TABLE named.db.p (a INT) USING parquet", "USING parquet"),
        ("CREATE TABLE IF NOT EXISTS named.db.p (a INT) USING parquet", "USING parquet"),
        ("CREATE TABLE named.db.p USING parquet AS SELECT 1 AS a", "USING parquet"),
        ("CREATE OR REPLACE TABLE named.db.p (a INT) USING parquet", "USING parquet"),
        ("CREATE OR REPLACE TABLE named.db.p USING delta AS SELECT 1 AS a", "USING delta"),
        ("CREATE TABLE named.db.p (a INT) STORED AS ORC", "STORED AS ORC"),
        ("CREATE TABLE named.db.p (a INT) ROW FORMAT SERDE 'x'", "STORED AS x"),
    ):
        with pytest.raises(PySparkException, match=f"{said}: this catalog has fermion tables only"):
            spark.sql(statement)
    with pytest.raises(PySparkException, match="USING orc"):
        spark.range(1).write.format("orc").saveAsTable("named.db.p")
    assert not Table.exists(warehouse / "db" / "p")
    spark.catalog.createTable("named.db.p2", schema=spark.range(1).schema)
    spark.sql("SELECT 1 AS id").write.saveAsTable("named.db.p")
    spark.range(2).write.format("fermion").mode("overwrite").saveAsTable("named.db.p")
    spark.sql("CREATE OR REPLACE TABLE named.db.p USING Fermion AS SELECT 1 AS a")
    spark.sql("DROP TABLE named.db.p")


@SHOWN
def test_a_primary_key_is_a_property_and_create_table_like_copies_it(spark, warehouse):
    spark.sql(
        "CREATE TABLE named.db.k (id BIGINT, day DATE, v INT COMMENT 'words') "
        "PARTITIONED BY (day) TBLPROPERTIES ('primary_key' = 'id, day', 'bucket' = '2')"
    )
    spark.sql("INSERT INTO named.db.k VALUES (1, date'2026-01-01', 1)")
    spark.sql("INSERT INTO named.db.k VALUES (1, date'2026-01-01', 2)")
    assert [row.v for row in spark.table("named.db.k").collect()] == [2]
    spark.sql("CREATE TABLE named.db.like LIKE named.db.k TBLPROPERTIES ('bucket' = '4')")
    like, made = (Table.open(warehouse / "db" / name) for name in ("like", "k"))
    assert like.schema.to_arrow() == made.schema.to_arrow()
    assert like.schema.primary_key == made.schema.primary_key
    assert like.schema.partition_by == made.schema.partition_by
    assert (like.properties["bucket"], like.scan().count()) == ("4", 0)
    for statement in (
        "SET TBLPROPERTIES ('primary_key' = 'id')",
        "UNSET TBLPROPERTIES ('sort_by')",
    ):
        with pytest.raises(PySparkException, match="is chosen by CREATE TABLE"):
            spark.sql(f"ALTER TABLE named.db.k {statement}")
    spark.sql("CREATE TABLE named.db.rows TBLPROPERTIES ('primary_key' = 'a') AS SELECT 1 AS a")
    assert Table.open(warehouse / "db" / "rows").schema.primary_key
    with pytest.raises(PySparkException, match="USING parquet"):
        spark.sql("CREATE TABLE named.db.l2 LIKE named.db.k USING parquet")
