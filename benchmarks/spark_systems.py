"""Tables that change by SQL in Spark: ours, and those of Iceberg, Delta, Paimon and Hudi.

Rivals run with PySpark 3.5, where all four have a jar (see `rival_spark`), each with the settings
that its documentation gives for tables that change often.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.files import CACHE, remove
from benchmarks.question import Library
from benchmarks.rival_spark import ENVIRONMENT, jars_of

KEY = ("l_orderkey", "l_linenumber")
PART = "l_part"
BUCKETS = 2
SECONDS_MAX = 3_600
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "4g",
    "spark.driver.host": "localhost",
    "spark.sql.shuffle.partitions": "2",
    "spark.local.dir": str(CACHE / "spark-local"),
}


@cache
def session(system: System) -> Any:
    """Two threads of this machine, with the system's jars and settings."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    settings = {**SETTINGS, **system.settings, **system.catalog()}
    if system.jars:
        settings["spark.driver.extraClassPath"] = ":".join(map(str, jars_of(system.jars)))
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = system.configured(builder).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


@dataclass(frozen=True)
class System(Library):
    """A table format in Spark.

    Attributes
    ----------
    jars
        Its name in `rival_spark`; empty: no jars.
    settings
        Of the session.
    properties
        Of each table.
    """

    jars: str = ""
    settings: Mapping[str, str] = field(default_factory=dict, hash=False)
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)

    def warehouse(self) -> Path:
        """Where its tables are."""
        return CACHE / "spark-rows" / self.name.replace(" ", "-")

    def catalog(self) -> dict[str, str]:
        """Settings that name the warehouse."""
        return {}

    def configured(self, builder: Any) -> Any:
        """A session builder with what the package sets."""
        return builder

    def sql(self, statement: str) -> Any:
        """Run a statement."""
        return session(self).sql(statement)

    def name_of(self, table: str) -> str:
        """A table's name in SQL."""
        return f"lake.n.{table}"

    def create(self, table: str, source: Path, *, keyed: bool, parted: bool) -> None:
        """A new table with the rows of Parquet files, in place of an older one."""
        self.drop(table)
        declared = self.declared(table, keyed=keyed, parted=parted)
        rows = self.rows(source, parted=parted)
        self.sql(f"CREATE TABLE {self.name_of(table)} {declared} AS {rows}")

    def drop(self, table: str) -> None:
        """Remove a table of an earlier run."""
        self.sql("CREATE NAMESPACE IF NOT EXISTS lake.n")
        self.sql(f"DROP TABLE IF EXISTS {self.name_of(table)}")

    def declared(self, table: str, *, keyed: bool, parted: bool) -> str:
        """What stands between the table's name and AS."""
        raise AssertionError(f"{self.name} has no DDL for {table}, {keyed}, {parted}")

    def rows(self, source: Path, *, parted: bool) -> str:
        """A query of the rows of Parquet files; with the number of their partition."""
        part = f", CAST(l_orderkey % 10 AS INT) AS {PART}" if parted else ""
        return f"SELECT *{part} FROM parquet.`{source}`"

    def upsert(self, table: str, changes: Path, *, parted: bool) -> None:
        """Insert rows, or replace those of their keys."""
        self.merge(table, self.rows(changes, parted=parted), parted=parted)

    def merge(self, table: str, changes: str, *, parted: bool = False) -> None:
        """MERGE the rows of a query by key."""
        keys = (PART, *KEY) if parted else KEY
        same = " AND ".join(f"t.{name} = s.{name}" for name in keys)
        self.sql(
            f"MERGE INTO {self.name_of(table)} t USING ({changes}) s ON {same} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )


def listed(properties: Mapping[str, str]) -> str:
    """TBLPROPERTIES."""
    return ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())


@dataclass(frozen=True)
class Fermion(System):
    """Ours, through the catalog; upserts by `spark_ext.upsert`."""

    def configured(self, builder: Any) -> Any:
        import spark_ext

        return spark_ext.configure(builder)

    def drop(self, table: str) -> None:
        import spark_ext

        remove(self.warehouse() / "n" / table)
        spark_ext.install_catalog(session(self), "lake", self.warehouse())

    def create(self, table: str, source: Path, *, keyed: bool, parted: bool) -> None:
        import spark_ext
        from fermion_table import Table

        self.drop(table)
        frame = self.sql(self.rows(source, parted=parted))
        path = self.warehouse() / "n" / table
        if not keyed:
            spark_ext.write(frame, path)
            return
        schema = pq.read_schema(next(source.glob("*.parquet")))
        if parted:
            import pyarrow as pa

            schema = schema.append(pa.field(PART, pa.int32()))
        Table.create(
            path,
            schema,
            primary_key=[PART, *KEY] if parted else list(KEY),
            partition_by=[PART] if parted else None,
            properties={"bucket": "1" if parted else str(BUCKETS), **self.properties},
        )
        spark_ext.append(frame, path)

    def upsert(self, table: str, changes: Path, *, parted: bool) -> None:
        import spark_ext

        frame = self.sql(self.rows(changes, parted=parted))
        spark_ext.upsert(frame, self.warehouse() / "n" / table)


