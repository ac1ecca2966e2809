"""Aggregates in tasks: queries have the answers that Spark gives over Parquet files."""

from __future__ import annotations

import datetime
import math
import random
from decimal import Decimal
from functools import reduce
from operator import and_

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from pyspark.errors import ArithmeticException

import spark_ext
from fermion_table import Table
from spark_ext.catalog import scans
from spark_ext.session import settings as session_settings

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("big", pa.int64()),
        ("small", pa.uint8()),
        ("half", pa.float16()),
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("p", pa.decimal128(15, 2)),
        ("x", pa.decimal128(15, 2)),
        ("q", pa.decimal128(3, 1)),
        ("w", pa.decimal128(38, 4)),
        ("s", pa.string()),
        ("bin", pa.binary()),
        ("dt", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("n", pa.timestamp("us")),
        ("t", pa.bool_()),
        ("st", pa.struct([("a", pa.int32()), ("c", pa.string())])),
        ("arr", pa.list_(pa.int32())),
    ]
)
WIDER = {"small": pa.int16(), "half": pa.float32()}
READ = pa.schema([field.with_type(WIDER.get(field.name, field.type)) for field in SCHEMA])
"""Types as Spark reads the columns."""
FILES, FILE_ROWS = 3, 60
SHOWN = "aggregated in "


def random_rows(chance: random.Random, start: int, stop: int) -> pa.Table:
    """Floats, and decimals that become floats, whose sums are exact in any order, and a null in a
    sixth of all places."""
    utc = datetime.UTC

    def one(number: int) -> dict[str, object]:
        row = {
            "i": chance.randrange(-9, 9),
            "l": chance.randrange(-(10**12), 10**12),
            "big": chance.choice([2**62, -(2**63), 2**63 - 1, 5]),
            "small": chance.randrange(256),
            "half": chance.choice([0.0, -0.0, 0.0999755859375, 2.5]),
            "d": chance.choice([0.0, -0.0, math.nan, 1.5, -2.25, 4096.0, math.inf]),
            "f": chance.choice([0.0, -0.0, math.nan, 0.5, -7.25]),
            "p": Decimal(chance.randrange(-(10**6), 10**6)).scaleb(-2),
            "x": Decimal(chance.randrange(10)).scaleb(-2),
            "q": Decimal(5 * chance.randrange(-199, 200)).scaleb(-1),
            "w": chance.choice(
                [Decimal("0.0001"), Decimal(10**27), Decimal(-(10**26)), Decimal(7)]
            ),
            "s": chance.choice(["a", "b", "ab", "", "é", "zz"]),
            "bin": chance.choice([b"", b"\xff", b"a"]),
            "dt": datetime.date(1950, 1, 1) + datetime.timedelta(days=chance.randrange(30_000)),
            "ts": datetime.datetime(2020, 3, 1, tzinfo=utc)
            + datetime.timedelta(hours=chance.randrange(9)),
            "n": datetime.datetime(1960, 1, 1) + datetime.timedelta(days=chance.randrange(20_000)),
            "t": chance.random() < 0.5,
            "st": {"a": chance.choice([0, 1, 2, None]), "c": "c"},
            "arr": [1, None],
        }
        kept = {name: None if chance.random() < 0.16 else value for name, value in row.items()}
        return {"id": number, **kept}

    return pa.Table.from_pylist([one(number) for number in range(start, stop)], SCHEMA)


