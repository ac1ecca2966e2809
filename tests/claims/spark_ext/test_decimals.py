"""Decimals near the limits: queries have the answers, or errors, that Spark gives over Parquet."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import ArithmeticException, PythonException
from pyspark.sql import SparkSession

import spark_ext
from fermion_table import Table
from spark_ext.catalog import scans

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("a", pa.decimal128(18, 2)),
        ("b", pa.decimal128(18, 2)),
        ("c", pa.decimal128(20, 0)),
        ("e", pa.decimal128(38, 0)),
        ("f", pa.decimal128(38, 6)),
        ("g", pa.decimal128(38, 38)),
        ("n", pa.decimal128(20, -2)),
        ("m", pa.decimal256(38, 3)),
        ("k", pa.int64()),
    ]
)
READ = {"n": pa.decimal128(22, 0), "m": pa.decimal128(38, 3)}
"""Types as Spark reads the columns, where they differ."""
DECIMALS = SCHEMA.names[1:-1]
LITERALS = ["0", "1", "-2.5", "9223372036854775808", "99999999999999999999", "1" + "0" * 37]
FILES, FILE_ROWS = 3, 8


def decimal(unscaled: int, dtype: pa.DataType) -> Decimal:
    return Decimal(f"{unscaled}e{-dtype.scale}")


def random_rows(chance: random.Random, start: int) -> pa.Table:
    """Small values, which few operations overflow, values near the limits, and nulls."""

    def one(dtype: pa.DataType) -> Decimal | int | None:
        kind = chance.randrange(6)
        if kind == 0:
            return None
        if pa.types.is_integer(dtype):
            return chance.choice([2**63 - 1, -(2**63), 7, chance.randrange(-100, 100)])
        most = 10**dtype.precision - 1
        edges = [most, -most, most // 2, 2**63, -(2**63) - 1, 10**17]
        near = [each for each in edges if abs(each) <= most]
        small = chance.randrange(-500, 500)
        return decimal(chance.choice(near) if kind == 1 else small, dtype)

    return pa.Table.from_pylist(
        [
            {"id": start + row} | {field.name: one(field.type) for field in list(SCHEMA)[1:]}
            for row in range(FILE_ROWS)
        ],
        SCHEMA,
    )


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """Table `decimals.t`, whose rows are the view `decimals_of_parquet`'s."""
    root = tmp_path_factory.mktemp("decimals")
    chance = random.Random(7)
    table = Table.create(root / "lake" / "t", SCHEMA)
    read = pa.schema([field.with_type(READ.get(field.name, field.type)) for field in SCHEMA])
    (root / "parquet").mkdir()
    for number in range(FILES):
        part = random_rows(chance, number * FILE_ROWS)
        table.append(part)
        pq.write_table(part.cast(read), root / "parquet" / f"{number}.parquet")
    spark_ext.install_catalog(spark, "decimals", root / "lake")
    spark.read.parquet(str(root / "parquet")).createOrReplaceTempView("decimals_of_parquet")
    return spark


def answer(spark: SparkSession, query: str, table: str) -> list[str] | str:
    """The rows, sorted; or that it is an error of a number that is too large."""
    try:
        return sorted(map(str, spark.sql(query.format(t=table)).collect()))
    except (ArithmeticException, PythonException) as error:
        if "NUMERIC_VALUE_OUT_OF_RANGE" not in str(error) and "OVERFLOW" not in str(error):
            raise
        return "too large"


def is_pushed(spark: SparkSession, query: str) -> bool:
    """Whether tasks evaluate a condition or aggregate."""
    plan = spark.sql(f"EXPLAIN {query.format(t='decimals.t')}").collect()[0][0]
    return "aggregated in " in plan or ", filter " in plan


def check(spark: SparkSession, query: str) -> None:
    expected = answer(spark, query, "decimals_of_parquet")
    assert answer(spark, query, "decimals.t") == expected, query


PUSHED = [
    "SELECT id FROM {t} WHERE a * b > b * b",
    "SELECT sum(a * b), min(a * b), max(a * b) FROM {t}",
    "SELECT id % 3, sum(a * b), count(*) FROM {t} GROUP BY id % 3",
    "SELECT id FROM {t} WHERE CASE WHEN a > 1 THEN 99999999999999999999 ELSE c END > 5",
    "SELECT sum(CASE WHEN id > 3 THEN c ELSE -99999999999999999999 END) FROM {t}",
    "SELECT id FROM {t} WHERE f < -99999999999999999999.0000000001",
    "SELECT id FROM {t} WHERE n + n > 100",
    "SELECT sum(n), min(n), max(n) FROM {t}",
]


@pytest.mark.parametrize("query", PUSHED)
def test_decimals_beyond_64_bits_are_evaluated_in_tasks(lake: SparkSession, query: str):
    """Each of these failed, or would, if a digit were lost."""
    assert is_pushed(lake, query)
    check(lake, query)