@dataclass(frozen=True)
class Iceberg(System):
    """Iceberg, format version 2, merge on read."""

    def catalog(self) -> dict[str, str]:
        return {
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": str(self.warehouse()),
        }

    def declared(self, table: str, *, keyed: bool, parted: bool) -> str:
        parts = f"PARTITIONED BY ({PART})" if parted else ""
        return f"USING iceberg {parts} TBLPROPERTIES ({listed(self.properties)})"


@dataclass(frozen=True)
class Paimon(System):
    """Paimon: primary-key tables, which its MERGE and UPDATE need, merge on read."""

    def catalog(self) -> dict[str, str]:
        return {
            "spark.sql.catalog.lake": "org.apache.paimon.spark.SparkCatalog",
            "spark.sql.catalog.lake.warehouse": str(self.warehouse()),
        }

    def declared(self, table: str, *, keyed: bool, parted: bool) -> str:
        buckets = 1 if parted else BUCKETS
        keys = ",".join([PART, *KEY] if parted else KEY)
        given = {"primary-key": keys, "bucket": str(buckets), **self.properties}
        parts = f"PARTITIONED BY ({PART})" if parted else ""
        return f"{parts} TBLPROPERTIES ({listed(given)})"

    def upsert(self, table: str, changes: Path, *, parted: bool) -> None:
        self.sql(f"INSERT INTO {self.name_of(table)} {self.rows(changes, parted=parted)}")


@dataclass(frozen=True)
class Located(System):
    """A system whose tables are in Spark's own catalog, each at a location."""

    def name_of(self, table: str) -> str:
        return f"n_{table}"

    def drop(self, table: str) -> None:
        self.sql(f"DROP TABLE IF EXISTS {self.name_of(table)}")
        remove(self.warehouse() / table)


@dataclass(frozen=True)
class Delta(Located):
    """Delta with deletion vectors."""

    def declared(self, table: str, *, keyed: bool, parted: bool) -> str:
        parts = f"PARTITIONED BY ({PART})" if parted else ""
        return (
            f"USING delta {parts} LOCATION '{self.warehouse() / table}' "
            f"TBLPROPERTIES ({listed(self.properties)})"
        )


@dataclass(frozen=True)
class Hudi(Located):
    """Hudi: merge on read, with a primary key and its bucket index."""

    def declared(self, table: str, *, keyed: bool, parted: bool) -> str:
        buckets = str(1 if parted else BUCKETS)
        given = {
            "primaryKey": ",".join(KEY),
            "hoodie.bucket.index.num.buckets": buckets,
            **self.properties,
        }
        parts = f"PARTITIONED BY ({PART})" if parted else ""
        return (
            f"USING hudi {parts} LOCATION '{self.warehouse() / table}' "
            f"TBLPROPERTIES ({listed(given)})"
        )

    def upsert(self, table: str, changes: Path, *, parted: bool) -> None:
        self.sql(f"INSERT INTO {self.name_of(table)} {self.rows(changes, parted=parted)}")


def rival(system: type[System], name: str, jars: str, **given: Any) -> System:
    """A system with its jars, in the environment of rivals."""
    return system(
        name,
        ("pyspark",),
        "pyspark",
        python=ENVIRONMENT,
        set_up="python -m benchmarks.rival_spark",
        seconds_max=SECONDS_MAX,
        jars=jars,
        **given,
    )


EXTENSIONS = "spark.sql.extensions"
OWN_CATALOG = "spark.sql.catalog.spark_catalog"
FERMION = Fermion("fermion", ("pyspark",), "pyspark", own=True, seconds_max=SECONDS_MAX)
ICEBERG = rival(
    Iceberg,
    "iceberg",
    "iceberg",
    settings={
        EXTENSIONS: "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    },
    properties={
        "format-version": "2",
        "write.merge.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.delete.mode": "merge-on-read",
    },
)
DELTA = rival(
    Delta,
    "delta",
    "delta",
    settings={
        EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension",
        OWN_CATALOG: "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",  # its default fits a cluster
    },
    properties={"delta.enableDeletionVectors": "true"},
)
PAIMON = rival(
    Paimon,
    "paimon",
    "paimon",
    settings={EXTENSIONS: "org.apache.paimon.spark.extensions.PaimonSparkSessionExtensions"},
)
HUDI = rival(
    Hudi,
    "hudi",
    "hudi",
    settings={
        EXTENSIONS: "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        OWN_CATALOG: "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "hoodie.spark.sql.insert.into.operation": "upsert",
    },
    properties={"type": "mor", "hoodie.index.type": "BUCKET"},
)
SYSTEMS: Sequence[System] = (FERMION, ICEBERG, DELTA, PAIMON, HUDI)
