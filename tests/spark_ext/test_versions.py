"""What versions of Spark lack: said in the documentation, and refused with the version."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pyarrow as pa
import pytest
import yaml
from pyspark.errors import PySparkException

import spark_ext
from fermion_table import Table
from spark_ext.datasource.stream import FermionStreamReader
from spark_ext.errors import UnsupportedBySpark
from spark_ext.options import Use, parse_options
from spark_ext.types import spark_schema
from spark_ext.versions import (
    ARROW_FUNCTIONS,
    BARE_ROWS,
    FEATURES,
    OPTIONS_OF_TABLES,
    READ_LIMITS,
    SERIES,
    SPARK,
    TIME_TYPE,
    SparkVersion,
    series_text,
)

PROJECT = Path(__file__).resolve().parents[2]
OLDEST = SparkVersion("4.0.5")
SCHEMA = pa.schema([("id", pa.int64())])


def test_the_page_on_spark_has_what_each_version_lacks():
    """Its table is that of `FEATURES`, line by line."""
    header = "| " + " | ".join(["", *(f"Spark {series_text(series)}" for series in SERIES)])[1:]
    expected = [
        " | ".join([f"| {feature.what}", *(mark(feature.since, series) for series in SERIES)])
        for feature in FEATURES
    ]
    lines = (PROJECT / "docs/spark.md").read_text().splitlines()
    start = lines.index(f"{header} |")
    assert lines[start + 2 : start + 2 + len(expected)] == [f"{line} |" for line in expected]
    assert not lines[start + 2 + len(expected)].startswith("|")


def mark(since: tuple[int, int], series: tuple[int, int]) -> str:
    return "yes" if series >= since else "no"


def test_the_package_and_the_targets_of_make_name_the_same_versions():
    """The bounds of the dependency, the environments of `make test-sparks`, the workflow."""
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    oldest, (major, minor) = series_text(SERIES[0]), SERIES[-1]
    bound = f"pyspark>={oldest},<{major}.{minor + 1}"
    assert bound in settings["project"]["optional-dependencies"]["spark"]
    others = [series_text(series) for series in SERIES[:-1]]
    makefile = (PROJECT / "Makefile").read_text()
    pins = re.findall(r"^SPARK_(\d)(\d) := (\d\.\d)\.\d+$", makefile, re.M)
    assert [pin for _, _, pin in pins] == others
    assert [f"{first}.{second}" for first, second, _ in pins] == others
    workflow = yaml.safe_load((PROJECT / ".github/workflows/sparks.yml").read_text())
    assert workflow["jobs"]["sparks"]["strategy"]["matrix"]["spark"] == others
    assert SPARK.is_known


def test_no_other_module_asks_for_the_version_of_spark():
    asking = re.compile(r"pyspark\.__version__|SPARK\.(series|text) *[<>=]|\.series\b")
    modules = set(PROJECT.glob("spark_ext/**/*.py")) - {PROJECT / "spark_ext/versions.py"}
    assert len(modules) > 50
    assert [module for module in modules if asking.search(module.read_text())] == []


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.what)
def test_what_a_version_lacks_is_refused_with_both_versions_and_what_to_do(feature):
    with pytest.raises(UnsupportedBySpark) as caught:
        OLDEST.require(feature, "table t")
    said = str(caught.value)
    for words in ("table t", feature.what, "4.0.5", series_text(feature.since), feature.instead):
        assert words in said
    SparkVersion(f"{series_text(feature.since)}.0").require(feature, "table t")


def test_a_column_of_times_is_refused_where_spark_has_no_type_for_it(monkeypatch):
    monkeypatch.setattr("spark_ext.types.SPARK", OLDEST)
    with pytest.raises(UnsupportedBySpark, match=r"column 't': type TIME: Spark 4\.1 .* 4\.0\.5"):
        spark_schema(pa.schema([("t", pa.time32("s"))]), where="table x")
    assert not OLDEST.has(TIME_TYPE)


def test_a_stream_without_limits_reads_all_and_refuses_a_limit(tmp_path, monkeypatch):
    """As Spark 4.0 and 4.1 ask for offsets: without saying where the micro-batch begins."""
    table = Table.create(tmp_path / "t", SCHEMA)
    for number in range(3):
        table.append({"id": [number]})

    def reader(**options: str) -> FermionStreamReader:
        given = parse_options({"path": table.location, **options}, Use.STREAM_READ)
        return FermionStreamReader(given, spark_schema(SCHEMA, where="test"))

    stream = reader()
    start, end = stream.initialOffset(), stream.latestOffset()
    parts = stream.partitions(start, end)
    read = [row for part in parts for batch in stream.read(part) for row in batch["id"].to_pylist()]
    assert sorted(read) == [0, 1, 2]
    assert stream.latestOffset() == end == stream.latestOffset(end)
    monkeypatch.setattr("spark_ext.datasource.stream.SPARK", OLDEST)
    with pytest.raises(UnsupportedBySpark, match=r"maxFilesPerTrigger.*Spark 4\.2.*4\.0\.5"):
        reader(maxFilesPerTrigger="1")
    assert not OLDEST.has(READ_LIMITS)


@pytest.mark.spark
def test_options_with_which_an_older_spark_does_not_load_a_table_are_never_ignored(
    spark, tmp_path, monkeypatch
):
    """A branch would be read or written as if it were main: each statement is refused."""
    table = Table.create(tmp_path / "db" / "t", SCHEMA)
    table.append({"id": [1, 2]})
    table.branches.create("dev")
    spark_ext.install_catalog(spark, "older", tmp_path)
    monkeypatch.setattr("spark_ext.catalog.loading.SPARK", OLDEST)
    frame = spark.range(7, 8)
    for statement in (
        lambda: spark.read.option("BRANCH", "dev").table("older.db.t").collect(),
        lambda: spark.read.option("snapshotId", 0).table("older.db.t").count(),
        lambda: spark.read.option("tag", "x").table("older.db.t.files").count(),
        lambda: spark.sql("SELECT * FROM older.db.t WITH ('branch' = 'dev')").collect(),
        lambda: spark.sql("INSERT INTO older.db.t WITH ('branch' = 'dev') VALUES (3L)"),
        lambda: spark.sql("UPDATE older.db.t WITH ('branch' = 'dev') SET id = 5 WHERE id % 2 = 0"),
        lambda: spark.sql("DELETE FROM older.db.t WITH ('branch' = 'dev') WHERE id % 2 = 0"),
        lambda: frame.writeTo("older.db.t").option("branch", "dev").append(),
    ):
        # A branch that is loaded nevertheless, a syntax that is newer, a tag that is not there.
        with pytest.raises(PySparkException, match=r"this is Spark 4\.0\.5|SYNTAX|no tag"):
            statement()
    assert sorted(row.id for row in spark.table("older.db.t").collect()) == [1, 2]
    assert table.refresh().id == 1
    assert Table.open(table.location, branch="dev").snapshot.id == 1
    assert not OLDEST.has(OPTIONS_OF_TABLES)


@pytest.mark.spark
@pytest.mark.parametrize("version", [OLDEST, SPARK], ids=lambda version: version.text)
def test_no_row_is_lost_where_spark_needs_none_of_its_columns(
    spark, tmp_path, monkeypatch, version
):
    """Spark 4.0 takes a batch without columns for one without rows."""
    table = Table.create(tmp_path / "db" / "t", pa.schema([("id", pa.int64()), ("b", pa.string())]))
    table.append({"id": list(range(20)), "b": ["x"] * 20})
    spark_ext.install_catalog(spark, "bare", tmp_path)
    for module in ("spark_ext.reading.task", "spark_ext.catalog.scans"):
        if version is OLDEST:
            monkeypatch.setattr(f"{module}.SPARK", version)
    lacks = not (version.has(BARE_ROWS) and SPARK.has(BARE_ROWS))
    rows = spark.sql("SELECT 1 FROM bare.db.t WHERE id < 12").collect()
    assert len(rows) == 12
    assert spark.sql("SELECT 1 FROM bare.db.t CROSS JOIN range(2)").count() == 40
    assert spark_ext.read_table(spark, table.location, columns=[]).count() == 20
    if lacks:
        with pytest.raises(UnsupportedBySpark, match=r"without columns: Spark 4\.1.*4\.0"):
            spark_ext.read_table(spark, table.location, columns=[], filter="id < 12")
    else:
        filtered = spark_ext.read_table(spark, table.location, columns=[], filter="id < 12")
        assert filtered.count() == 12
    if not SPARK.has(BARE_ROWS):
        with pytest.raises(PySparkException, match="without columns"):
            spark.read.format("fermion").option("columns", "[]").load(table.location).count()


@pytest.mark.spark
@pytest.mark.parametrize("version", [OLDEST, SPARK], ids=lambda version: version.text)
def test_trees_are_gathered_with_and_without_functions_over_arrow_data(
    spark, tmp_path, monkeypatch, version
):
    """Each tree, by partitions of computed values and buckets, gets the files of one task."""
    if version.has(ARROW_FUNCTIONS) and not SPARK.has(ARROW_FUNCTIONS):
        pytest.skip("this Spark has none")
    monkeypatch.setattr("spark_ext.writing.clustering.SPARK", version)
    schema = pa.schema([("id", pa.int64()), ("Part.y", pa.string()), ("v", pa.decimal128(9, 2))])
    table = Table.create(
        tmp_path / "keyed",
        schema,
        primary_key=["id", "Part.y"],
        partition_by=["truncate(2, Part.y)"],
        properties={"bucket": "3"},
    )
    rows = (
        spark.range(600)
        .repartition(5)
        .selectExpr(
            "id % 200 AS id",
            "concat('p', id % 2, 'x') AS `Part.y`",
            "CAST(id AS DECIMAL(9, 2)) AS v",
        )
    )
    spark_ext.upsert(rows, table.location)
    table.refresh()
    assert table.scan().count() == 200
    assert table.snapshot.totals.files == 6  # two partitions of three buckets