@pytest.fixture(scope="module")
def rows(spark, tmp_path_factory):
    """Tables `agg.t` and, with a primary key, `agg.keyed`, whose rows are the view `parquet`'s."""
    root = tmp_path_factory.mktemp("aggregates")
    chance = random.Random(20)
    table = Table.create(root / "lake" / "t", SCHEMA)
    keyed = Table.create(root / "lake" / "keyed", SCHEMA, primary_key=["id"])
    Table.create(root / "lake" / "empty", SCHEMA)
    (root / "parquet").mkdir()
    for number in range(FILES):
        start, stop = number * FILE_ROWS, (number + 1) * FILE_ROWS
        part = random_rows(chance, start, stop)
        table.append(part)
        file = root / "parquet" / f"{number}.parquet"
        # Statistics of Parquet leave NaN out: Spark would skip rows that it looks for.
        pq.write_table(part.cast(READ), file, write_statistics=False)
        keyed.upsert(random_rows(chance, start, stop))
        keyed.upsert(part)
    spark_ext.install_catalog(spark, "agg", root / "lake")
    spark.read.parquet(str(root / "parquet")).createOrReplaceTempView("parquet")
    spark.read.parquet(str(root / "parquet")).where("false").createOrReplaceTempView("no_parquet")
    return spark


def answers(spark, query, table):
    """Sorted rows; NaN is equal to itself, and zeros of both signs are equal."""
    found = spark.sql(query.format(t=table)).collect()
    return sorted(([_comparable(value) for value in row] for row in found), key=repr)


def _comparable(value):
    if not isinstance(value, float):
        return value
    return "NaN" if math.isnan(value) else value + 0.0


def is_pushed(spark, query, table="agg.t"):
    """Whether the plan says that tasks aggregate, or one task alone."""
    return SHOWN in spark.sql(f"EXPLAIN {query.format(t=table)}").collect()[0][0]


EXACT = [
    "i",
    "l",
    "p",
    "q",
    "x",
    "p * (1 - x)",
    "p * (1 - x) * (1 + x)",
    "i + 1",
    "i * small",
    "abs(q)",
    "-i",
    "coalesce(i, 0)",
    "cast(i AS BIGINT) * 3",
    "cast(q AS DECIMAL(12, 4))",
    "CASE WHEN {c} THEN p ELSE 0 END",
    "CASE WHEN {c} THEN 1 WHEN t THEN 2 END",
    "if({c}, x, q)",
]
FLOATS = ["d", "f", "half", "d / 4", "d * i", "d - 1", "cast(q AS DOUBLE)", "coalesce(d, 0.25D)"]
OTHERS = ["s", "bin", "dt", "ts", "n", "t", "st.a", "st.c", "w"]
CONDITIONS = [
    "i > 3",
    "d >= 0",
    "d = 0",
    "NOT (d < 1.5)",
    "d <=> double('NaN')",
    "f <> 0.5",
    "half >= 0.1F",
    "small < 100",
    "s LIKE 'a%'",
    "s LIKE '%b'",
    "s LIKE '%z%'",
    "s IN ('a', 'é')",
    "i IS NULL",
    "s IS NOT NULL",
    "st.a = 2",
    "ts >= TIMESTAMP '2020-03-01 04:00:00Z'",
    "dt < DATE '1990-01-01'",
    "t",
    "p < x",
    "q > 10",
    "w = 7",
    "i % 3 = -1",
    "l % -7 < i",
    "big % 100 = 7 OR small % 2 = 0",
    "p * 2 > x AND NOT (q + p < w)",
    "i + st.a = 3",
    "year(dt) % 4 = 0",
    "coalesce(s, st.c) >= st.c",
    "upper(s) = 'A'",
]
KEYS = ["s", "t", "i", "d", "f", "p", "q", "w", "dt", "ts", "n", "bin", "st.a", "year(dt)", "arr"]
SOURCES = ["{t}", "{t}", "{t} JOIN (SELECT i j, max(l) m FROM {t} GROUP BY i) ON i = j"]