LEFT = [
    "SELECT id FROM {t} WHERE -e < abs(e)",
    "SELECT min(-f), max(abs(f)) FROM {t}",
]


@pytest.mark.parametrize("query", LEFT)
def test_what_spark_rounds_is_left_to_spark(lake: SparkSession, query: str):
    """It negates decimals of more than 34 digits with 34."""
    plan = lake.sql(f"EXPLAIN {query.format(t='decimals.t')}").collect()[0][0]
    assert "aggregated in " not in plan
    check(lake, query)


def test_bounds_of_decimals_of_a_negative_scale_are_those_of_the_values(
    spark: SparkSession, tmp_path: Path
):
    """With those of the stored numbers, 1 and 3, the cast would seem to hold them all."""
    schema = pa.schema([("n", SCHEMA.field("n").type)])
    table = Table.create(tmp_path / "hundreds", schema)
    table.append(pa.table({"n": [Decimal(100), Decimal(300)]}, schema))
    spark_ext.install_catalog(spark, "scaled", tmp_path)
    query = "SELECT sum(CAST(n AS DECIMAL({digits}, 0))) FROM {{t}}"
    assert answer(spark, query.format(digits=2), "scaled.hundreds") == "too large"
    assert answer(spark, query.format(digits=3), "scaled.hundreds") == [
        "Row(sum(CAST(n AS DECIMAL(3,0)))=Decimal('400'))"
    ]


def random_query(chance: random.Random) -> str:
    def number(depth: int) -> str:
        if not depth or chance.random() < 0.2:
            return chance.choice([*DECIMALS, *DECIMALS, "k", chance.choice(LITERALS)])
        one, other = number(depth - 1), number(depth - 1)
        shapes = ["({0} + {1})", "({0} - {1})", "({0} * {1})", "({0} * {1})", "(-{0})", "abs({0})"]
        shapes += ["CASE WHEN {2} THEN {0} ELSE {1} END", "coalesce({0}, {1})"]
        shapes += ["CAST({0} AS DECIMAL(38, 6))", "CAST({0} AS DECIMAL(20, 2))"]
        return chance.choice(shapes).format(one, other, condition(0))

    def condition(depth: int) -> str:
        compare = chance.choice(["=", "<", "<=", ">", "<>", "<=>"])
        return f"{number(depth)} {compare} {number(depth)}"

    def where(most: int) -> str:
        return f" WHERE {condition(chance.randrange(most))}" if chance.random() < 0.5 else ""

    if chance.random() < 0.4:
        return f"SELECT id FROM {{t}} WHERE {condition(2)}"
    of = [f"{chance.choice(['sum', 'min', 'max', 'count'])}({number(2)})" for _ in range(2)]
    if chance.random() < 0.5:
        return f"SELECT {', '.join(of)} FROM {{t}}{where(2)}"
    return f"SELECT id % 3, {', '.join(of)} FROM {{t}}{where(2)} GROUP BY id % 3"


def run(spark: SparkSession, chance: random.Random, queries: int) -> int:
    """Check some random queries, and say how many of them tasks took part in."""
    pushed = 0
    for _ in range(queries):
        query = random_query(chance)
        with pytest.MonkeyPatch.context() as patch:
            if chance.random() < 0.5:
                patch.setattr(scans, "ONE_TASK_VALUES_MAX", 0)
            check(spark, query)
            pushed += is_pushed(spark, query)
    return pushed


def test_random_queries_on_decimals_have_the_answers_of_spark(lake: SparkSession):
    assert run(lake, random.Random(31), 8) > 2


@pytest.mark.slow
@pytest.mark.timeout(2 * 3600)
def test_very_many_random_queries_on_decimals_have_the_answers_of_spark(lake: SparkSession):
    """The long form."""
    assert run(lake, random.Random(), 1000) > 200


def test_insert_overwrite_replaces_a_partition_named_by_a_negative_decimal(
    spark: SparkSession, tmp_path: Path
):
    """Of 30 digits: the statement becomes a filter in SQL text, whose minus rounded to 28."""
    spark_ext.install_catalog(spark, "signed", tmp_path)
    value, other = "-99999999999999999999.0000000001", "-99999999999999999999.0000000002"
    spark.sql("CREATE TABLE signed.t (id INT, p DECIMAL(38, 10)) PARTITIONED BY (p)")
    spark.sql(f"INSERT INTO signed.t VALUES (1, {value}), (2, {other}), (3, 0)")
    spark.sql(f"INSERT OVERWRITE signed.t PARTITION (p = {value}) VALUES (4)")
    rows = {row.id: str(row.p) for row in spark.table("signed.t").collect()}
    assert rows == {4: value, 2: other, 3: "0E-10"}
    spark.sql(f"DELETE FROM signed.t WHERE p = {other}")
    assert sorted(row.id for row in spark.table("signed.t").collect()) == [3, 4]
