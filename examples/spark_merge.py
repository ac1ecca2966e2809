"""Rows that change in Spark: totals of baby names, merged year by year, by SQL and by frames.

python examples/spark_merge.py [directory]
"""

from __future__ import annotations

import csv
import gzip
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import spark_ext
from fermion_table import Table

DATA = Path(__file__).resolve().parent / "data" / "babynames"
YEARS = (1981, 1982)
BIRTHS_MIN = 100
"""Rarer names are left out."""
MERGE = """
MERGE INTO lake.names t USING year s ON t.name = s.name AND t.sex = s.sex
WHEN MATCHED THEN UPDATE SET births = t.births + s.births, last_year = s.last_year
WHEN NOT MATCHED THEN INSERT *
"""
CHANGES = (
    "UPDATE lake.names SET sex = lower(sex) "
    "WHERE name IN (SELECT name FROM year WHERE births > 50000)",
    "DELETE FROM lake.names WHERE births < (SELECT avg(births) / 10 FROM lake.names)",
)


def births(spark: SparkSession, year: int) -> DataFrame:
    """The names of a year: name, sex, births, last_year."""
    read = spark.read.schema("name string, sex string, births long")
    frame = read.csv(str(DATA / f"yob{year}.txt.gz"))
    return frame.where(f"births >= {BIRTHS_MIN}").selectExpr("*", f"{year} AS last_year")


def expected() -> dict[tuple[str, str], list[int]]:
    """The same totals in plain Python."""
    totals: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for year in YEARS:
        with gzip.open(DATA / f"yob{year}.txt.gz", "rt") as file:
            for name, sex, count in csv.reader(file):
                if int(count) >= BIRTHS_MIN:
                    totals[name, sex][0] += int(count)
                    totals[name, sex][1] = year
    return dict(totals)


def rows(table: Table) -> dict[tuple[str, str], list[int]]:
    """The totals of a table."""
    table.refresh()
    listed = table.scan(columns=["name", "sex", "births", "last_year"]).to_arrow().to_pylist()
    return {(row["name"], row["sex"]): [row["births"], row["last_year"]] for row in listed}


def main() -> int:
    """Merge, change, compare; return the exit status."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="fermion-"))
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = spark_ext.configure(builder).getOrCreate()
    try:
        spark_ext.install_catalog(spark, "lake", directory)
        columns = "(name STRING NOT NULL, sex STRING NOT NULL, births BIGINT, last_year INT)"
        spark.sql(f"CREATE TABLE lake.names {columns} CLUSTER BY (name)")
        by_sql = Table.open(directory / "names")
        by_frame = Table.create(
            directory / "keyed",
            by_sql.schema.to_arrow(field_ids=False),
            primary_key=["name", "sex"],
            properties={"bucket": "2"},
        )
        for year in YEARS:
            frame = births(spark, year)
            frame.createOrReplaceTempView("year")
            spark.sql(MERGE)
            result = (
                spark_ext.merge(spark, by_frame.location, frame, on=["name", "sex"])
                .when_matched_update(
                    {"births": "target.births + source.births", "last_year": "source.last_year"}
                )
                .when_not_matched_insert()
                .execute()
            )
            print(f"{year}: {result.rows_inserted:,} new names, {result.rows_updated:,} known")
        right = rows(by_sql) == rows(by_frame) == expected()
        print(f"{len(rows(by_sql)):,} names by SQL and by frames")
        for statement in CHANGES:
            spark.sql(statement)
            print(f"{statement}\n  left {len(rows(by_sql)):,} names")
        for commit in by_sql.snapshots()[1:]:
            print(f"  snapshot {commit.id}: {commit.kind} ({commit.message})")
        right &= [commit.kind for commit in by_sql.snapshots()][2:] == [
            "upsert",
            "upsert",
            "delete",
        ]
    finally:
        spark.stop()
    print("right" if right else "WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
