"""Variant columns are Spark's VARIANT in every way to read and to write."""

import json

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions

import spark_ext
from fermion import variant
from fermion_table import SchemaMismatch, Table
from spark_ext.versions import VARIANT_PARTS
from tests.kit.spark.versions import needs

pytestmark = pytest.mark.spark

VALUES = (
    """parse_json('{"user": {"id": 7, "name": "Ada"}, "tags": ["x", null, 1.5], "": {}}')""",
    """parse_json('{"b": 1, "a": {"d": 2, "c": [3e3, 12345678901234567890123456789]}}')""",
    "CAST(DATE'1969-12-31' AS VARIANT)",
    "CAST(TIMESTAMP'2026-01-02 03:04:05.678901Z' AS VARIANT)",
    "CAST(TIMESTAMP_NTZ'2026-01-02 03:04:05' AS VARIANT)",
    "CAST(1.50BD AS VARIANT)",
    "CAST(99999999999999999999999999999999999.125BD AS VARIANT)",
    "CAST(X'00FF' AS VARIANT)",
    "CAST(1.5F AS VARIANT)",
    "CAST(CAST(5 AS TINYINT) AS VARIANT)",
    "CAST(repeat('long', 100) AS VARIANT)",
    "to_variant_object(named_struct('z', DATE'2026-01-01', 'a', array(true, null)))",
    "parse_json('null')",
    "CAST(NULL AS VARIANT)",
)
"""Spark's names of objects are in the order of the text, so dictionaries are not sorted."""
SHOWN = "id, schema_of_variant({0}) AS kind, CAST({0} AS STRING) AS text"


@pytest.fixture(scope="module")
def lake(spark, tmp_path_factory):
    directory = tmp_path_factory.mktemp("variants")
    spark_ext.install_catalog(spark, "variants", directory)
    return directory


@pytest.fixture(scope="module")
def frame(spark):
    rows = ", ".join(f"({number}, {value})" for number, value in enumerate(VALUES))
    return spark.sql(f"SELECT * FROM VALUES {rows} AS (id, event)")


def shown(frame, column="event"):
    return frame.selectExpr(*SHOWN.format(column).split(", ")).orderBy("id").collect()


@pytest.mark.parametrize("paths", [None, "all", "user.id, user, b, a.d"])
def test_spark_gets_the_values_that_it_wrote(spark, lake, frame, paths):
    """By a function, the format and the catalog; with paths that have columns, and without."""
    properties = {} if paths is None else {"fermion.shred.event": paths}
    schema = pa.schema([("id", pa.int32()), ("event", variant.VariantType())])
    name = f"written{len(paths or '')}"
    table = Table.create(lake / name, schema, properties=properties)
    spark_ext.append(frame, lake / name)
    frame.write.format("fermion").mode("append").save(table.location)
    frame.writeTo(f"variants.{name}").append()
    expected = shown(frame.union(frame).union(frame))
    assert shown(spark_ext.read_table(spark, table.location)) == expected
    assert shown(spark.read.format("fermion").load(table.location)) == expected
    assert shown(spark.table(f"variants.{name}")) == expected
    table.refresh()
    texts = variant.to_json(table.scan().to_arrow()["event"]).to_pylist()
    assert '{"":{},"tags":["x",null,1.5],"user":{"id":7,"name":"Ada"}}' in texts
    assert table.verify().ok


def test_tables_made_by_spark_have_variant_columns_at_any_depth(spark, lake, frame):
    frame.createOrReplaceTempView("events")
    spark.sql(
        "CREATE TABLE variants.deep AS SELECT id, event, named_struct('v', event) AS s, "
        "array(event, event) AS l, map('k', event) AS m FROM events"
    )
    table = Table.open(lake / "deep")
    inner = variant.VariantType()
    assert table.schema.to_arrow(field_ids=False).field("event").type == inner
    expected = shown(frame)
    frames = [
        spark.table("variants.deep"),
        spark_ext.read_table(spark, table.location),
        spark.read.format("fermion").load(table.location),
    ]
    for read in frames:
        for column in ("event", "s.v", "l[1]", "m['k']"):
            assert shown(read, column) == expected, column
    assert spark_ext.read_table(spark, table.location, columns=["s.v"]).schema.simpleString() == (
        "struct<s:struct<v:variant>>"
    )
    spark.sql("ALTER TABLE variants.deep ADD COLUMN more VARIANT")
    more = frame.withColumn("other", functions.parse_json(functions.lit("[1]")))
    spark_ext.append(more, table.location, schema_mode="merge")
    names = table.refresh() and table.schema.names
    assert names == ["id", "event", "s", "l", "m", "more", "other"]
    assert table.schema.to_arrow(field_ids=False).field("other").type == inner
    spark_ext.write(frame, lake / "by_function")
    frame.write.format("fermion").mode("append").save(str(lake / "by_format"))
    for made in ("by_function", "by_format"):
        assert shown(spark.table(f"variants.{made}")) == expected


