"""Paimon's Java engine behind the verbs of the table layers, by Spark (`make paimon`)."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.keyed_layers import KEY, PART, KeyedLayer
from benchmarks.question import NotOffered
from benchmarks.rival_spark import ENVIRONMENT, JARS

TYPES = {
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
}


@cache
def session() -> Any:
    """The session of this process."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    for name, value in {
        "spark.driver.memory": "4g",
        "spark.driver.extraClassPath": str(max(JARS.glob("paimon-spark-3.5-*.jar"))),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.extensions": "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


@dataclass(frozen=True)
class KeyedPaimonSpark(KeyedLayer):
    """Paimon by Spark: merge on read. Rows come in a Parquet file, whose writing is timed too."""

    modules: tuple[str, ...] = ("pyspark.sql",)
    package: str = "pyspark"
    python: str | None = ENVIRONMENT
    set_up: str = "make paimon"

    def create(self, path: str, schema: pa.Schema) -> None:
        table = self.open(path)
        parts = [PART] if PART in schema.names else []
        columns = ", ".join(
            f"{each.name} {TYPES[each.type]}{' NOT NULL' if each.name in (KEY, PART) else ''}"
            for each in schema
        )
        partitioned = f"PARTITIONED BY ({PART})" if parts else ""
        bucket, key = (1 if parts else 2), ",".join([*parts, KEY])
        session().sql(f"CREATE DATABASE IF NOT EXISTS {table.rpartition('.')[0]}")
        session().sql(
            f"CREATE TABLE {table} ({columns}) {partitioned} TBLPROPERTIES "
            f"('primary-key' = '{key}', 'bucket' = '{bucket}', 'write-only' = 'true')"
        )

    def open(self, path: str, version: int | None = None) -> Any:
        if version is not None:
            raise NotOffered("not measured")
        name = f"c{hashlib.sha1(path.encode()).hexdigest()[:12]}"
        session().conf.set(f"spark.sql.catalog.{name}", "org.apache.paimon.spark.SparkCatalog")
        session().conf.set(f"spark.sql.catalog.{name}.warehouse", path)
        return f"{name}.n.t"

    def append(self, table: Any, rows: pa.Table) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/rows.parquet"
            pq.write_table(rows, file)
            session().sql(f"INSERT INTO {table} SELECT * FROM parquet.`{file}`")
        return table

    def append_files(self, path: str, parts: Sequence[pa.Table]) -> None:
        raise NotOffered("not measured")

    def upsert(self, table: Any, rows: pa.Table) -> Any:
        return self.append(table, rows)

    def read(self, table: Any) -> pa.Table:
        return self._collected(f"SELECT * FROM {table}")

    def lookup(self, table: Any, keys: Sequence[int]) -> pa.Table:
        listed = ", ".join(map(str, keys))
        return self._collected(f"SELECT * FROM {table} WHERE {KEY} IN ({listed})")

    def select(self, table: Any, columns: Sequence[str], above: float) -> pa.Table:
        return self._collected(f"SELECT {', '.join(columns)} FROM {table} WHERE price > {above}D")

    def plan(self, table: Any, value: int | None) -> int:
        if value is not None:
            raise NotOffered("not measured")
        return session().sql(f"SELECT * FROM {table.rpartition('.')[0]}.`t$files`").count()

    def compact(self, table: Any) -> None:
        catalog = table.partition(".")[0]
        session().sql(f"CALL {catalog}.sys.compact(table => 'n.t')")

    def _collected(self, query: str) -> pa.Table:
        return pa.Table.from_batches(session().sql(query)._collect_as_arrow())


PAIMON_SPARK = KeyedPaimonSpark("paimon (Spark)")