@some.composite
def queries(draw):
    """A query over `{t}`."""

    def condition():
        one, other = (draw(some.sampled_from(CONDITIONS)) for _ in range(2))
        shape = draw(some.sampled_from(["{0}", "{0} AND {1}", "NOT ({0} OR {1})", "{0} OR {1}"]))
        return shape.format(one, other)

    def aggregate():
        kind = draw(some.sampled_from(["count", "sum", "avg", "min", "max", "count_distinct"]))
        allowed = EXACT + FLOATS + (OTHERS if kind not in ("sum", "avg") else [])
        of = draw(some.sampled_from(allowed)).replace("{c}", condition())
        return f"count(DISTINCT {of})" if kind == "count_distinct" else f"{kind}({of})"

    keys = draw(some.lists(some.sampled_from(KEYS), max_size=2, unique=True))
    aggregates = [aggregate() for _ in range(draw(some.integers(1, 4)))]
    where = f" WHERE {condition()}" if draw(some.booleans()) else ""
    by = f" GROUP BY {', '.join(keys)}" if keys else ""
    source = draw(some.sampled_from(SOURCES))
    return f"SELECT {', '.join([*keys, 'count(*)', *aggregates])} FROM {source}{where}{by}"


def check(spark, query):
    """In one task, where there are no keys, and in several."""
    expected = answers(spark, query, "parquet")
    for values_max in ([scans.ONE_TASK_VALUES_MAX] if " GROUP BY " not in query else []) + [0]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(scans, "ONE_TASK_VALUES_MAX", values_max)
            for table in ("agg.t", "agg.keyed"):
                assert answers(spark, query, table) == expected, (table, query, values_max)


@pytest.mark.long
@given(query=queries())
@settings(max_examples=4)
def test_random_queries_have_the_answers_of_spark(rows, query):
    """Over an append table, and a primary-key table whose rows were written twice."""
    check(rows, query)


@pytest.mark.slow
@pytest.mark.timeout(2 * 3600)
@given(query=queries())
@settings(max_examples=300, derandomize=False)
def test_very_many_random_queries_have_the_answers_of_spark(rows, query):
    """The long form."""
    check(rows, query)


Q1 = (
    "SELECT s, t, sum(q), sum(p), sum(p * (1 - x)), sum(p * (1 - x) * (1 + x)), avg(q), avg(x), "
    "count(*) FROM {t} WHERE dt <= DATE '1998-09-02' GROUP BY s, t"
)


def test_aggregates_are_pushed_down_and_shown(rows):
    """Expressions, conditions and keys of all kinds; averages of integers only if they fit."""
    sums = [f"sum({each.replace('{c}', CONDITIONS[0])})" for each in EXACT]
    ends = [f"max({each}), min({each})" for each in FLOATS + OTHERS]
    conditions = [each for each in CONDITIONS if "upper" not in each]
    counts = [f"count(CASE WHEN {each} THEN 1 END)" for each in conditions]
    pushed = [
        Q1,
        f"SELECT d, f, {', '.join(sums[:7])} FROM {{t}} GROUP BY d, f",
        f"SELECT {', '.join(sums[7:])} FROM {{t}}",
        f"SELECT st.a, year(dt), {', '.join(ends)} FROM {{t}} GROUP BY st.a, year(dt)",
        f"SELECT {', '.join(counts)}, avg(i), avg(l), sum(1) FROM {{t}}",
        "SELECT DISTINCT w, s FROM {t}",
    ]
    kept = [
        "SELECT sum(i) FROM {t} WHERE upper(s) = 'A'",
        "SELECT avg(big) FROM {t}",
        "SELECT sum(p / x) FROM {t} WHERE x > 0",
        "SELECT arr, count(*) FROM {t} GROUP BY arr",
        "SELECT max(st) FROM {t}",
        "SELECT count(DISTINCT s), sum(DISTINCT i) FROM {t}",
        "SELECT sum(cast(p AS DOUBLE)), max(cast(i AS STRING)) FROM {t}",
    ]
    for query in pushed:
        assert is_pushed(rows, query), query
        assert answers(rows, query, "agg.t") == answers(rows, query, "parquet"), query
    for query in kept:
        assert not is_pushed(rows, query), query
    average = kept[1]
    assert answers(rows, average, "agg.t") == answers(rows, average, "parquet")
    plan = rows.sql(f"EXPLAIN {Q1.format(t='agg.t')}").collect()[0][0]
    assert "SUM((p * (1 - x)) * (1 + x))" in plan
    assert "by s, t" in plan