def test_statements_change_variant_values(spark, lake):
    spark.sql("CREATE TABLE variants.changed (id INT, event VARIANT)")
    spark.sql("""INSERT INTO variants.changed VALUES (1, parse_json('{"a": 1}')), (2, NULL)""")
    spark.sql("UPDATE variants.changed SET event = parse_json('[1]') WHERE event IS NULL")
    spark.sql(
        "MERGE INTO variants.changed t USING (SELECT 3 AS id, parse_json('3') AS event) s "
        "ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    )
    spark.sql("DELETE FROM variants.changed WHERE variant_get(event, '$.a', 'int') = 1")
    rows = spark.sql("SELECT id, to_json(event) FROM variants.changed ORDER BY id").collect()
    assert [tuple(row) for row in rows] == [(2, "[1]"), (3, "3")]
    changes = spark_ext.read_changes(spark, str(lake / "changed"), 0)
    assert changes.selectExpr("to_json(event)").distinct().count() == 4


def test_a_primary_key_table_takes_variant_values_from_spark(spark, lake, frame):
    schema = pa.schema(
        [pa.field("id", pa.int32(), nullable=False), ("event", variant.VariantType())]
    )
    table = Table.create(lake / "keyed", schema, primary_key=["id"], properties={"bucket": "1"})
    spark_ext.upsert(frame, table.location)
    flat = frame.selectExpr("id", "parse_json('[0]') AS event", "'u' AS op").where("id < 2")
    spark_ext.upsert(flat, table.location, format="debezium", change_type="op")
    read = spark_ext.read_table(spark, table.location)
    assert [row.text for row in shown(read)[:3]] == ["[0]", "[0]", "1969-12-31"]


def test_streams_carry_variant_values(spark, lake, frame, tmp_path):
    source = Table.create(
        lake / "source", pa.schema([("id", pa.int32()), ("event", variant.VariantType())])
    )
    sink = Table.create(lake / "sink", source.schema.to_arrow(field_ids=False))
    spark_ext.append(frame, source.location)
    stream = spark.readStream.format("fermion").option("startingSnapshotId", "0")
    query = (
        stream.load(source.location)
        .writeStream.format("fermion")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start(sink.location)
    )
    query.awaitTermination()
    assert shown(spark_ext.read_table(spark, sink.location)) == shown(frame)


PARTS = {
    "boolean": "true",
    "int": "2",
    "bigint": "2L",
    "double": "1.5D",
    "string": "'2'",
    "date": "DATE'2026-01-01'",
    "timestamp": "TIMESTAMP'2026-01-01 00:00:00'",
    "timestamp_ntz": "TIMESTAMP_NTZ'2026-01-01 00:00:00'",
}
JSON = (
    *("2", "1.5", "1.5e0", "true", "null", '"2"', '"true"', '"2026-01-01"', '" 2 "', "[2]", "{}"),
    *("3000000000", "-2", "2.0", "2.9", '"x"', "1e300", "1767225600"),
)


@pytest.fixture(scope="module", params=[None, "a"])
def of_all_types(request, spark, lake):
    """A table with values of all types in several files, and the same rows that Spark holds."""
    paths = request.param
    of_types = [f"CAST({value} AS VARIANT)" for value in (*PARTS.values(), "2.0F", "X'32'")]
    rows = [f"""parse_json('{{"a": {value}}}')""" for value in JSON]
    rows += [f"to_variant_object(named_struct('a', {value}))" for value in of_types]
    rows += ["parse_json('{}')", "parse_json('[]')", "NULL"]
    listed = ", ".join(f"({number}, {row})" for number, row in enumerate(rows))
    name = f"cast{len(paths or '')}"
    settings = "" if paths is None else f"TBLPROPERTIES ('fermion.shred.event' = '{paths}')"
    spark.sql(f"CREATE TABLE variants.{name} (id INT, event VARIANT) {settings}")
    for chosen in (f"id >= {len(JSON)}", "id < 3", f"id >= 3 AND id < {len(JSON)}", "id = 0"):
        spark.sql(
            f"INSERT INTO variants.{name} "
            f"SELECT id, event FROM VALUES {listed} AS (id, event) WHERE {chosen}"
        )
    plain = spark.table(f"variants.{name}").localCheckpoint()
    plain.createOrReplaceTempView(f"plain_{name}")
    return f"plain_{name}", f"variants.{name}"


@needs(VARIANT_PARTS)
def test_filters_of_parts_select_what_spark_selects(spark, of_all_types):
    """Values of all types, cast to all types: by Spark's rules, whatever has a column."""
    conditions = [
        condition
        for dtype, literal in PARTS.items()
        for part in [f"try_variant_get(event, '$.a', '{dtype}')"]
        for condition in (
            *(f"{part} {sign} {literal}" for sign in ("=", "<", ">=")),
            *(f"{part} IS NULL", f"{part} IN ({literal}) OR id = 1", f"NOT ({part} > {literal})"),
            f"{part} IS NOT NULL",
        )
    ]
    conditions += [
        "try_cast(event:a AS BIGINT) = 2",
        "try_variant_get(event, '$.a', 'string') LIKE '2%'",
    ]
    for start in range(0, len(conditions), 25):
        chosen = conditions[start : start + 25]
        found = [
            spark.sql(
                " UNION ALL ".join(
                    f"SELECT {number} AS number, id FROM {source} WHERE {condition}"
                    for number, condition in enumerate(chosen)
                )
            ).collect()
            for source in of_all_types
        ]
        assert sorted(found[1]) == sorted(found[0]), chosen


@needs(VARIANT_PARTS)
def test_parts_that_a_query_takes_are_those_of_whole_values(spark, of_all_types):
    """Selected, sorted and grouped by, aggregated; errors, too: Spark itself casts them."""
    parts = [f"try_variant_get(event, '$.a', '{dtype}')" for dtype in (*PARTS, "decimal(9, 2)")]
    shapes = ("'$.a[0]'", "'$.a.b'", "'$[0]'", "'$.none'")
    shapes = [f"try_variant_get(event, {path}, 'string')" for path in shapes]
    variants = (
        "CAST(variant_get(event, '$.a') AS STRING), is_variant_null(variant_get(event, '$.a'))"
    )
    queries = [
        f"SELECT id, event IS NULL, {', '.join([*parts, *shapes[:2]])} FROM {{}}",
        *(f"SELECT id, {each} FROM {{}}" for each in shapes),
        f"SELECT id, {variants}, {parts[0]} FROM {{}} WHERE id > 1",
        *(
            f"SELECT {each} AS part, count(*), max({parts[4]}) FROM {{}} GROUP BY 1"
            for each in parts
        ),
        f"SELECT {parts[4]} AS part, id FROM {{}} ORDER BY part, id LIMIT 7",
        f"SELECT count(DISTINCT {parts[1]}), sum({parts[3]}) FROM {{}} WHERE {parts[2]} > 0",
        f"SELECT l.id, r.id FROM {{0}} l JOIN {{0}} r ON {parts[2]} = r.id",
    ]
    queries[-1] = queries[-1].replace("(event", "(l.event")
    for query in queries:
        found = [spark.sql(query.format(source)) for source in of_all_types]
        assert ("variant_parts" in plan_of(found[1])) == ("'$[0]'" not in query), query
        rows = [sorted(frame.collect(), key=str) for frame in found]
        assert list(map(str, rows[0])) == list(map(str, rows[1])), query
    for dtype in ("int", "boolean", "date", "array<int>"):
        messages = []
        for source in of_all_types:
            frame = spark.sql(f"SELECT variant_get(event, '$.a', '{dtype}') FROM {source}")
            with pytest.raises(PySparkException) as caught:
                frame.where("id = 15").collect()
            messages.append((caught.value.getCondition(), caught.value.getMessageParameters()))
        assert messages[0] == messages[1]
        assert messages[0][0] == "INVALID_VARIANT_CAST"


def plan_of(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


NAMED = {"a.b": 1, "it's": 2, 'q"': 3, "über": 4, "a b": 5, "u": {"x": {"y": 6}, "z": 7}, "n": None}


@needs(VARIANT_PARTS)
def test_names_of_any_letters_are_those_of_spark(spark, lake):
    """In each way to read that tells the parts, from columns of all paths."""
    table = Table.create(
        lake / "named",
        pa.schema([("id", pa.int64()), ("event", variant.VariantType())]),
        properties={"fermion.shred.event": "all"},
    )
    texts = [
        json.dumps({name: NAMED[name] for name in NAMED if name != left}) for left in (*NAMED, 0)
    ]
    table.append({"id": range(len(texts) + 1), "event": variant.from_json([*texts, None])})
    plain = spark.table("variants.named").localCheckpoint()
    paths = ("$['a.b']", '$["it\'s"]', "$['q\"']", "$.über", "$['a b']", "$.a b", "$. u", "$.u.x.y")
    paths += ("$.u.x", "$.n", "$.u['z']", "$.u", "$['u'].x")
    for chosen in (paths[:5], paths[5:8], paths[7:10], paths[10:11], paths[9:]):
        quoted = [path.replace("\\", "\\\\").replace("'", "\\'") for path in chosen]
        columns = [f"try_variant_get(event, '{path}', 'string')" for path in quoted]
        for source in (spark.table("variants.named"), spark_ext.read_table(spark, table.location)):
            frame = source.selectExpr("id", *columns)
            assert "variant_parts" in plan_of(frame)
            expected = plain.selectExpr("id", *columns).orderBy("id").collect()
            assert frame.orderBy("id").collect() == expected, chosen
    assert "variant_parts" not in plan_of(source.selectExpr("event", columns[0]))


@needs(VARIANT_PARTS)
def test_a_filter_of_a_part_with_a_column_reads_no_other_rows(spark, lake):
    """Spark gets the rows that match alone, and errors of others are none."""
    table = Table.create(
        lake / "pruned",
        pa.schema([("id", pa.int64()), ("event", variant.VariantType())]),
        properties={"fermion.shred.event": "user.id"},
    )
    texts = [f'{{"user": {{"id": {number}}}}}' for number in range(1000)]
    table.append({"id": range(1000), "event": variant.from_json(texts)})
    table.append({"id": range(1000), "event": variant.from_json(texts[::-1])})
    frame = spark.table("variants.pruned")
    for condition in (
        "variant_get(event, '$.user.id', 'bigint') = 7",
        "variant_get(event, '$[\"user\"].id', 'int') = 7",
        "event:user.id::bigint = 7",
    ):
        chosen = frame.where(condition)
        assert "'$.user.id', 'bigint') = 7" in chosen._jdf.queryExecution().toString()
        assert sorted(row.id for row in chosen.collect()) == [7, 992]
    name = "variant_get(event, '$.user.id', 'bigint')"
    listed = json.dumps(["id", name])
    for reader in (
        spark_ext.read_table(spark, table.location, columns=["id", name]),
        spark.read.format("fermion").option("columns", listed).load(table.location),
    ):
        rows = reader.where(f"`{name}` < 2").orderBy("id").collect()
        assert [tuple(row) for row in rows] == [(0, 0), (1, 1), (998, 1), (999, 0)]
    exact = frame.where("variant_get(event, '$.user.id', 'bigint') = 7").groupBy().count()
    assert exact.collect()[0][0] == 2
    spark.sql("DELETE FROM variants.pruned WHERE variant_get(event, '$.user.id', 'int') < 999")
    table.refresh()
    assert table.count() == 2


def test_a_struct_is_no_variant(spark, lake):
    """Two binary fields of these names are a struct to Spark, and the table says what it has."""
    spark.sql("CREATE TABLE variants.strict (event VARIANT)")
    bad = spark.sql("SELECT named_struct('value', X'00', 'metadata', X'010000') AS event")
    with pytest.raises(SchemaMismatch, match="event"):
        spark_ext.append(bad, lake / "strict")
    with pytest.raises(PySparkException, match=r"event"):
        bad.write.format("fermion").mode("append").save(str(lake / "strict"))