def test_one_task_computes_what_is_asked_of_few_rows_without_keys(rows, monkeypatch):
    """The plan says so, and has no exchange; many rows, keys and large sums need several."""
    alone = [
        "SELECT count(i), sum(i), sum(p * (1 - x)), min(s), max(d), sum(d) FROM {t} WHERE i > 2",
        "SELECT sum(q), count(*), avg(d), avg(p), avg(i) FROM {t}",
        "SELECT sum(l), avg(l) FROM {t}",
        "SELECT max(w), min(f), max(dt), min(ts), max(t), min(bin) FROM {t} WHERE i < 5",
        "SELECT count(*), sum(q), max(n) FROM {t} WHERE i > 1000",
    ]
    shared = [
        "SELECT s, sum(i) FROM {t} GROUP BY s",
        "SELECT sum(w) FROM {t}",
        "SELECT sum(big) FROM {t} WHERE id < 1",
    ]
    for query in alone + shared:
        plan = rows.sql(f"EXPLAIN {query.format(t='agg.t')}").collect()[0][0]
        assert ("aggregated in one task" in plan) == (query in alone), query
        assert ("Exchange" in plan) == (query in shared), query
        assert answers(rows, query, "agg.t") == answers(rows, query, "parquet"), query
    for name, limit in (("ONE_TASK_VALUES_MAX", 100), ("ONE_TASK_SPLITS_MAX", FILES - 1)):
        with monkeypatch.context() as patch:
            patch.setattr(scans, name, limit)
            plan = rows.sql(f"EXPLAIN {alone[0].format(t='agg.t')}").collect()[0][0]
            assert "aggregated in tasks" in plan
            assert "Exchange" in plan


def test_a_sum_that_overflows_is_an_error_or_null_as_in_spark(rows):
    """Of integers in ANSI mode, without it, and with `try_sum`; of decimals an error too."""
    query = "SELECT sum(big) FROM {t}"
    assert is_pushed(rows, query)
    for table in ("agg.t", "parquet"):
        with pytest.raises(ArithmeticException, match="ARITHMETIC_OVERFLOW"):
            answers(rows, query, table)
    attempted = "SELECT s, try_sum(big) FROM {t} WHERE big > 5 GROUP BY s"
    assert answers(rows, attempted, "agg.t") == answers(rows, attempted, "parquet")
    with session_settings(rows, {"spark.sql.ansi.enabled": "false"}):
        for each in (query, "SELECT s, sum(q), sum(big), avg(p) FROM {t} GROUP BY s"):
            assert is_pushed(rows, each)
            assert answers(rows, each, "agg.t") == answers(rows, each, "parquet")
    product = "SELECT sum(w * p * 100000) FROM {t}"
    assert is_pushed(rows, product)
    with pytest.raises(Exception, match="NUMERIC_VALUE_OUT_OF_RANGE"):
        answers(rows, product, "agg.t")
    with pytest.raises(ArithmeticException, match="NUMERIC_VALUE_OUT_OF_RANGE"):
        answers(rows, product, "parquet")


def test_nothing_to_aggregate_is_a_count_of_zero(rows):
    """An empty table, a filter that leaves no file, and one that leaves no row."""
    everything = "SELECT count(*), count(s), sum(p), max(s), avg(i) FROM {t}"
    by_key = "SELECT s, count(*), sum(p) FROM {t} GROUP BY s"
    for query in (everything, by_key):
        assert answers(rows, query, "agg.empty") == answers(rows, query, "no_parquet")
    for condition in ("i > 1000", "i < 9 AND l = 3"):
        query = f"{everything} WHERE {condition}"
        assert is_pushed(rows, query)
        assert answers(rows, query, "agg.t") == [[0, 0, None, None, None]]


def test_queries_with_different_filters_on_one_view_do_not_mix(rows):
    """A filter that one query pushed down must not show in the next."""
    rows.table("agg.t").createOrReplaceTempView("seen")
    rows.table("agg.t").where("i >= 0").createOrReplaceTempView("positive")
    for view, within in (("seen", "parquet"), ("positive", "(SELECT * FROM parquet WHERE i >= 0)")):
        for condition in ("i > 3", "s = 'a'"):
            query = f"SELECT t, count(*), sum(p) FROM {{t}} WHERE {condition} GROUP BY t"
            assert answers(rows, query, view) == answers(rows, query, within)


LITERALS = {
    "i": ["-3", "2147483648", "1.5"],
    "small": ["-1", "200", "300"],
    "half": ["0.1F", "0.0", "float('NaN')"],
    "d": ["-0.0D", "1.5", "double('NaN')", "double('Infinity')"],
    "f": ["0.5", "0.1F", "float('NaN')"],
    "p": ["10", "0.005", "1e2"],
    "q": ["0.05", "99999"],
    "w": ["7", "1e27"],
    "s": ["'a'", "''", "'é'"],
    "bin": ["X'61'", "X''"],
    "dt": ["DATE '1990-01-01'"],
    "ts": ["TIMESTAMP '2020-03-01 04:00:00.000001Z'"],
    "n": ["TIMESTAMP_NTZ '1990-01-01 00:00:00'"],
    "t": ["true"],
    "st.a": ["1"],
}


@pytest.mark.long
def test_filters_that_spark_does_not_apply_again_select_its_rows(rows, monkeypatch):
    """Each comparison of each type: those that are claimed, counted without Spark."""
    claimed = []
    push = scans.TableScanBuilder.pushPredicates

    def spied(builder, predicates):
        left = push(builder, predicates)
        filters = [each for _, each in builder._pushed]
        claimed.append(None if len(left) or not filters else reduce(and_, filters))
        return left

    monkeypatch.setattr(scans.TableScanBuilder, "pushPredicates", spied)
    conditions = list(CONDITIONS)
    for name, literals in LITERALS.items():
        tested = "{0} < {1}", "{0} >= {1}", "NOT ({0} > {1})", "{0} <> {1} AND NOT ({0} <=> {1})"
        conditions += [each.format(name, value) for value in literals[:2] for each in tested]
        conditions += [f"{name} = {value}" for value in literals]
        conditions.append(f"{name} NOT IN ({', '.join(literals)})")
    expected = rows.sql(f"SELECT {', '.join(f'count_if({c})' for c in conditions)} FROM parquet")
    table = rows.sql("DESCRIBE EXTENDED agg.t").where("col_name = 'Location'").collect()[0][1]
    scan = Table.open(table.removeprefix("file:")).scan
    left = []
    for condition, count in zip(conditions, expected.collect()[0], strict=True):
        claimed.clear()
        rows.sql(f"SELECT id FROM agg.t WHERE {condition}")._jdf.queryExecution().optimizedPlan()
        if not claimed or claimed[-1] is None:
            left.append(condition)
        else:
            assert scan(filter=claimed[-1]).count() == count, condition
    # Of comparisons with literals Spark decides some alone: no decimal of 2 digits is 0.005.
    assert [each for each in left if each in CONDITIONS] == ["upper(s) = 'A'"]
    assert len(left) < 20


def test_planning_a_query_calls_the_jvm_a_few_hundred_times(rows, jvm_calls):
    """Each call costs some 0.1 ms; an exception of the JVM costs a hundred calls."""
    query = "SELECT sum(l) FROM agg.t"
    rows.sql(query).collect()  # knows the classes of the JVM afterwards
    jvm_calls.clear()
    rows.sql(query).collect()
    assert 0 < len(jvm_calls) < 350
